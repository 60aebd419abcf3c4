"""Code that another Python has compiled: read, analysed and written by that Python's table.

What was recorded (see recorded/record.py) has the attributes of a code object, and says beside them
how that Python's own `dis` reads it.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from flambeau_capture.bytecode import assemble, blocks, decode, depths, liveness, reachable
from flambeau_capture.bytecode import max_depth as deepest
from flambeau_capture.bytecode.decode import exception_rows
from flambeau_capture.bytecode.flow import bound_before
from flambeau_capture.bytecode.opcodes import SUPERINSTRUCTIONS, opcode_table

VERSIONS = ((3, 14),)
FOLDER = Path(__file__).parent / "recorded"


@dataclass
class RecordedCode:
    """What is read of a code object, and made of one by `replace`."""

    co_code: bytes
    co_consts: tuple
    co_names: tuple
    co_varnames: tuple
    co_cellvars: tuple
    co_freevars: tuple
    co_exceptiontable: bytes
    co_argcount: int
    co_posonlyargcount: int
    co_kwonlyargcount: int
    co_flags: int
    co_stacksize: int
    co_name: str
    co_qualname: str
    co_firstlineno: int
    positions: list
    steps: list
    co_nlocals: int = 0
    co_linetable: bytes = b""

    def co_positions(self):
        for count, *place in self.positions:
            yield from [tuple(place)] * count

    def replace(self, **changed):
        units = len(changed["co_code"]) // 2
        return replace(self, **changed, positions=[[units, 1, 1, None, None]], steps=[])


def recorded(version):
    rows = json.loads((FOLDER / f"code_{version[0]}.{version[1]}.json").read_text())
    made = [None] * len(rows)
    for place in reversed(range(len(rows))):  # what is inside comes after what it is inside of
        row = dict(rows[place])
        consts = [
            made[one["code"]] if isinstance(one, dict) else eval(one, {"slice": slice})
            for one in row.pop("consts")
        ]
        raw = {name: bytes.fromhex(row.pop(name)) for name in ("code", "exceptiontable")}
        other = {name: row.pop(name) for name in ("positions", "steps")}
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
        fields = {f"co_{name}": value for name, value in (raw | plain).items()}
        made[place] = RecordedCode(co_consts=tuple(consts), **fields, **other)
    return made


CODES = [(version, code) for version in VERSIONS for code in recorded(version)]
every_code = pytest.mark.parametrize(
    "version, code", CODES, ids=[f"{v[0]}.{v[1]}-{c.co_qualname}" for v, c in CODES]
)


def plainly(table, opname, argrepr):
    """The instructions that one is read as, which its own Python shows with what it stands for."""
    if opname == "LOAD_SMALL_INT":
        return ["LOAD_CONST"]
    if opname == "BINARY_OP" and argrepr == "[]":
        return ["BINARY_SUBSCR"]
    if opname == "LOAD_COMMON_CONSTANT" and argrepr == "AssertionError":
        return ["LOAD_ASSERTION_ERROR"]
    if opname in SUPERINSTRUCTIONS:
        return [*SUPERINSTRUCTIONS[opname]]
    return [table.canonical.get(opname, opname)]


@every_code
def test_it_is_read_as_its_own_python_reads_it(version, code):
    table = opcode_table(version)
    body = decode(code, table)
    expected = [
        (offset, name, goal, argrepr)
        for offset, opname, goal, argrepr in code.steps
        for name in plainly(table, opname, argrepr)
    ]
    assert len(body.instructions) == len(expected)
    starts = {one.offset for one in body.instructions}
    for found, (offset, name, goal, argrepr) in zip(body.instructions, expected):
        assert found.offset == offset
        if found.opname == "LOAD_CLOSURE":
            assert name == "LOAD_FAST"
        else:
            assert found.opname == name
        if found.target is not None:
            assert goal in starts and found.target.offset == goal
        elif found.opname == "LOAD_CONST" and not isinstance(found.argval, RecordedCode):
            assert repr(found.argval) == argrepr
        elif found.opname in ("LOAD_FAST", "STORE_FAST", "LOAD_CLOSURE", "LOAD_DEREF"):
            assert found.argval in argrepr.split(", ")
        elif isinstance(found.argval, str):
            assert found.argval in argrepr


@every_code
def test_its_stack_is_as_deep_as_its_own_python_says(version, code):
    body = decode(code, opcode_table(version))
    assert 0 <= deepest(body) <= code.co_stacksize
    found = depths(body)
    for region in body.regions:
        assert found[region.handler] == region.depth + 1 + region.lasti


@every_code
def test_it_is_written_again_with_the_same_meaning(version, code):
    table = opcode_table(version)
    body = decode(code, table)
    again = decode(assemble(body), table)
    assert len(again.instructions) == len(body.instructions)
    index = {one: place for place, one in enumerate(body.instructions)}
    for place, (one, other) in enumerate(zip(body.instructions, again.instructions)):
        assert (one.opname, one.flags) == (other.opname, other.flags)
        assert repr(one.argval) == repr(other.argval)
        if one.target is not None:
            assert again.instructions.index(other.target) == index[one.target], place
    spans = [(r.start, r.end, r.handler, r.depth, r.lasti) for r in body.regions]
    wanted = sum((stop - start) // 2 for start, stop, *_ in exception_rows(code.co_exceptiontable))
    assert (wanted > 0) == bool(spans) and len(again.regions) <= len(spans)


@every_code
def test_it_can_be_analysed(version, code):
    body = decode(code, opcode_table(version))
    live = liveness(body)
    arguments = {*code.co_varnames, *code.co_freevars, *code.co_cellvars}
    assert live[body.instructions[0]] <= arguments
    bound = bound_before(body)
    assert set(bound) == reachable(body)
    inside = [one for block in blocks(body) for one in block.instructions]
    assert inside == body.instructions


def test_of_each_version_most_opcodes_are_recorded():
    for version in VERSIONS:
        table = opcode_table(version)
        met = {step[1] for code in recorded(version) for step in code.steps}
        named = {name for name in table.names.values() if not name.startswith("INSTRUMENTED_")}
        assert met <= named
        assert len(met) > 0.75 * len(named)
