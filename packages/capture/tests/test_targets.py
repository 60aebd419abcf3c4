"""What can be compiled beside functions and modules of the program, and where warnings point."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import flambeau_capture as fc
import pytest
import torch


def _loss(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x @ w - y) ** 2).sum()


TARGETS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "an operator": (torch.sin, (torch.randn(3),)),
    "a function of torch": (torch.nn.functional.gelu, (torch.randn(3),)),
    "what vmap answers": (
        torch.func.vmap(torch.func.grad(_loss), in_dims=(None, 0, 0)),
        (torch.randn(3), torch.randn(4, 3), torch.randn(4)),
    ),
}


@pytest.mark.parametrize("name", TARGETS)
def test_what_torch_itself_has_written_is_one_graph(backend: Any, same: Any, name: str) -> None:
    target, args = TARGETS[name]
    compiled = fc.compile(target, backend=backend, fullgraph=True)
    for _ in range(2):
        same(compiled(*args), target(*args))
    assert len(backend) == 1
    assert compiled.__name__ == target.__name__


def test_the_step_of_an_optimizer(backend: Any) -> None:
    layers = [torch.nn.Linear(3, 2) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    for layer, compiles in zip(layers, (True, False)):
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer(torch.ones(4, 3)).sum().backward()
        step = fc.compile(optimizer.step, backend=backend) if compiles else optimizer.step
        step()
    assert len(backend) == 1
    torch.testing.assert_close(layers[0].weight, layers[1].weight)


def test_a_break_in_torchs_own_function_is_told(backend: Any) -> None:
    compiled = fc.compile(torch.nonzero, backend=backend, fullgraph=True, dynamic=False)
    with pytest.raises(fc.Unsupported, match="FB0004"):
        compiled(torch.ones(2))


def test_a_warning_names_the_line_that_calls(same: Any) -> None:
    compiled = fc.compile(lambda x: x + 1, backend=lambda module, inputs: 3)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        same(compiled(torch.ones(2)), torch.ones(2) + 1)
    assert [one.filename for one in given if "eagerly" in str(one.message)] == [__file__]


def test_a_refused_operator_is_not_logged(capture: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(3, 5)

    compiled = capture(fn)
    with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError, match="shapes cannot be"):
        compiled(torch.ones(2, 4))
    assert "failed while attempting" not in caplog.text
