"""Paths of guards: each access reads the same in both; what is shared, aliased, different."""

from __future__ import annotations

import math
from types import CellType, FunctionType, SimpleNamespace

import pytest
from flambeau_capture.guards import GuardSet
from flambeau_capture.guards.equality import same
from flambeau_capture.source import (
    Attr,
    Builtin,
    ClosureCell,
    ClosureSource,
    ConstantSource,
    Default,
    DictKey,
    FreeCell,
    Global,
    GlobalOf,
    InstanceAttr,
    Item,
    KwDefault,
    Local,
    ModuleEntry,
    load,
)

from .frames import CODE, Angry, Frame, Plain, agree, one, plain


def sample(z=5, *, w=6):
    return z, w, SENTINEL


class Sentinel:
    def __repr__(self):
        return "SENTINEL"  # a name of a test: the same in every process


SENTINEL = Sentinel()


class FakeModule:
    def __init__(self):
        self._parameters = {"weight": 1}
        self._modules = {}
        self.training = True


def holder():
    module = FakeModule()
    module._modules["0"] = FakeModule()
    return {"list": [1, 2, (3, 4)], "module": module, "fn": sample, 1: "one"}


def closure_of(value):
    def inner():
        return value

    return inner


SOURCES = [
    (Local("x"), None),
    (Item(Local("x"), "list", "dict"), None),
    (Item(Item(Local("x"), "list", "dict"), 1, "list"), 2),
    (Item(Item(Local("x"), "list", "dict"), -1, "list"), (3, 4)),
    (Item(Item(Item(Local("x"), "list", "dict"), 2, "list"), 1, "tuple"), 4),
    (Item(Item(Local("x"), "list"), 0), 1),
    (DictKey(Local("x"), 3), 1),
    (Attr(Item(Local("x"), "module", "dict"), "training"), True),
    (InstanceAttr(Item(Local("x"), "module", "dict"), "training"), True),
    (ModuleEntry(Item(Local("x"), "module", "dict"), "_parameters", "weight"), 1),
    (
        ModuleEntry(
            ModuleEntry(Item(Local("x"), "module", "dict"), "_modules", "0"),
            "_parameters",
            "weight",
        ),
        1,
    ),
    (GlobalOf(Item(Local("x"), "fn", "dict"), "SENTINEL"), SENTINEL),
    (Default(Item(Local("x"), "fn", "dict"), 0), 5),
    (KwDefault(Item(Local("x"), "fn", "dict"), "w"), 6),
    (ClosureCell(Global("g"), 0), 17),
    (ClosureSource("captured"), 23),
    (Builtin("len"), len),
    (ConstantSource(SENTINEL, "sentinel"), SENTINEL),
    (Attr(Global("math"), "pi"), math.pi),
]


@pytest.mark.parametrize(("source", "expected"), SOURCES, ids=lambda v: str(v)[:40])
def test_every_access_reads_the_same(source, expected):
    value = holder()
    frame = Frame(value, free=23, globals={"g": closure_of(17), "math": math})
    found = load(source, frame.scope())
    if expected is not None:
        assert same(found, expected)
    guards = one("ID_MATCH", found, source=source)
    assert agree(guards, frame)
    assert not agree(one("ID_MATCH", object(), source=source), frame)
    if not isinstance(source, Builtin | ConstantSource):
        for wrong in (None, 3, [], {}, (), Angry(), Plain, plain(), lambda: 0):
            assert not agree(
                one("ID_MATCH", SimpleNamespace(), source=source),
                Frame(wrong, free=None, globals={"g": wrong, "math": wrong}),
            )
            agree(guards, Frame(wrong, free=wrong, globals={"g": wrong}))


def test_keys_that_are_equal_but_not_the_same_are_two_paths():
    value = {1: "int"}
    guards = GuardSet(CODE)
    guards.add(Item(Local("x"), 1, "dict"), "CONSTANT_MATCH", "int")
    guards.add(Item(Local("x"), True, "dict"), "CONSTANT_MATCH", "int")
    assert len(guards) == 2
    assert agree(guards.finish(), Frame(value))


