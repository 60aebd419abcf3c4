"""The tables of opcodes, of every version and against the running CPython."""

import dis
import opcode

import pytest
from flambeau_capture.bytecode.opcodes import (
    INVERSE,
    READS_SLOT,
    RUNNING,
    SUPERINSTRUCTIONS,
    SUPPORTED,
    TERMINATORS,
    VERSION,
    WRITES_SLOT,
    OperandKind,
    opcode_table,
)

REAL = {name: code for name, code in opcode.opmap.items() if code <= 255}
every_version = pytest.mark.parametrize("version", SUPPORTED, ids="{0[0]}.{0[1]}".format)


def test_what_is_written_down_is_what_the_running_python_has():
    assert {name: code for code, name in RUNNING.names.items()} == REAL
    caches = opcode._inline_cache_entries
    for name, code in REAL.items():
        if name.startswith("INSTRUMENTED_"):
            continue
        row = RUNNING.spec(name)
        known = caches.get(name, 0) if isinstance(caches, dict) else caches[code]
        assert row.caches == known, name


def test_effects_on_the_stack_are_the_running_pythons():
    has_operand = set(getattr(opcode, "hasarg", range(opcode.HAVE_ARGUMENT, 256)))
    for name, code in REAL.items():
        if name.startswith("INSTRUMENTED_"):
            continue
        operands = (0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 31, 200, 256, 257, 700)
        if name == "BUILD_SLICE":
            operands = (2, 3)
        for operand in operands if code in has_operand else (None,):
            for jump in (False, True):
                row = RUNNING.spec(name)
                found = (row.jumping if jump else row.effect).of(operand or 0)
                assert found == dis.stack_effect(code, operand, jump=jump), (name, operand, jump)


def test_what_operands_number_is_the_running_pythons():
    lists = {
        OperandKind.COMPARE: opcode.cmp_op,
        OperandKind.BINARY: [symbol for _, symbol in opcode._nb_ops],
        OperandKind.INTRINSIC_1: getattr(opcode, "_intrinsic_1_descs", ()),
        OperandKind.INTRINSIC_2: getattr(opcode, "_intrinsic_2_descs", ()),
        OperandKind.SPECIAL: getattr(opcode, "_special_method_names", ()),
        OperandKind.COMMON: getattr(opcode, "_common_constants", ()),
    }
    for kind, items in lists.items():
        assert RUNNING.operators.get(kind, ()) == tuple(items)


@every_version
def test_every_jump_has_a_direction_free_name(version):
    table = opcode_table(version)
    jumps = {name for name, row in table.specs.items() if row.kind is OperandKind.JUMP}
    assert {table.canonical.get(name, name) for name in jumps} == set(table.directions)
    assert all(INVERSE[INVERSE[name]] == name for name in INVERSE)
    assert all(table.spec(name).kind is OperandKind.JUMP for name in table.directions)
    for name in table.directions:
        assert table.canonical.get(table.directions[name][0]) is not None


@every_version
def test_opcodes_that_are_read_as_others(version):
    table = opcode_table(version)
    for name, plain in table.canonical.items():
        assert table.spec(name).effect == table.spec(plain).effect
    for (name, operand), plain in table.fixed.items():
        row, kept = table.spec(name), table.spec(plain)
        assert (row.code, row.caches, operand) == (kept.code, kept.caches, kept.fixed)
        assert kept.kind is OperandKind.NONE
    assert set(table.followers) <= set(table.specs)
    assert set(table.followers.values()) <= set(table.specs)
    assert set(table.loop_end) <= set(table.specs)
    assert {"RETURN_VALUE", "RERAISE", "JUMP"} <= TERMINATORS & set(table.specs)


@every_version
def test_variables_are_known_to_the_analyses(version):
    table = opcode_table(version)
    slots = {
        name
        for name, row in table.specs.items()
        if row.kind in (OperandKind.LOCAL, OperandKind.CELL) and name not in SUPERINSTRUCTIONS
    }
    assert {table.canonical.get(name, name) for name in slots} <= READS_SLOT | WRITES_SLOT


@pytest.mark.parametrize("symbol", opcode.cmp_op)
def test_comparison_masks_are_the_compilers(symbol):
    code = compile(f"a {symbol} b", "here", "eval")
    (made,) = (i for i in dis.get_instructions(code) if i.opname == "COMPARE_OP")
    index = opcode.cmp_op.index(symbol)
    mask = RUNNING.compare_masks.get(symbol, 0)
    assert made.arg == index << RUNNING.spec("COMPARE_OP").shift | mask


def test_operators_are_those_of_the_language():
    for symbol in RUNNING.operators[OperandKind.BINARY]:
        statement = "a[b]" if symbol == "[]" else f"a {symbol} b"
        code = compile(statement, "here", "exec")
        (made,) = (i for i in dis.get_instructions(code) if i.opname == "BINARY_OP")
        assert made.argrepr == symbol


def test_an_opcode_that_no_version_has_is_refused():
    assert RUNNING.version == VERSION
    with pytest.raises(ValueError, match="no opcode"):
        RUNNING.spec("NO_SUCH_THING")
