"""Where `.grad` lies after `backward()` in a compiled function.

Eager's engine keeps a gradient that nobody else holds, a part of a larger tensor too, and copies
any other: leaves may share memory, and then do so here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

LOSSES: dict[str, Callable[..., Any]] = {
    "joined": lambda a, b, c: torch.cat([a, b, c]).exp().sum(),
    "a part": lambda a, b, c: (a * 1).sum() + (torch.cat([b, a, c])[:3] * 2).sum(),
    "sums in a part": lambda a, b, c: torch.cat([torch.ones(3, 4), a + b + c]).exp().sum(),
    "a sum with a view": lambda a, b, c: (a + b.view(3, 4) + c.reshape(3, 4)).exp().sum(),
    "parts of a constant": lambda a, b, c: torch.stack([a, b]).sum() + c.exp().sum(),
    "a part of a constant": lambda a, b, c: (torch.stack([a * a, b]).mean(0) * 2).sum() + c.sum(),
    "products": lambda a, b, c: (a @ b.t() + torch.nn.functional.linear(a, c)).exp().sum(),
}


def places(leaves: list[Tensor]) -> Any:
    grads = [leaf.grad for leaf in leaves]
    assert all(grad is not None for grad in grads)
    starts = [grad.untyped_storage().data_ptr() for grad in grads]
    told = [(grad.storage_offset(), grad.stride(), grad._is_view()) for grad in grads]
    return told, [starts.index(start) for start in starts]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("loss", LOSSES)
def test_where_gradients_lie(loss: str, backend: str) -> None:
    def step(*leaves: Tensor) -> None:
        LOSSES[loss](*leaves).backward()

    made = [torch.randn(3, 4) for _ in range(3)]
    one, other = ([x.clone().requires_grad_() for x in made] for _ in range(2))
    step(*one)
    flambeau.compile(step, backend=backend, fullgraph=True)(*other)
    assert places(other) == places(one)
    for expected, got in zip(one, other, strict=True):
        torch.testing.assert_close(got.grad, expected.grad)
    for place in range(3):
        for leaves in (one, other):
            leaves[place].grad.mul_(place + 2)
    for expected, got in zip(one, other, strict=True):
        torch.testing.assert_close(got.grad, expected.grad)


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "a product": lambda x: x * 2,
    "softmax": lambda x: x.softmax(-1),
    "a norm": lambda x: x.norm(dim=-1, keepdim=True),
    "a sum": lambda x: x.sum(-1),
    "sorted": lambda x: x.sort(-1)[0],
    "matrices": lambda x: torch.nn.functional.linear(x, torch.ones(4, x.shape[-1])),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_gradient_without_elements_lies_as_its_leaf(operator: str, backend: str) -> None:
    def step(leaf: Tensor) -> None:
        (OPERATORS[operator](leaf) ** 2).sum().backward()

    compiled = flambeau.compile(step, backend=backend, fullgraph=True, dynamic=False)
    for shape in ((0, 5), (5, 0), (0, 1), (2, 0, 5)):
        strides = []
        for run in (step, compiled):
            wide = torch.zeros(*shape[:-1], 2 * shape[-1] + 1)
            leaf = wide[..., 1::2].requires_grad_()
            run(leaf)
            assert leaf.grad is not None
            strides.append(leaf.grad.stride())
        assert strides[1] == strides[0], shape
