"""Names that programs may use besides tensors.

What comes in: nothing. What goes out: `SCOPE`, the globals of a program's source.
Invariant: everything here is a user's code as it may be met in the wild; none of it knows what
compiles it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Clamped(torch.autograd.Function):
    """A derivative that is not the function's own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clamp(-0.5, 0.5)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * (x.abs() < 1)


class Weighted(torch.autograd.Function):
    """Two inputs, one of which gets a gradient only where it needs one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y)
        return x.sin() * y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, Any]:
        x, y = ctx.saved_tensors
        wide = grad * x.cos() * y
        first = wide.sum_to_size(x.shape) if ctx.needs_input_grad[0] else None
        second = (grad * x.sin()).sum_to_size(y.shape) if ctx.needs_input_grad[1] else None
        return first, second


def mixed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product in lower precision."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (a @ b).float()


def frozen(a: torch.Tensor) -> torch.Tensor:
    """A value made without grad."""
    with torch.no_grad():
        return a * 2


def unrecorded(a: torch.Tensor) -> torch.Tensor:
    """A view made without grad."""
    with torch.no_grad():
        return a.view(a.shape)


def modulus(a: torch.Tensor) -> torch.Tensor:
    """Lazy conjugation and negation on the way."""
    z = torch.complex(a.float(), a.float().sin())
    return (z * z.conj()).real + (z.conj().imag * z.conj().sin().real)


def normalized(a: torch.Tensor, stats: torch.Tensor) -> torch.Tensor:
    """Batch normalisation in training that writes running statistics."""
    if stats.dim() != 1 or stats.shape[0] != a.shape[1] or stats.requires_grad:
        raise RuntimeError("not running statistics")
    return F.batch_norm(a, stats, stats.abs() + 1, training=True)


def halved() -> Any:
    """Saved tensors are kept at half their value, and doubled again."""
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t * 0.5, lambda t: t * 2.0)


@torch.library.custom_op("flambeau_aot_tests::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    """An operator of the user's with a derivative of the user's."""
    return x * x * x


@cube.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


def _cube_backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    return grad * 3 * x * x


cube.register_autograd(_cube_backward, setup_context=_saved)


@torch.library.custom_op("flambeau_aot_tests::halve_", mutates_args=("x",))
def halve_(x: torch.Tensor) -> None:
    """An operator of the user's that writes to its argument."""
    x.mul_(0.5)


SCOPE: dict[str, Any] = {
    "torch": torch,
    "F": F,
    "checkpoint": checkpoint,
    "Clamped": Clamped,
    "Weighted": Weighted,
    "mixed": mixed,
    "modulus": modulus,
    "frozen": frozen,
    "unrecorded": unrecorded,
    "normalized": normalized,
    "halved": halved,
}
