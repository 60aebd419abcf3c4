"""Functions that take sequences by the protocol say of other objects what they say in eager."""

import bisect
import collections
import copy
import operator
import re
import types
from collections.abc import Callable

import pytest
import torch
from flambeau_capture import compile as compiled


class Indexed:
    def __getitem__(self, place):
        return (1, 2)[place]

    def __len__(self):
        return 2

    def __add__(self, other):
        return 5


class Added:
    def __add__(self, other):
        return 5


class Mapping(dict):
    pass


class Answering(dict):
    def __getitem__(self, key):
        return 1


class Listed(list):
    pass


GIVEN = {
    "set": {3}, "no set": set(), "frozenset": frozenset({1}), "dict": {1: 2}, "no dict": {},
    "subclass of dict": Mapping(a=1), "dict with items of its own": Answering(a=1),
    "indexed": Indexed(), "added": Added(), "pattern": re.compile("a"), "list": [1],
    "tuple": (1,), "str": "ab", "bytes": b"a", "bytearray": bytearray(b"a"), "range": range(3),
    "deque": collections.deque([1]), "ordered": collections.OrderedDict(a=1),
    "counter": collections.Counter("a"), "proxy": types.MappingProxyType({1: 2}), "number": 5,
    "None": None, "class": int, "object": object(), "subclass of list": Listed([1]),
    "function": len, "keys": {}.keys(), "complex": 1j,
}  # fmt: skip


def outcome(fn: Callable, *args: object) -> object:
    try:
        return re.sub("0x[0-9a-f]+", "", repr(fn(*args)))
    except Exception as error:
        return type(error), str(error)


def same(fn: Callable, first: object, second: object) -> None:
    def f(x, a, b):
        return x + 1, outcome(fn, a, b)

    def own() -> tuple[object, object]:
        return tuple(
            each if isinstance(each, types.MappingProxyType) or type(each) is type({}.keys())
            else copy.copy(each) for each in (first, second)
        )  # fmt: skip

    x = torch.ones(2)
    wanted = f(x, *own())[1]
    assert compiled(f, backend="eager")(x, *own())[1] == wanted


@pytest.mark.sweep(4)
@pytest.mark.parametrize("left", GIVEN)
@pytest.mark.parametrize("fn", [operator.concat, operator.iconcat], ids=lambda f: f.__name__)
def test_sequences_are_concatenated_as_by_the_function(fn, left):
    for right in GIVEN.values():
        same(fn, GIVEN[left], right)


@pytest.mark.parametrize("items", GIVEN)
@pytest.mark.parametrize("name", ["bisect_left", "bisect_right", "insort_left", "insort_right"])
def test_places_are_found_in_sequences_alone(name, items):
    for looked_for in (1, "12"):
        same(getattr(bisect, name), GIVEN[items], looked_for)
