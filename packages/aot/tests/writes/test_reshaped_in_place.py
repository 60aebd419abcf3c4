"""Tensors given another shape in place: views of them, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch.utils.checkpoint import checkpoint


def strided(x: torch.Tensor) -> Any:
    x.as_strided_((2, 2), (1, 2))
    return x.numel(), x.view(-1, 1) if x.is_contiguous() else x.reshape(-1), x.mean(), x


def strided_inside(x: torch.Tensor) -> Any:
    y = (x * 2).contiguous()
    part = y[1:]
    y.as_strided_((4,), (1,))
    return y.view(2, 2), part.sum(), y.flip(0), y.numel()


def strided_and_written(x: torch.Tensor) -> Any:
    y = (x * 2).contiguous()
    y.as_strided_((2,), (3,))
    y.mul_(3)
    return y.sin(), y.numel()


def strided_twice(x: torch.Tensor) -> Any:
    y = x.clone(memory_format=torch.contiguous_format)
    y.as_strided_((4,), (1,))
    y.as_strided_((2, 2), (2, 1), 1)
    return y.t() + 1, y.numel(), y.is_contiguous()


PROGRAMS: list[Callable[[torch.Tensor], Any]] = [
    strided,
    strided_inside,
    strided_and_written,
    strided_twice,
]
MADE: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.arange(9.0).view(3, 3),
    "transposed": lambda: torch.arange(9.0).view(3, 3).t(),
    "with an offset": lambda: torch.arange(12.0)[3:].view(3, 3),
}


@pytest.mark.parametrize("kind", list(MADE))
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_a_place_in_memory_in_place(fn: Callable[..., Any], kind: str) -> None:
    one, other = MADE[kind](), MADE[kind]()
    expected, given = fn(one), aot.aot_function(fn, aot.run_as_is)(other)
    torch.testing.assert_close(given, expected)
    assert (other.shape, other.stride(), other._version) == (one.shape, one.stride(), one._version)


def transposed(w: torch.Tensor) -> Any:
    y = torch.arange(9.0).view(3, 3) * 1
    part = y[1:]
    y.t_()
    y.mul_(w)
    return part * 1


def part_of_a_transposed(w: torch.Tensor) -> Any:
    y = torch.arange(9.0).view(3, 3) * 1
    part = y[1:]
    y.t_()
    part.mul_(w[1:])
    return y * 1


def part_transposed(w: torch.Tensor) -> Any:
    y = torch.arange(9.0).view(3, 3) * 1
    part = y[:, :3]
    part.t_()
    part.mul_(w)
    return y * 1


def by_a_list(w: torch.Tensor) -> Any:
    y = torch.arange(9.0).view(3, 3) * 1
    part = y[1:]
    y.t_()
    torch._foreach_mul_([y], [w])
    return part * 1


@pytest.mark.parametrize(
    "fn", [transposed, part_of_a_transposed, part_transposed, by_a_list], ids=lambda f: f.__name__
)
def test_a_view_taken_before_is_not_differentiated(fn: Callable[..., Any]) -> None:
    """Autograd would take it of the new shape: where that is as large, a gradient was wrong."""
    w = torch.arange(1.0, 10.0).view(3, 3).requires_grad_()
    with pytest.raises(aot.Unsupported, match="given another shape in place"):
        aot.aot_function(fn, aot.run_as_is)(w)


def test_a_view_taken_before_may_be_read_where_nothing_is_differentiated() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x * 1
        part = y[1:]
        y.t_()
        y.mul_(x)
        return part * 2, y

    x = torch.arange(9.0).view(3, 3)
    torch.testing.assert_close(aot.aot_function(fn, aot.run_as_is)(x), fn(x))


def test_an_unseen_write_to_what_a_checkpoint_reads_again_is_refused() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = checkpoint(lambda v: (v.sin() * x).tanh(), x, use_reentrant=False)
        x.data.mul_(2)
        return y

    with pytest.raises(aot.Unsupported, match="a write through `data`"):
        aot.aot_function(fn, aot.run_as_is)(torch.ones(3, requires_grad=True) * 2)
