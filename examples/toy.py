"""A branch that depends on data: three graphs, the bytecode before and after, the guards.

In: one small function. Out: what capture made of it, as text, and checks.
Invariant: the function is what a user would write; nothing in it knows of Flambeau.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any

import torch
from checks import Part
from torch import Tensor, fx

import flambeau


def toy_example(a: Tensor, b: Tensor) -> Tensor:
    """Breaks at the `if`: which side runs is known only when the tensor is."""
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def run() -> tuple[Part, str]:
    """Call it until both sides were met; the part, and all that was printed on the way."""
    part = Part("A branch that depends on data")
    printed: list[str] = []
    tables: list[str] = []

    def my_compiler(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
        del example_inputs
        buffer = io.StringIO()
        with redirect_stdout(buffer):
            gm.graph.print_tabular()
        tables.append(buffer.getvalue())
        return gm.forward

    compiled = flambeau.compile(
        toy_example,
        backend=my_compiler,
        options={"capture.debug": True, "capture.out": printed.append},
    )
    torch.manual_seed(0)
    pairs = [(torch.randn(10), torch.randn(10)) for _ in range(100)]
    right = sum(torch.equal(compiled(a, b), toy_example(a, b)) for a, b in pairs)
    text = "\n".join(printed)
    report = flambeau.report(compiled)
    part.figure("graph breaks", "\n".join(report.breaks) or "none")
    part.figure("guards", str(report.guards))
    part.check("100 results are eager's", f"{right}", right == len(pairs))
    part.check("three graphs", f"{len(tables)}", len(tables) == 3)
    for name in ("__compiled_fn_0", "__resume_at_", "ORIGINAL BYTECODE", "MODIFIED BYTECODE"):
        part.check(f"the listing shows {name}", "yes" if name in text else "no", name in text)
    part.check("the listing shows its guards", "TENSOR_MATCH", "TENSOR_MATCH" in text)
    return part, text
