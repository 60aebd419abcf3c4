"""Patterns over every kind of subject, and mapping proxies that are made in the frame."""

import array
import collections
import collections.abc
import contextlib
import copy
import types
import typing

import pytest
import torch


def x():
    return torch.arange(6.0)


class Numbers(collections.abc.Sequence):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return range(2)[index]


@collections.abc.Sequence.register
class Registered:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return [5][index]


class Table(collections.abc.Mapping):
    def __init__(self):
        self.asked = []

    def __getitem__(self, key):
        self.asked.append(key)
        return {1: 2}[key]

    def __iter__(self):
        return iter([1])

    def __len__(self):
        return 1


class Answering(dict):
    def get(self, key, default=None):
        return 7


class Named(typing.NamedTuple):
    a: int


SUBJECTS = [
    [1], (1,), [1, 2], "a", b"a", bytearray(b"a"), range(1), collections.deque([1]), {1}, {1: 2},
    {2: 1}, collections.OrderedDict({1: 2}), collections.defaultdict(int), Answering({3: 4}),
    collections.ChainMap({1: 2}), collections.UserDict({1: 2}), collections.UserList([1]),
    collections.UserString("a"), collections.Counter([1]), Numbers(), Registered(), Table(),
    Named(1), torch.Size([1]), None, 3, 1.5, array.array("i", [1]), memoryview(b"a"),
]  # fmt: skip


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: type(subject).__name__)
def test_patterns_of_sequences_and_mappings(check, subject):
    def fn(t, make):
        given = make()
        match given:
            case [k]:
                found = "one", k
            case [a, b]:
                found = "two", a, b
            case {1: k, **rest}:
                found = "mapping", k, rest
            case {}:
                found = "a mapping"
            case _:
                found = "none"
        return t + 1, found, getattr(given, "asked", None)

    made = subject if type(subject) is memoryview else copy.copy(subject)
    check(fn, x(), lambda: made, graphs=None, calls=1)


def proxied(inner, key):
    proxy = types.MappingProxyType(inner)
    found = [
        len(proxy),
        list(proxy),
        key in proxy,
        proxy.get(key, 4),
        proxy == inner,
        proxy | {1: 2},
    ]
    inner["new"] = 1
    with contextlib.suppress(TypeError):
        proxy[key] = 1
    return [*found, len(proxy), [*reversed(proxy)], proxy.copy(), dict(proxy), [*proxy.items()]]


def test_mapping_proxies_are_made(check, capture, same):
    def fn(t, given, key):
        try:
            return t + 1, proxied(given, key)
        except Exception as error:
            return t, type(error).__name__, str(error)

    for given in ({"a": 1}, {"a": x()}, {}, collections.Counter("ab"), [1], (1,), None, 3):
        check(fn, x(), given, "a")
    made = capture(lambda t, given: types.MappingProxyType({**given, "t": t + 1}))(x(), {"a": 1})
    assert type(made) is types.MappingProxyType
    same(dict(made), {"a": 1, "t": x() + 1})
