"""One thing to measure: a function, its inputs, and what to differentiate.

In: a device and whether it is training. Out: a `Workload`. Invariant: building it twice with the
same seed gives equal weights and inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Outputs = Sequence[torch.Tensor]


@dataclass
class Workload:
    """`fn(*inputs)` returns tensors; in training the first one is a loss to run backward from.

    `moved` is the number of bytes that a perfect kernel reads and writes, for single kernels.
    """

    fn: Callable[..., Any]
    inputs: tuple[Any, ...]
    module: torch.nn.Module | None = None
    training: bool = False
    moved: int | None = None
    leaves: tuple[int, ...] = ()
    """Positions of inputs that gradients are taken of besides the module's parameters."""

    exact: torch.dtype = torch.float64
    """What the reference is computed in: float32 where twice as much memory is too much."""

    random: bool = False
    """Each system draws numbers of its own: the results are not compared."""

    def parameters(self) -> list[torch.Tensor]:
        """What gradients are taken of."""
        return [self.inputs[position] for position in self.leaves] + self._weights

    @functools.cached_property
    def _weights(self) -> list[torch.Tensor]:
        """The module's parameters, looked up once, as an optimizer does."""
        parameters = () if self.module is None else self.module.parameters()
        return [each for each in parameters if each.requires_grad]

    def step(self, fn: Callable[..., Any]) -> Outputs:
        """Run `fn` (the workload's function, compiled or not) once, with backward in training."""
        if not self.training:
            with torch.no_grad():
                return flat(fn(*self.inputs))
        self.clear()
        outputs = flat(fn(*self.inputs))
        outputs[0].backward()
        return outputs

    def clear(self) -> None:
        """Let the gradients go, whose memory may go back to the system: a part of the step of
        whoever made them, not of the next one."""
        for parameter in self.parameters() if self.training else ():
            parameter.grad = None

    def observed(self, fn: Callable[..., Any]) -> list[torch.Tensor]:
        """Everything a step computes: outputs, and gradients in training."""
        outputs = [t.detach().clone() for t in self.step(fn)]
        if self.training:
            outputs += [p.grad.clone() for p in self.parameters() if p.grad is not None]
        return outputs


def flat(result: Any) -> list[torch.Tensor]:
    """The floating-point tensors of a result, whatever holds them."""
    if isinstance(result, torch.Tensor):
        return [result] if result.is_floating_point() else []
    if isinstance(result, dict):
        return [t for value in result.values() for t in flat(value)]
    if isinstance(result, list | tuple):
        return [t for value in result for t in flat(value)]
    return []


def widened(value: Any, dtype: torch.dtype) -> Any:
    """The value, a floating-point tensor in `dtype`."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().to(dtype).requires_grad_(value.requires_grad)
    return value
