"""Values that readers compute again where that moves less: fewer bytes, the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from flambeau_inductor.ir.program import RunLoop
from flambeau_inductor.schedule import Limits

from tests.evaluated import Outcome, against_eager

ALWAYS, NEVER = Limits(recompute_on=("cpu",)), Limits(recompute_on=())


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def buffers(outcome: Outcome) -> int:
    """How many values have memory beside inputs and results."""
    program = outcome.program
    touched = {
        instr.buffer
        for step in program.steps
        if isinstance(step, RunLoop)
        for instr in step.loop.body
        if hasattr(instr, "buffer")
    }
    outside = {each.name for each in program.inputs}
    outside |= {getattr(each, "buffer", None) for each in program.outputs}
    return len(touched - outside)


def activation(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A gelu that a product reads, and its slope."""
    wide = x.float()
    part = torch.erf(wide * 0.7) + 1
    made = (wide * part).bfloat16() @ w
    return made, ((made.float() @ w.float().t()) * part * wide).sum(0)


def test_a_function_of_what_readers_read_has_no_memory() -> None:
    inputs = r(64, 32).bfloat16(), r(32, 16).bfloat16()
    always = against_eager(activation, *inputs, tolerance=0.1, limits=ALWAYS)
    never = against_eager(activation, *inputs, tolerance=0.1, limits=NEVER)
    assert buffers(always) == buffers(never) - 1


def kept(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What is returned has memory in any case."""
    wide = torch.exp(x)
    return wide, wide.sum(0) + wide.sum(1)


def of_many(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """To compute this again would read more than it does to read it."""
    wide = torch.exp(x) + torch.exp(y) + torch.exp(z) + torch.exp(v)
    return torch.tanh(wide).sum(0) + torch.tanh(wide).sum(1)


def of_a_sum(x: torch.Tensor) -> torch.Tensor:
    """What it is made of is in no memory itself."""
    rows = torch.exp(x) / torch.exp(x).sum(1, keepdim=True)
    return rows.sum(0) + torch.tanh(rows).sum(1)


@pytest.mark.parametrize(
    ("function", "inputs", "same"),
    [(kept, (r(8, 8),), True), (of_many, (r(8, 8),) * 4, True), (of_a_sum, (r(8, 8),), None)],
)
def test_other_values_keep_theirs(
    function: Callable[..., object], inputs: tuple[torch.Tensor, ...], same: bool | None
) -> None:
    always = against_eager(function, *inputs, tolerance=1e-4, limits=ALWAYS)
    never = against_eager(function, *inputs, tolerance=1e-4, limits=NEVER)
    assert buffers(always) <= buffers(never)
    if same is not None:
        assert (buffers(always) == buffers(never)) == same
