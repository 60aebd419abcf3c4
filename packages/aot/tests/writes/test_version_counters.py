"""Version counters of written inputs: raised by as much as in eager."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.errors import Unsupported
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


ALIASES: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x.data,
    lambda x: x.detach(),
    lambda x: x[1:].detach(),
    lambda x: x[1:],
    lambda x: x.view(-1),
]
READS: list[Callable[..., torch.Tensor]] = [
    lambda x, alias: x.sin().exp(),
    lambda x, alias: x * torch.ones(1),
    lambda x, alias: x * alias.flatten()[:1].sum(),
    lambda x, alias: x.flatten()[: alias.numel()] * alias.flatten(),
]
WRITES: list[Callable[..., Any]] = [
    lambda x, alias: x.mul_(2),
    lambda x, alias: alias.copy_(alias * 2),
    lambda x, alias: alias.mul_(torch.ones(1)),
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("take", range(len(ALIASES)))
@pytest.mark.parametrize("rows", [0, 2])
def test_a_write_through_an_alias_of_what_is_kept(take: int, rows: int) -> None:
    """It raises as in eager, or is refused when it is compiled, which in eager raises too, or reads
    what was written."""

    def outcome(call: Callable[..., torch.Tensor]) -> Any:
        leaf = torch.arange(3.0 * rows).reshape(rows, 3).requires_grad_()
        x = leaf * 1
        try:
            call(x, ALIASES[take](x)).sum().backward()
        except Unsupported as error:
            return error
        except RuntimeError as error:
            return str(error)[:60]
        return leaf.grad

    answered = 0
    for read, write, first in itertools.product(READS, WRITES, (False, True)):

        def program(
            x: torch.Tensor,
            alias: torch.Tensor,
            read: Callable[..., torch.Tensor] = read,
            write: Callable[..., Any] = write,
            first: bool = first,
        ) -> torch.Tensor:
            if first:
                write(x, alias)
            result = read(x, alias)
            if not first:
                write(x, alias)
            return result

        expected, found = outcome(program), outcome(aot.aot_function(program, aot.run_as_is))
        if isinstance(found, Unsupported):
            continue
        answered += 1
        torch.testing.assert_close(found, expected)
    assert answered


OF_INFERENCE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cloned": lambda x, w: x.clone() * w * w,
    "computed with": lambda x, w: x.exp().sin() * w.sin(),
    "another dtype": lambda x, w: x.double() * w * w,
    "spread": lambda x, w: x.expand(5, 4).clone() * w * w,
    "a mask": lambda x, w: torch.where(x > 0.5, w * w, 0.0),
    "a copy of a view": lambda x, w: x.view(2, 2).t().contiguous() @ (w * w).view(2, 2),
}


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("kind", OF_INFERENCE)
def test_inference_tensors_count_nothing(kind: str, written: bool) -> None:
    """A derivative of either order by what was copied of one, whatever is written to it then."""

    def outcome(call: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        with torch.inference_mode():
            x = torch.linspace(0, 1, 4)
        w = torch.linspace(1, 2, 4).requires_grad_()
        result = call(x, w).sum()
        if written:
            with torch.inference_mode():
                x.fill_(7)
        (first,) = torch.autograd.grad(result, w, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), w)
        return [result, first, second]

    expected = outcome(OF_INFERENCE[kind])
    found = outcome(aot.aot_function(OF_INFERENCE[kind], aot.run_as_is))
    torch.testing.assert_close(found, expected)
