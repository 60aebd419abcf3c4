"""A branch that depends on data: three graphs, the bytecode before and after, the guards.

In: one small function. Out: its graphs as tables, bytecode and guards as text, and checks.
Invariant: the function is what a user would write; nothing in it knows of Flambeau.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from checks import Part
from torch import Tensor, fx

import flambeau

#: what the listing must speak of, besides the graphs as tables
SHOWN = (
    "__compiled_fn_0", "__resume_at_", "ORIGINAL BYTECODE", "MODIFIED BYTECODE", "TENSOR_MATCH",
)  # fmt: skip


def toy_example(a: Tensor, b: Tensor) -> Tensor:
    """Breaks at the `if`: which side runs is known only when the tensor is."""
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def run() -> tuple[Part, str]:
    """Call it until both sides were met; the part, and what capture printed on the way."""
    part = Part("A branch that depends on data")
    printed: list[str] = []
    graphs: list[fx.GraphModule] = []

    def my_compiler(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
        del example_inputs
        graphs.append(gm)
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
    part.check("three graphs", f"{len(graphs)}", len(graphs) == 3)
    for name in (
        "__compiled_fn_0",
        "__resume_at_",
        "ORIGINAL BYTECODE",
        "MODIFIED BYTECODE",
        "TENSOR_MATCH",
    ):
        part.check(f"the listing shows {name}", "yes" if name in text else "no", name in text)
    return part, text
