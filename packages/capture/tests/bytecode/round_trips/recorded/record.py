"""Records the code objects of a program, on the Python that compiles it.

`python3.14 record.py program_3.14.txt > code_3.14.json`; it needs nothing but that Python. Of each
code object: its fields, its positions (of how many units, and where), and its instructions as that
Python's `dis` reads them.
"""

from __future__ import annotations

import dis
import json
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import CodeType
from typing import Any

FIELDS = (
    "argcount", "posonlyargcount", "kwonlyargcount", "flags", "stacksize", "name", "qualname",
    "firstlineno", "names", "varnames", "cellvars", "freevars",
)  # fmt: skip


def every(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from every(constant)


def recorded(code: CodeType, codes: list[CodeType]) -> dict[str, Any]:
    steps = [
        [i.offset, i.opname, i.argval if i.opcode in dis.hasjump else None, i.argrepr or str(i.arg)]
        for i in dis.get_instructions(code)
        if i.opname not in ("CACHE", "EXTENDED_ARG")
    ]
    constants = [
        {"code": codes.index(one)} if isinstance(one, CodeType) else repr(one)
        for one in code.co_consts
    ]
    return {
        **{name: getattr(code, f"co_{name}") for name in FIELDS},
        "code": code.co_code.hex(),
        "exceptiontable": code.co_exceptiontable.hex(),
        "consts": constants,
        "positions": [[len([*run]), *place] for place, run in groupby(code.co_positions())],
        "steps": steps,
    }


if __name__ == "__main__":
    codes = [*every(compile(Path(sys.argv[1]).read_text(), "<recorded>", "exec"))]
    print(json.dumps([recorded(code, codes) for code in codes], separators=(",", ":")))
