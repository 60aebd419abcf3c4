"""Sources: the bytecode that `emit` writes loads what `load` reads."""

from __future__ import annotations

import builtins
import math
from types import CellType, CodeType, FunctionType

import pytest
from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.assemble import assemble
from flambeau_capture.bytecode.decode import decode
from flambeau_capture.guards.equality import same
from flambeau_capture.source import (
    Attr,
    Builtin,
    ClosureCell,
    ClosureSource,
    ConstantSource,
    Default,
    DictKey,
    Global,
    GlobalOf,
    InstanceAttr,
    Item,
    KwDefault,
    Local,
    ModuleEntry,
    Scope,
    emit,
    load,
)


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __getattr__(self, name):
        for table in ("_parameters", "_modules"):
            if name in self.__dict__.get(table, {}):
                return self.__dict__[table][name]
        raise AttributeError(name)


def template():
    captured = None

    def frame(x):
        return captured

    return frame


def default_holder(a, b=31, *, c=37):
    return MARK


MARK = object()
FUNCTION = template()
WEIGHT = object()
VALUE = {
    "list": [10, (11, 12)],
    "box": Box(tag=13, _parameters={"weight": WEIGHT}, _modules={"0": Box(tag=14)}),
    "fn": default_holder,
}


class HeldInGlobals:
    """The simplest loader: held objects are put in the function's globals."""

    def __init__(self):
        self.globals = {"math": math, "template": FUNCTION, "__builtins__": builtins}

    def global_name(self, obj):
        name = f"__held_{len(self.globals)}"
        self.globals[name] = obj
        return name


BOX = Item(Local("x"), "box", "dict")
FN = Item(Local("x"), "fn", "dict")
CASES = [
    (Local("x"), VALUE, "local 'x'"),
    (ClosureSource("captured"), 23, "free 'captured'"),
    (Global("math"), math, "global 'math'"),
    (Builtin("len"), len, "builtin 'len'"),
    (ConstantSource(MARK, "mark"), MARK, "held '<mark>'"),
    (Attr(Global("math"), "pi"), math.pi, "global 'math.pi'"),
    (InstanceAttr(BOX, "tag"), 13, "local \"x['box'].tag\""),
    (ModuleEntry(BOX, "_parameters", "weight"), WEIGHT, "local \"x['box'].weight\""),
    (
        InstanceAttr(ModuleEntry(BOX, "_modules", "0"), "tag"),
        14,
        "local \"x['box']._modules['0'].tag\"",
    ),
    (Item(Item(Local("x"), "list", "dict"), 0, "list"), 10, "local \"x['list'][0]\""),
    (
        Item(Item(Item(Local("x"), "list", "dict"), -1, "list"), 1, "tuple"),
        12,
        "local \"x['list'][-1][1]\"",
    ),
    (Item(Item(Local("x"), "list"), 0), 10, "local \"x['list'][0]\""),
    (DictKey(Local("x"), 1), "box", "local 'list(x)[1]'"),
    (GlobalOf(FN, "MARK"), MARK, "local \"x['fn'].__globals__['MARK']\""),
    (Default(FN, 0), 31, "local \"x['fn'].__defaults__[0]\""),
    (KwDefault(FN, "c"), 37, "local \"x['fn'].__kwdefaults__['c']\""),
    (ClosureCell(Global("template"), 0), None, "global 'template.__closure__[0].cell_contents'"),
]


def run(source):
    """A function that does nothing but load the source and return it."""
    tx = HeldInGlobals()
    body = decode(FUNCTION.__code__)
    end = next(i for i, ins in enumerate(body.instructions) if ins.opname == "RESUME")
    body.instructions[end + 1 :] = [*emit(source, tx), *spelling.return_value()]
    code = assemble(body)
    assert isinstance(code, CodeType)
    return FunctionType(code, tx.globals, closure=(CellType(23),))(VALUE)


@pytest.mark.parametrize(("source", "expected", "text"), CASES, ids=[c[2] for c in CASES])
def test_both_views_find_the_value(source, expected, text):
    scope = Scope(
        {"x": VALUE}, {"captured": 23}, {"math": math, "template": FUNCTION}, vars(builtins)
    )
    assert same(load(source, scope), expected)
    assert same(run(source), expected)
    assert str(source) == text


def test_paths_roots_and_equality():
    source = Item(Attr(Local("x"), "a"), 1, "list")
    assert [type(node) for node in source.path()] == [Local, Attr, Item]
    assert source.root() == Local("x")
    assert source.name() == "L['x'].a[1]"
    assert source.is_local() and ClosureSource("c").is_local() and not Global("g").is_local()
    assert source == Item(Attr(Local("x"), "a"), 1, "list")
    assert source != Item(Attr(Local("x"), "a"), True, "list")
    assert source != Item(Attr(Local("x"), "a"), 1, "tuple")
    assert ConstantSource(MARK) == ConstantSource(MARK, "again") and ConstantSource(
        MARK
    ) != ConstantSource(object())
    assert (
        len(
            {
                source,
                Item(Attr(Local("x"), "a"), 1, "list"),
                ConstantSource(MARK),
                ConstantSource(MARK),
            }
        )
        == 2
    )
