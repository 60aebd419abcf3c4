"""Compile exact operators offline and print, as JSON, the float instructions of each.

Run as a program, in a process where Triton's interpreter is off.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import tempfile
from pathlib import Path

import torch
from flambeau_inductor.codegen.triton.build import compile_offline
from flambeau_inductor.codegen.triton.kernel import generate
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.ir.loops import Const, Load, Loop, Point, Store
from flambeau_prims._op import PRIMS
from flambeau_prims.ops.pointwise import BINARY, UNARY
from tests.codegen import loops

FLOATS = (torch.float32, torch.float64, torch.float16)
FLOAT_INSTRUCTION = re.compile(r"^\s+(?:@%?\w+ )?(\w+(?:\.\w+)*\.(?:f16|f32|f64|bf16)\S*)", re.M)


def exact(dtype: torch.dtype) -> list[Loop]:
    """One loop for each exact primitive of floats, and one of a product that is taken away."""
    made = []
    for number, (name, function) in enumerate({**UNARY, **BINARY}.items()):
        if name not in OF_OTHERS and (dtype != torch.float32 or number % STEP):
            continue
        if dtype in function.kind and PRIMS[name].is_exact(dtype) and name not in UNCOMPILED:
            arity = 1 if name in UNARY else 2
            result = function.result or dtype
            made.append(renamed(loops.pointwise(name, arity, 1024, dtype, result), name))
    load, other = (Load(f"in{i}", loops.x(), dtype) for i in range(2))
    product = Point("mul", (0, 1), dtype)
    body = (load, other, product, Point("sub", (2, 1), dtype), Store("out", loops.x(), 3))
    made.append(Loop("product_and_difference", made[0].x, (), body))
    return made


def conversions(dtype: torch.dtype) -> list[Loop]:
    """Infinities of `dtype`, either by a mask, as each dtype of integers: a compiler that may take
    the conversion of a constant for undefined would leave nothing of it."""
    made = []
    for result in INTEGERS:
        body = (
            Load("in0", loops.x(), torch.bool),
            Const(math.inf, dtype),
            Const(-math.inf, dtype),
            Point("where", (0, 1, 2), dtype),
            Point("cast", (3,), result),
            Store("out", loops.x(), 4),
        )
        x = loops.pointwise("neg", 1, 1024, dtype, dtype).x
        made.append(Loop(f"k_{str(result)[6:]}_of_infinities", x, (), body))
    return made


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
OF_OTHERS = {"div", "reciprocal", "sqrt", "trunc", "round", "floor_div", "add"}
"""What is compiled of float64 and half precision too."""
STEP = 1 if os.environ.get("FLAMBEAU_SWEEPS") == "1" else 3
"""Of how many others of float32 one is compiled."""
UNCOMPILED = {"signbit", "nextafter"}
"""The library's, or steps of integers."""


def renamed(loop: Loop, name: str) -> Loop:
    return Loop(f"k_{name}", loop.x, loop.r, loop.body)


def main(capability: int) -> None:
    """Compile each loop for one capability."""
    report: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for dtype in FLOATS:
            for loop in exact(dtype) + conversions(dtype):
                dtypes = {i.buffer: i.dtype for i in loop.body if isinstance(i, Load)}
                store = loop.body[-1]
                assert isinstance(store, Store)
                dtypes[store.buffer] = loop.body[store.value].dtype  # type: ignore[union-attr]
                kernel = generate(loop, dtypes, dict.fromkeys(dtypes, 1 << 20))
                path = Path(folder) / f"{loop.name}_{str(dtype)[6:]}.py"
                path.write_text(module_text([kernel.source]))
                text = compile_offline(path, kernel, capability).asm["ptx"]
                name = f"{loop.name.removeprefix('k_')} {str(dtype)[6:]}"
                report[name] = sorted(set(FLOAT_INSTRUCTION.findall(text)))
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]))
