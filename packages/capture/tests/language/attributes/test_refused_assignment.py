"""Attributes that an object has no place for are refused when they are set or deleted, in Python's
words and without a break: every kind of built-in object, named tuples, enumerations."""

import collections
import enum
import typing

import pytest
import torch


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Place(enum.IntFlag):
    HERE = 1


Pair = collections.namedtuple("Pair", "a b")


class Named(typing.NamedTuple):
    a: int

    def method(self):
        return self.a


class Roomy(Named):
    """Has a `__dict__`, and so a place."""


OBJECTS = (
    "n", "2", "2.5", "'s'", "b's'", "True", "None", "[1]", "{'k': 1}", "{1}", "frozenset([1])",
    "(1,)", "x.shape", "Pair(1, 2)", "Named(1)", "Colour.RED", "Place.HERE", "Colour", "Place",
)  # fmt: skip
NAMES = {
    "2": ("real", "bit_length"), "2.5": ("real",), "{1}": ("add",), "Pair(1, 2)": ("a", "count"),
    "Named(1)": ("a", "method"), "Colour.RED": ("value", "name"), "Place.HERE": ("value",),
    "Colour": ("RED",), "Place": ("HERE",),
}  # fmt: skip
UNKNOWN = ("Colour.RED", "Place.HERE", "Colour", "Place")  # which take names that they lack
CASES = [
    (one, name)
    for one in OBJECTS
    for name in (*(() if one in UNKNOWN else ("zz",)), *NAMES.get(one, ()))
]
WAYS = ("o.{} = t", "del o.{}", "setattr(o, '{}', 1)", "delattr(o, '{}')")


def program(one, name):
    tried = "".join(
        f"    try:\n        {way.format(name)}\n"
        "    except Exception as error: said.append((type(error), str(error)))\n"
        for way in WAYS
    )
    text = f"def f(x, n):\n    o, said, t = {one}, [], x + 1\n{tried}    return t * 2, said\n"
    names = {**globals()}
    exec(text, names)
    return names["f"]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_attributes_without_a_place(capture, backend, same, case):
    fn = program(*case)
    compiled = capture(fn)
    for n in (2, 5, 7):
        found = compiled(torch.ones(3), n)
        same(found, fn(torch.ones(3), n))
        assert len(found[1]) == len(WAYS)
    assert len(backend) <= 3, "a break"
    assert all(len(list(graph.graph.nodes)) > 3 for graph in backend.graphs), "a break"


def test_a_place_is_used(capture):
    def fn(x):
        made = Roomy(3)
        made.zz = x + 1
        return made.zz * 2, made

    found, made = capture(fn)(torch.ones(2))
    assert torch.equal(found, torch.full((2,), 4.0))
    assert torch.equal(made.zz, torch.full((2,), 2.0))
