"""What a program registers for its operators after they were compiled: the next call runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

NUMBERS = count()
KEYS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CPU", "AutogradCPU")
BEFORE = KEYS[:3]


@pytest.fixture
def library() -> Iterator[str]:
    """A library with the operator `scale`, without kernels."""
    name = f"registered_later_{next(NUMBERS)}"
    with torch.library._scoped_library(name, "FRAGMENT") as made:
        made.define("scale(Tensor x) -> Tensor")
        yield name


def register(library: str, key: str, factor: float, held: list[Any]) -> None:
    made = torch.library.Library(library, "IMPL")
    made.impl("scale", lambda x: x * factor, key)
    if not held and key in ("CPU", "CompositeExplicitAutograd"):
        torch.library.register_fake(f"{library}::scale", torch.empty_like, allow_override=True)
    held.append(made)


def seen(call: Callable[..., Any], x: Tensor) -> list[Any]:
    """The result and the gradient, or the error."""
    x = x.clone().requires_grad_()
    result = call(x)
    if result.requires_grad:
        result.sum().backward()
    return [result.detach(), x.grad]


@pytest.mark.parametrize("later", KEYS)
@pytest.mark.parametrize("before", BEFORE)
def test_a_kernel_is_seen(library: str, before: str, later: str) -> None:
    if before == later:
        return
    held: list[Any] = []
    register(library, before, 2.0, held)

    def fn(x: Tensor) -> Tensor:
        return getattr(torch.ops, library).scale(x * 1.5) + 1

    compiled = flambeau.compile(fn, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))
        register(library, later, 5.0, held)
        torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))


def test_a_derivative_is_seen() -> None:
    name = f"registered_later_{next(NUMBERS)}"

    @torch.library.custom_op(f"{name}::scale", mutates_args=())
    def scale(x: Tensor) -> Tensor:
        return x * 2

    scale.register_fake(torch.empty_like)
    compiled = flambeau.compile(lambda x: scale(x) + 1, backend="aot_eager")
    for factor in (2, 3):
        scale.register_autograd(lambda ctx, g, factor=factor: g * factor)
        torch.testing.assert_close(
            seen(compiled, torch.ones(3)), seen(lambda x: scale(x) + 1, torch.ones(3))
        )
