"""The tables hold for the running CPython."""

import dis
import opcode

import pytest
from flambeau_capture.bytecode.opcodes import (
    CANONICAL,
    COMPARE_MASKS,
    COMPARE_OPERATORS,
    DIRECTIONS,
    FOLLOWERS,
    INVERSE,
    OPERATORS,
    READS_SLOT,
    SPECS,
    SUPERINSTRUCTIONS,
    TERMINATORS,
    VERSION,
    WRITES_SLOT,
    OperandKind,
    spec,
)


def test_every_real_opcode_has_a_row():
    real = {name for name, code in opcode.opmap.items() if code <= 255}
    assert real <= set(SPECS)
    for name in real:
        assert SPECS[name].code == opcode.opmap[name]


def test_every_jump_has_a_direction_free_name():
    jumps = {opcode.opname[code] for code in opcode.hasjrel if code <= 255}
    assert jumps == set(CANONICAL)
    assert set(CANONICAL.values()) <= set(DIRECTIONS)
    assert all(INVERSE[INVERSE[name]] == name for name in INVERSE)
    assert all(spec(name).kind is OperandKind.JUMP for name in DIRECTIONS)


@pytest.mark.parametrize("symbol", COMPARE_OPERATORS)
def test_comparison_masks_are_the_compilers(symbol):
    code = compile(f"a {symbol} b", "here", "eval")
    (made,) = (i for i in dis.get_instructions(code) if i.opname == "COMPARE_OP")
    index = COMPARE_OPERATORS.index(symbol)
    assert made.arg == index << spec("COMPARE_OP").shift | COMPARE_MASKS[symbol]


def test_operators_are_those_of_the_language():
    for symbol in OPERATORS[OperandKind.BINARY]:
        statement = f"a {symbol} b"
        code = compile(statement, "here", "exec")
        (made,) = (i for i in dis.get_instructions(code) if i.opname == "BINARY_OP")
        assert made.argrepr == symbol


def test_variables_are_known_to_the_analyses():
    slots = {
        name for name, row in SPECS.items() if row.kind in (OperandKind.LOCAL, OperandKind.CELL)
    }
    plain = {name for name in slots if name not in SUPERINSTRUCTIONS and "INSTRUMENTED" not in name}
    assert plain <= READS_SLOT | WRITES_SLOT


def test_the_sets_name_opcodes_of_some_version():
    assert {"RETURN_VALUE", "RERAISE", "JUMP"} <= TERMINATORS
    assert set(FOLLOWERS) <= set(SPECS)
    assert ("RETURN_CONST" in SPECS) == (VERSION >= (3, 12))
    with pytest.raises(ValueError, match="no opcode"):
        spec("NO_SUCH_THING")
