"""Compile every function with constants for operands, with no GPU, and print what was refused.

Run as a program, in a process where Triton's interpreter is off.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from flambeau_inductor.codegen.triton.build import compile_offline
from flambeau_inductor.codegen.triton.kernel import generate
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.codegen.triton.pointwise import (
    ANY_DTYPE,
    BOOLEAN,
    FLOATING,
    INTEGER,
    supports,
)
from flambeau_inductor.ir.loops import Const, Load, Loop, Point, Store
from tests.codegen import loops
from tests.codegen.operations import BOOL_RESULT, arity

DTYPES = (torch.float32, torch.int16, torch.bool, torch.float64, torch.float16, torch.uint8)
if os.environ.get("FLAMBEAU_SWEEPS") != "1":
    DTYPES = DTYPES[:3]  # a kind each
ALL = FLOATING | INTEGER | BOOLEAN | ANY_DTYPE


def kernels(dtype: torch.dtype) -> Iterator[tuple[str, Loop]]:
    """A loop for each operand that is a constant: of all functions, one after the other."""
    for constant in range(2):
        body: list[object] = [Load("in0", loops.x(), dtype), Const(1, dtype)]
        kept = 0
        for name, spelling in ALL.items():
            if arity(spelling) != 2 or not supports(name, dtype):
                continue
            args = (1, kept) if constant == 0 else (kept, 1)
            body.append(Point(name, args, torch.bool if name in BOOL_RESULT else dtype))
            if name not in BOOL_RESULT:
                kept = len(body) - 1
        body.append(Store("out", loops.x(), kept))
        axes = loops.loop("", (4096,), (), []).x
        yield f"{constant}", Loop("functions", axes, (), tuple(body))  # type: ignore[arg-type]


def main(capability: int) -> None:
    """Compile each loop for one capability."""
    refused: dict[str, str] = {}
    functions = 0
    with tempfile.TemporaryDirectory() as folder:
        for dtype in DTYPES:
            for name, loop in kernels(dtype):
                functions += sum(isinstance(each, Point) for each in loop.body)
                buffers = {"in0": dtype, "out": dtype}
                kernel = generate(loop, buffers, dict.fromkeys(buffers, 1 << 20))
                path = Path(folder) / f"{str(dtype)[6:]}_{name}.py"
                path.write_text(module_text([kernel.source]))
                try:
                    compile_offline(path, kernel, capability)
                except Exception as error:  # what Triton says is what the report is of
                    refused[path.stem] = str(error)[-600:]
    json.dump({"functions": functions, "refused": refused}, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]))
