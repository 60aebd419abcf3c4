"""Coverage of opcodes by Python version.

In: the registry of opcode handlers. Out: `table`, and `page`, its form in the documentation
(`python -m flambeau_capture.interp.opcodes.coverage docs/opcodes.md` writes it). Invariant: an
opcode of a supported version is in the table, whether there is a handler for it or not.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from flambeau_capture.bytecode.opcodes import (
    SUPERINSTRUCTIONS,
    SUPPORTED,
    OpcodeTable,
    opcode_table,
)
from flambeau_capture.interp.opcodes.registry import REGISTERED

ABSENT, INTERPRETED, SPLIT, NEVER, BREAKS = "", "yes", "split", "not in code", "breaks"
_TABLES = tuple(map(opcode_table, SUPPORTED))
_NEVER = frozenset(
    {"CACHE", "EXTENDED_ARG", "RESERVED", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "EXIT_INIT_CHECK"}
)


@dataclass(frozen=True)
class Row:
    """An opcode's state in each version, in the order of `SUPPORTED`, and a remark."""

    opname: str
    states: tuple[str, ...]
    remark: str


def table() -> list[Row]:
    """Every opcode of the supported versions, by name."""
    rows = []
    known = {name for each in _TABLES for name in each.names.values()}
    for name in sorted(known):
        states = tuple(_state(name, each) for each in _TABLES)
        handled = {each.canonical.get(name, name) for each in _TABLES}
        rows_of = [row for one in handled for row in REGISTERED.get(one, [])]
        remarks = {row.breaks for row in rows_of if row.breaks}
        rows.append(Row(name, states, "; ".join(sorted(remarks))))
    return rows


def _state(name: str, opcodes: OpcodeTable) -> str:
    if name not in opcodes.names.values():
        return ABSENT
    if name in SUPERINSTRUCTIONS:
        return SPLIT
    if name in _NEVER or name.startswith("INSTRUMENTED_"):
        return NEVER
    for row in REGISTERED.get(opcodes.canonical.get(name, name), []):
        if row.since <= opcodes.version <= row.until:
            return BREAKS if row.breaks else INTERPRETED
    return BREAKS


def page() -> str:
    """The table in Markdown."""
    versions = [".".join(map(str, version)) for version in SUPPORTED]
    lines = [
        "# Opcodes",
        "",
        "What capture does with each instruction of CPython. *yes*: interpreted; *breaks*: the",
        "graph ends there, the instruction runs in Python, and capture goes on after it; *split*:",
        "read as the two instructions it stands for; *not in code*: CPython's own, never in the",
        "code of a function as capture reads it. An instruction that is not in this table (of a",
        "newer Python) leaves its function to Python, with one warning.",
        "",
        f"| opcode | {' | '.join(versions)} | |",
        f"| --- | {' | '.join('---' for _ in versions)} | --- |",
    ]
    lines += [f"| `{row.opname}` | {' | '.join(row.states)} | {row.remark} |" for row in table()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