def test_shared_prefixes_are_read_once():
    reads = []

    class Watched:
        @property
        def inner(self):
            reads.append(1)
            return SimpleNamespace(a=1, b=2, c=3)

    guards = GuardSet(CODE)
    inner = Attr(Local("x"), "inner")
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        guards.add(Attr(inner, name), "CONSTANT_MATCH", value)
    assert Frame(Watched()).native(guards.finish())
    assert reads == [1]


def test_names_that_are_no_arguments_are_refused():
    for source in (Local("nothing"), ClosureSource("x")):
        with pytest.raises(ValueError, match=r"no (argument|free variable) of"):
            _ = one("NONE_MATCH", source=source).native


def test_aliasing():
    a, b = [1], [1]
    guards = GuardSet(CODE)
    guards.add_alias(Local("x"), Local("y"))
    alias = guards.finish()
    assert agree(alias, Frame(a, a))
    assert not agree(alias, Frame(a, b))
    guards = GuardSet(CODE)
    guards.add_no_alias((Local("x"), Local("y"), ClosureSource("captured")))
    distinct = guards.finish()
    assert agree(distinct, Frame(a, b, free=0))
    assert not agree(distinct, Frame(a, a, free=0))
    assert not agree(distinct, Frame(a, b, free=b))


def test_cells_are_told_apart_from_what_they_hold():
    guards = GuardSet(CODE)
    guards.add_alias(FreeCell("captured"), Item(Local("x"), 0, "list"))
    guards.add_no_alias((FreeCell("captured"), Local("y")))
    finished = guards.finish()
    frame = Frame(free=5)
    frame.locals["x"] = [frame.cell]
    assert agree(finished, frame)
    frame.locals["y"] = CellType(5)
    assert agree(finished, frame)
    frame.locals["y"] = frame.cell
    assert not agree(finished, frame)
    frame.locals["x"], frame.locals["y"] = [CellType(5)], None
    assert not agree(finished, frame)
    text = finished.explain(frame.scope())
    assert str(text).startswith("cell 'captured', local 'x[0]' OBJECT_ALIASING")


def test_groups_of_different_objects_are_independent():
    guards = GuardSet(CODE)
    x, y = Local("x"), Local("y")
    guards.add_no_alias(tuple(Item(x, i, "list") for i in range(3)))
    guards.add_no_alias(tuple(Item(y, i, "list") for i in range(40)))
    finished = guards.finish()
    few, many = [object() for _ in range(3)], [object() for _ in range(40)]
    assert agree(finished, Frame(few, many))
    assert agree(finished, Frame(few, [*few, *many[3:]]))
    assert not agree(finished, Frame([few[0], few[1], few[0]], many))
    assert not agree(finished, Frame(few, [*many[:-1], many[7]]))


def test_objects_made_by_the_access_itself_are_not_mixed_up():
    # two attributes that make a new object each time may get the same address one after the other
    class Fresh:
        @property
        def one(self):
            return [0] * 8

        two = one

    guards = GuardSet(CODE)
    guards.add_alias(Attr(Local("x"), "one"), Attr(Local("x"), "two"))
    assert not agree(guards.finish(), Frame(Fresh()))


def test_functions_made_by_hand():
    made = FunctionType(sample.__code__, {"SENTINEL": 1}, argdefs=(9,))
    frame = Frame(made)
    assert agree(one("CONSTANT_MATCH", 1, source=GlobalOf(Local("x"), "SENTINEL")), frame)
    assert agree(one("CONSTANT_MATCH", 9, source=Default(Local("x"), 0)), frame)
    assert not agree(one("CONSTANT_MATCH", 6, source=KwDefault(Local("x"), "w")), frame)
