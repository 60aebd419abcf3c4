"""Transforms of transforms, in and around a compiled function, in float64: values, strides and
whether they require grad are eager's, up to derivatives of third order of what they give."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import flambeau

Function = Callable[[Tensor], Any]


class Cube(torch.autograd.Function):
    """A derivative of a user's."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 3 * ctx.saved_tensors[0] ** 2

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent * 3 * ctx.saved_tensors[0] ** 2


FUNCTIONS: dict[str, Function] = {
    "sine": lambda x: x.sin() * x,
    "prod": lambda x: x.prod(-1),
    "norm": lambda x: torch.linalg.norm(x),
    "norm of rows": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "norm of third order": lambda x: x.norm(3, -1),
    "cumprod": lambda x: x.cumprod(-1),
    "softmax": lambda x: x.softmax(-1) * x,
    "logsumexp": lambda x: x.logsumexp(-1),
    "matmul": lambda x: (x @ x.T if x.dim() > 1 else x @ x).tanh(),
    "amax": lambda x: x.amax(-1) * x.sum(-1),
    "index": lambda x: x[..., [0, 0, 1]].exp(),
    "written": lambda x: x.clone().mul_(x).sin_(),
    "std": lambda x: x.std(-1),
    "gelu": lambda x: F.gelu(x),
    "where": lambda x: torch.where(x > 0, x.exp(), x * x),
    "cumsum": lambda x: x.cumsum(-1) ** 2,
    "cube": lambda x: Cube.apply(x),
    "two": lambda x: (x.sin(), (x * x).sum(-1)),
    "outer": lambda x: torch.einsum("...i,...j->...ij", x, x).tanh(),
    "constant": lambda x: torch.ones_like(x) * 2,
    "detached": lambda x: x.detach() * x,
    "pow": lambda x: (x.abs() + 0.5) ** x,
}


def total(value: Any) -> Any:
    return sum((x * (at + 1)).sum() for at, x in enumerate(pytree.tree_leaves(value)))


def pulled_back(f: Function) -> Function:
    def call(x: Tensor) -> Any:
        value, pull = func.vjp(f, x)
        return pull(pytree.tree_map(torch.ones_like, value))[0]

    return call


TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "grad": lambda f: func.grad(lambda x: total(f(x))),
    "jacrev": lambda f: func.jacrev(f),
    "jacfwd": lambda f: func.jacfwd(f),
    "vjp": pulled_back,
    "jvp": lambda f: lambda x: func.jvp(f, (x,), (torch.ones_like(x),)),
    "hessian": lambda f: func.hessian(lambda x: total(f(x))),
    "vmap": lambda f: func.vmap(f),
}


def differentiated(f: Function, x: Tensor) -> list[Any]:
    """The results, and derivatives of first to third order."""
    x = x.clone().requires_grad_()
    results = pytree.tree_leaves(f(x))
    found: list[Any] = [*results]
    for order in range(3):
        results = [y for y in results if y is not None and y.requires_grad]
        if not results:
            break
        loss = torch.stack([y.square().sum() for y in results]).sum()
        results = [*torch.autograd.grad(loss, x, create_graph=order < 2, allow_unused=True)]
        found += results
    return found


REFUSED = {("cumprod", 1), ("cumprod", 3), ("detached", 4)}
"""What raises AO0145 at a derivative of higher order, where eager answers."""


def outcome(f: Function, x: Tensor, outside: bool) -> list[Any] | None:
    """What is found; None where eager raises."""
    try:
        found = differentiated(f, x) if outside else pytree.tree_leaves(f(x))
    except RuntimeError as error:
        ours = (flambeau.FlambeauError, flambeau.AotError, flambeau.CaptureError)
        assert not isinstance(error, ours), error
        return None
    return [y if y is None else (y.detach(), y.stride(), y.requires_grad) for y in found]


@pytest.mark.sweep(24)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_give_what_eager_gives(name: str, number: int) -> None:
    draw = random.Random(f"{name} {number}")
    chosen = draw.choices(list(TRANSFORMS), k=draw.randrange(4))
    chosen = [each for at, each in enumerate(chosen) if each not in chosen[:at] or each == "grad"]
    inside = draw.randrange(len(chosen) + 1)
    x = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(number))

    def made(compile: Callable[[Function], Function]) -> Function:
        f = FUNCTIONS[name]
        for each in chosen[:inside]:
            f = TRANSFORMS[each](f)
        f = compile(f)
        for each in chosen[inside:]:
            f = TRANSFORMS[each](f)
        return f

    outside = draw.random() < 0.5
    expected = outcome(made(lambda f: f), x, outside)
    compiled = made(lambda f: flambeau.compile(f, backend="aot_eager"))
    if (name, number) in REFUSED:
        with pytest.raises(AssertionError, match="AO0145"):
            outcome(compiled, x, outside)
        return
    found = outcome(compiled, x, outside)
    assert (found is None) == (expected is None)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9, msg=f"{chosen} {inside}")
