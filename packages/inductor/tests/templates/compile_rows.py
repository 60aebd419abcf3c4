"""Compile the kernels that add rows to a table, with no GPU, and print what they need as JSON.

Run as a program, in a process where Triton's interpreter is off.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from flambeau_inductor.codegen.triton.build import compile_offline
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.templates.scatter_add import find_rows

from tests.templates.compile_offline import registers
from tests.templates.test_scatter_add import program_of


def main(capabilities: list[int]) -> None:
    """Compile all for all capabilities."""
    report = []
    positions = torch.empty(65536, dtype=torch.int64, device="meta")
    values = torch.empty(65536, 4096, dtype=torch.bfloat16, device="meta")
    (found,) = find_rows(program_of(50000, positions, values, torch.bfloat16, None))
    with tempfile.TemporaryDirectory() as folder:
        for name, kernel in found.kernels().items():
            path = Path(folder) / f"{name}.py"
            path.write_text(module_text([kernel.source]))
            for capability in capabilities:
                compiled = compile_offline(path, kernel, capability)
                cubin, ptx = compiled.asm["cubin"], compiled.asm["ptx"]
                report.append(
                    {
                        "kernel": name,
                        "capability": capability,
                        "registers": registers(name, cubin, Path(folder)),
                        "wide": ptx.count(".v4.b32"),
                        "asserts": ptx.count("__assertfail"),
                    }
                )
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]])
