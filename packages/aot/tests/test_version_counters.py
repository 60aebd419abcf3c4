"""Version counters of written inputs: raised by as much as in eager."""

from __future__ import annotations

from collections.abc import Callable

import flambeau_aot as aot
import pytest
import torch
from torch import Tensor


class Tripled(torch.autograd.Function):
    """Writes to its argument."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, g):
        return g * 3


def item(x: Tensor) -> None:
    x[0] = 7


def view(x: Tensor) -> None:
    x[1:].mul_(2)


def lists(x: Tensor) -> None:
    torch._foreach_add_([x], 1.0)


def out(x: Tensor) -> None:
    torch.add(x.detach(), 1, out=x)


WRITES: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda x: x.add_(1),
    "copy_": lambda x: x.copy_(torch.ones(3)),
    "zero_": lambda x: x.zero_(),
    "item": item,
    "view": view,
    "lists": lists,
    "out": out,
    "function": Tripled.apply,
    "scatter": lambda x: x.index_fill_(0, torch.tensor([1]), 2.0),
    "nothing": lambda x: x * 2,
}

GIVEN: dict[str, Callable[[], Tensor]] = {
    "plain": lambda: torch.ones(3),
    "with a history": lambda: torch.ones(3, requires_grad=True) * 1,
    "a view": lambda: torch.ones(4)[1:],
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("one", WRITES)
def test_every_write_counts(one: str, given: str) -> None:
    for other in ("add_", "view", "nothing"):
        if given == "with a history" and "out" in (one, other):
            continue  # an error in eager

        def program(x: Tensor, names: tuple[str, str] = (one, other)) -> Tensor:
            for name in names:
                WRITES[name](x)
            return x * 2

        x, y = GIVEN[given](), GIVEN[given]()
        compiled = aot.aot_function(program, aot.run_as_is)
        for _ in range(2):
            try:
                compiled(x)
            except aot.Unsupported:
                break
            program(y)
            assert x._version == y._version, other


def test_tensors_of_inference_have_no_counter() -> None:
    def program(x: Tensor) -> Tensor:
        x.add_(1)
        return x.mul_(2)

    with torch.inference_mode():
        x = torch.ones(3)
        aot.aot_function(program, aot.run_as_is)(x)
        assert torch.equal(x, torch.full((3,), 4.0))
