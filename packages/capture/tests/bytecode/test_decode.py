"""Decoding: what is hidden, what is named, what is split."""

import sys

import pytest
from flambeau_capture.bytecode import decode
from flambeau_capture.bytecode.assemble import exception_table
from flambeau_capture.bytecode.decode import exception_rows, local_slots
from flambeau_capture.bytecode.opcodes import SUPERINSTRUCTIONS, VERSION


def opnames(function) -> list[str]:
    return [i.opname for i in decode(function.__code__).instructions]


def first(function, opname):
    return next(i for i in decode(function.__code__).instructions if i.opname == opname)


def test_operands_are_named_by_their_meaning():
    def f(a):
        return len(a) + a.size if a is not None and a < 3 else "no"

    assert first(f, "LOAD_GLOBAL").argval == "len"
    assert first(f, "LOAD_GLOBAL").flags.push_null
    assert first(f, "LOAD_FAST").argval == "a"
    assert first(f, "LOAD_ATTR").argval == "size"
    assert first(f, "BINARY_OP").argval == "+"
    assert first(f, "COMPARE_OP").argval == "<"
    assert first(f, "COMPARE_OP").flags.to_bool == (VERSION >= (3, 13))


def test_jumps_have_no_direction_and_no_offset():
    def f(items):
        for item in items:
            while item:
                item -= 1
        return items

    body = decode(f.__code__)
    jumps = [i for i in body.instructions if i.target is not None]
    assert len(jumps) >= 4
    for jump in jumps:
        assert jump.target in body.instructions
        assert "BACKWARD" not in jump.opname and "FORWARD" not in jump.opname
    assert any(i.opname == "JUMP" or i.opname.startswith("POP_JUMP_IF") for i in jumps)


def test_caches_and_extended_arguments_are_hidden():
    source = "def f():\n" + "".join(f"    x{n} = {n} + y{n}\n" for n in range(300))
    scope: dict = {}
    exec(source, scope)
    names = opnames(scope["f"])
    assert "CACHE" not in names and "EXTENDED_ARG" not in names
    consts = [
        i.argval for i in decode(scope["f"].__code__).instructions if i.opname == "LOAD_CONST"
    ]
    assert consts[:300] == list(range(300))


def test_superinstructions_are_split_with_their_position():
    def f(a, b):
        c, d = b, a
        return c * d

    body = decode(f.__code__)
    assert not set(opnames(f)) & set(SUPERINSTRUCTIONS)
    loads = [i.argval for i in body.instructions if i.opname == "LOAD_FAST"]
    assert loads[-2:] == ["c", "d"]
    assert all(i.positions is not None for i in body.instructions)


def test_closure_loads_read_the_same_on_every_version():
    def f(argument):
        local = 1
        return lambda: argument + local

    body = decode(f.__code__)
    assert [i.argval for i in body.instructions if i.opname == "LOAD_CLOSURE"] == [
        "argument",
        "local",
    ]
    inner = f(1).__code__
    assert local_slots(inner) == ("argument", "local")
    assert [i.argval for i in decode(inner).instructions if i.opname == "LOAD_DEREF"] == [
        "argument",
        "local",
    ]


def test_a_method_load_is_marked():
    def f(x):
        return x.sum()

    if VERSION >= (3, 12):
        assert first(f, "LOAD_ATTR").flags.method
    else:
        assert first(f, "LOAD_METHOD").argval == "sum"


def test_offsets_are_those_of_the_interpreter():
    def f():
        return sys._getframe().f_lasti

    here = f()
    offsets = {i.offset: i.opname for i in decode(f.__code__).instructions}
    assert offsets[here] == "LOAD_ATTR"


def test_regions_name_instructions():
    def f():
        try:
            return g()  # noqa: F821
        except ValueError:
            return 1

    body = decode(f.__code__)
    assert body.regions
    handler = body.regions[0].handler
    assert handler.opname == "PUSH_EXC_INFO"
    start, end = (body.instructions.index(i) for i in (body.regions[0].start, body.regions[0].end))
    assert start <= end < body.instructions.index(handler)


def test_exception_rows_invert_the_table_writer():
    rows = [(0, 3, 70, 0, False), (3, 64, 5000, 1, True), (100, 300_000, 7, 40, True)]
    doubled = [(2 * a, 2 * b, 2 * c, d, e) for a, b, c, d, e in rows]
    assert list(exception_rows(exception_table(rows))) == doubled
    with pytest.raises(ValueError, match="overlap"):
        exception_table([(0, 3, 9, 0, False), (2, 4, 9, 0, False)])


def test_a_copy_is_fresh_and_closed():
    def f(items):
        try:
            return [i for i in items if i]
        finally:
            items.clear()

    body = decode(f.__code__)
    copied, twin = body.copy()
    assert not set(copied.instructions) & set(body.instructions)
    for original in body.instructions:
        assert twin[original].opname == original.opname
        assert twin[original].target is twin.get(original.target)
    assert {r.handler for r in copied.regions} == {twin[r.handler] for r in body.regions}
