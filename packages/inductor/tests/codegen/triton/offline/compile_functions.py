"""Compile device functions, those named or all, offline and print, as JSON, which did.

Run as a program, in a process where Triton's interpreter is off.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from flambeau_inductor.codegen import device_functions
from flambeau_inductor.codegen.triton.build import compile_offline
from flambeau_inductor.codegen.triton.kernel import generate
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.ir.loops import Const, Instr, Load, Loop, Point, Store
from flambeau_inductor.ir.verify import RESULTS
from tests.codegen import loops

TOGETHER = 6


def main(capability: int, names: list[str]) -> None:
    """Compile kernels of a few functions of float32, or of int32, each."""
    groups: dict[tuple[int, torch.dtype], list[str]] = {}
    for name in names or device_functions.names():
        dtype = torch.float32 if device_functions.takes(name, torch.float32) else torch.int32
        arity = len(device_functions.function(name).args.args)
        groups.setdefault((arity, dtype), []).append(name)
    done: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for (arity, dtype), group in groups.items():
            for start in range(0, len(group), TOGETHER):
                some = group[start : start + TOGETHER]
                body: list[Instr] = [Load(f"in{i}", loops.x(), dtype) for i in range(arity)]
                dtypes = {f"in{i}": dtype for i in range(arity)}
                for position, name in enumerate(some):
                    result = RESULTS.get(name, dtype)
                    body.append(Point(name, tuple(range(arity)), result))
                    # a block of one beside a block: what a loop carries must not change its shape
                    constant = len(body)
                    body.append(Const(2, dtype))
                    if arity == 2:
                        body.append(Point(name, (constant, 0), result))
                        body.append(Store(f"other{position}", loops.x(), constant + 1))
                        dtypes[f"other{position}"] = result
                    body.append(Store(f"out{position}", loops.x(), constant - 1))
                    dtypes[f"out{position}"] = result
                loop = Loop(f"k_{some[0]}", loops.loop("k", (1024,), (), body).x, (), tuple(body))
                kernel = generate(loop, dtypes, dict.fromkeys(dtypes, 1 << 20))
                path = Path(folder) / f"{loop.name}.py"
                path.write_text(module_text([kernel.source]))
                if compile_offline(path, kernel, capability).asm["cubin"]:
                    done += some
    json.dump([name for name in names or done if name in done], sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
