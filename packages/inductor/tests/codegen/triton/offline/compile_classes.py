"""Compile one kernel of every class to a cubin, with no GPU, and print what it needs as JSON.

Run as a program, in a process where Triton's interpreter is off.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
import triton
from flambeau_inductor.codegen.triton.build import compile_offline
from flambeau_inductor.codegen.triton.kernel import generate
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.codegen.triton.pointwise import FLOATING
from flambeau_inductor.indexing import SizeDecisions, Symbol
from flambeau_inductor.ir.loops import Load, Loop, Store
from tests.codegen import loops

BF16, F32 = torch.bfloat16, torch.float32
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
WHOLE = os.environ.get("FLAMBEAU_SWEEPS") == "1"
"""Every class for every capability, not for one each."""


def classes() -> list[Loop]:
    """One loop a class."""
    chain = [op for op in FLOATING if "{1}" not in FLOATING[op] and not op.startswith("is")]
    body: list[object] = [Load("in0", loops.x(), F32)]
    body += [loops.Point(op, (i,), F32) for i, op in enumerate(chain)]
    body.append(Store("out", loops.x(), len(chain)))
    # of many elements a thread the compiler has as many copies of every function
    every = Loop("every_function", loops.loop("", (1024,), (), []).x, (), tuple(body))  # type: ignore[arg-type]
    decisions: SizeDecisions = {}
    opened = (("rows", 1000), ("columns", 2048), ("long", 16384))
    rows, columns, long = (cast(int, Symbol(name, n, decisions)) for name, n in opened)
    return [
        loops.softmax(8192, 4096, BF16),
        loops.softmax(8192, 100, BF16),
        loops.softmax(64, 60000, BF16),
        loops.softmax(64, 32000, BF16),
        loops.layernorm(4096, 1024),
        loops.layernorm(64, 40000),
        loops.norm_backward(264, 128, 4096, BF16),
        replace(loops.norm_backward(264, 128, 4096, BF16), points=264 * 128 - 50),
        loops.norm_backward(132, 4096, 64, BF16),
        replace(loops.norm_backward(132, 4096, 64, BF16), points=132 * 4096 - 50),
        loops.norm_backward(132, 512, 700),
        loops.norm_backward(132, 64, 8192),
        loops.sums_down(8, 512, 32768, BF16),
        loops.sums_down(8, 512, 32768),
        loops.reduction("argmax", 512, 1000, F32, torch.int64),
        loops.reduction("max", 512, 1000, F32, F32),
        loops.reduction("all", 512, 1000, torch.bool, torch.bool),
        loops.column_sum(4096, 512),
        loops.transpose_add(4096, 4096),
        loops.embedding(1000, 768),
        loops.checked_embedding(1000, 768, 50),
        loops.pad(1000, 2, 3),
        loops.total(100000),
        loops.fill(1000),
        loops.scatter_add(1000),
        loops.pointwise("pow", 2, 4096, F32, F32),
        loops.softmax(rows, columns, BF16),
        loops.softmax(rows, long, BF16),
        loops.column_sum(columns, rows),
        loops.transpose_add(columns, rows),
        loops.embedding(rows, 768),
        every,
        loops.masked_corners(4, 4096),
        loops.masked_corners(64, 4),
        *(loops.sums_of_many(12288, 1568, many) for many in (1, 4, 8, 12, 16)),
        *(loops.sums_of_many(512, 20480, many, down=False) for many in (1, 4, 8, 12, 16)),
    ]


def dtypes_of(loop: Loop) -> dict[str, torch.dtype]:
    """Dtypes of a hand-made loop's buffers, read off its instructions."""
    found: dict[str, torch.dtype] = {}
    for instr in loop.body:
        if isinstance(instr, Load):
            found[instr.buffer] = instr.dtype
        elif isinstance(instr, Store):
            found[instr.buffer] = loop.body[instr.value].dtype  # type: ignore[union-attr]
    return found


def local_bytes(ptx: str) -> int:
    """Bytes of local memory that a thread sets aside, summed over functions."""
    return sum(map(int, re.findall(r"^\s*\.local .*__local_depot\d+\[(\d+)\]", ptx, re.M)))


def stack_bytes(cubin: bytes) -> int:
    """Bytes of local memory of a thread as the assembler set them aside: registers that spill."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        dump = [str(CUOBJDUMP), "--dump-resource-usage", file.name]
        said = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    return sum(map(int, re.findall(r"STACK:(\d+)", said)))


def main(capabilities: list[int]) -> None:
    """Compile all classes for all capabilities."""
    report = []
    with tempfile.TemporaryDirectory() as folder:
        for i, loop in enumerate(classes()):
            dtypes = dtypes_of(loop)
            kernel = generate(loop, dtypes, dict.fromkeys(dtypes, 1 << 20))
            path = Path(folder) / f"class{i}.py"
            path.write_text(module_text([kernel.source]))
            for capability in capabilities if WHOLE else capabilities[i % 2 :: 2]:
                compiled = compile_offline(path, kernel, capability)
                report.append(
                    {
                        "kernel": f"{i}:{loop.name}",
                        "capability": capability,
                        "cubin": len(compiled.asm["cubin"]),
                        "shared": compiled.metadata.shared,
                        "wide_loads": compiled.asm["ptx"].count(".v4.b32"),
                        "asserts": compiled.asm["ptx"].count("__assertfail"),
                        "stack": stack_bytes(compiled.asm["cubin"]),
                        "local": local_bytes(compiled.asm["ptx"]),
                    }
                )
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]])
