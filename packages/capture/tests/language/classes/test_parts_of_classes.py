"""What the frame makes for classes to have (properties, fields, partial methods), of every kind of
object that the frame made: what is refused is refused in Python's words, which show the object.
Generated: each kind with each use.
"""

import collections
import dataclasses
import functools
import re

import pytest
import torch

MODULES = (collections, dataclasses, functools)  # which the programs name


class OwnDict(dict):
    pass


class OwnList(list):
    def __call__(self):
        pass


class Plain:
    def m(self):
        return 1


def add(a, b=2):
    return a + b


OBJECTS = [
    "collections.defaultdict(list, a=[1])", "collections.deque([1])", "[1]", "{1}", "{}", "(1,)",
    "frozenset()", "OwnDict()", "OwnList()", "functools.partial(add, 1)", "Plain().m", "Plain()",
    "t", "add", "len", "'a'", "None", "collections.OrderedDict()", "collections.Counter()",
    "slice(1)", "(lambda: 1)", "[].append", "bytearray(b'a')", "int", "collections.ChainMap({})",
    "range(3)", "iter([])", "1.5", "property(add)", "staticmethod(add)", "torch.Size([1])",
    "{}.keys()", "object()",
]  # fmt: skip
USES = [
    "functools.partialmethod(o)", "functools.partialmethod(o, o, k=o)", "property(o)",
    "property(o, o, o, o, o)", "staticmethod(o)", "classmethod(o)", "functools.cached_property(o)",
    "dataclasses.field(default=o)", "dataclasses.field(default=o, default_factory=o)",
    "dataclasses.field(o)", "data(o)", "field(o)", "dataclasses.dataclass(o)",
    "dataclasses.make_dataclass('A', [('x', int, o)])", "type('A', (), {'x': o})",
    "type('A', o, {'x': 1})", "type(o, (), {})", "type('A', (), o)",
    "type('A', (), {'__slots__': o})", "type('A', (), {'__qualname__': o})",
]  # fmt: skip
PROGRAM = """
def f(t):
    R = []
    def data(o):
        @dataclasses.dataclass
        class A:
            x: object = o
        return 7
    def field(o):
        @dataclasses.dataclass
        class A:
            x: object = dataclasses.field(default=o)
            y: int
        return 7
"""


def program(use, objects):
    text = PROGRAM
    for made in objects:
        text += f"    try:\n        o = {made}\n        R.append(type({use}).__name__)\n"
        text += "    except Exception as e:\n        R.append((type(e), str(e)))\n"
    exec(text + "    return t + 1, R", globals(), space := {})
    return space["f"]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("use", USES)
def test_made_of_every_object(capture, use):
    for start in range(0, len(OBJECTS), 6):
        f = program(use, OBJECTS[start : start + 6])
        expected = f(torch.ones(2))[1]
        got = capture(f)(torch.ones(2))[1]
        for made, want, found in zip(OBJECTS[start:], expected, got):
            assert re.sub(r"0x\w+", "0x", str(found)) == re.sub(r"0x\w+", "0x", str(want)), made
