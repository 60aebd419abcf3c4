"""Inputs whose `.data` is assigned to between the call and the backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
import torch.nn.functional as F

SAVING: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "itself": lambda x, w: x * w,
    "a view": lambda x, w: x.view(-1) * w.view(-1),
    "a transposed view": lambda x, w: F.linear(w, x),
    "an alias": lambda x, w: x[:] * w,
    "a view that is read by another": lambda x, w: x.view(-1).sin() * w.view(-1),
    "a result": lambda x, w: x.exp() * w,
    "a part": lambda x, w: x[0] * w[1],
}


@pytest.mark.parametrize("wanting", ["w", "x", "xw"])
@pytest.mark.parametrize("name", SAVING)
def test_one_is_saved_as_eager_saves_it(name: str, wanting: str) -> None:
    """Itself, which has the new data, or a view, which has the memory that it was made of."""

    def gradients(call: Callable[..., torch.Tensor], replaced: int, kind: str) -> list[Any]:
        given = [torch.arange(4.0).reshape(2, 2) + k for k in (1, 2)]
        x, w = (
            tensor.requires_grad_(name in wanting) for name, tensor in zip("xw", given, strict=True)
        )
        loss = call(x, w).sum()
        own = given[replaced]
        own.data = own.data.t() if kind == "transposed" else torch.full((2, 2), 100.0)
        loss.backward()
        return [x.grad, w.grad]

    compiled = aot.aot_function(SAVING[name], aot.run_as_is)
    for replaced in (0, 1):
        for kind in ("new", "transposed"):
            own = gradients(compiled, replaced, kind)
            torch.testing.assert_close(own, gradients(SAVING[name], replaced, kind))


def test_a_second_derivative_is_of_what_was_there_and_leads_to_the_input() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.view(-1).sin() * w.view(-1)

    def found(call: Callable[..., torch.Tensor]) -> list[Any]:
        x, w = (torch.arange(4.0).reshape(2, 2).requires_grad_() for _ in range(2))
        result = call(x, w).sum()
        x.data = torch.full((2, 2), 100.0)
        first = torch.autograd.grad(result, [x, w], create_graph=True)
        torch.stack([grad.square().sum() for grad in first]).sum().backward()
        return [x.grad, w.grad]

    torch.testing.assert_close(found(aot.aot_function(program, aot.run_as_is)), found(program))


TWICE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "a transposed view": lambda x, w: x.t() * x * w,
    "a matrix product": lambda x, w: (x @ x.t()).sin() * w,
    "a part": lambda x, w: x[0] * w + x.sin(),
    "a view of a view": lambda x, w: x.view(-1)[:2] * w + x.cos(),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", TWICE)
def test_one_that_is_saved_as_itself_and_as_a_view_is_refused_then(
    name: str, create_graph: bool
) -> None:
    """The former has the new data in eager, the latter has not: the backward graph takes one."""

    def gradients(call: Callable[..., torch.Tensor], replaced: int) -> list[Any]:
        given = [torch.arange(4.0).reshape(2, 2).add(k).requires_grad_() for k in (1, 2)]
        loss = call(*given).sum()
        if replaced < 2:
            given[replaced].data = torch.full((2, 2), 100.0)
        return list(torch.autograd.grad(loss, given, create_graph=create_graph))

    compiled = aot.aot_function(TWICE[name], aot.run_as_is)
    for replaced in (1, 2):
        torch.testing.assert_close(gradients(compiled, replaced), gradients(TWICE[name], replaced))
    try:
        own = gradients(compiled, 0)
    except aot.Unsupported as error:
        assert "AO0183" in str(error)
    else:
        torch.testing.assert_close(own, gradients(TWICE[name], 0))


@pytest.mark.parametrize("name", TWICE)
def test_no_memory_is_kept_once_the_backward_pass_has_freed_it(name: str) -> None:
    compiled = aot.aot_function(TWICE[name], aot.run_as_is)
    leaf, w = (torch.rand(2, 2).requires_grad_() for _ in range(2))
    x = leaf * 2
    memory = weakref.ref(x.untyped_storage())
    loss = compiled(x, w).sum()
    del x
    loss.backward()
    assert memory() is None and loss.grad_fn is not None
