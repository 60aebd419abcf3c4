"""A result that is written to before the backward pass: an error exactly where eager has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch

_UNARY = [
    *("abs", "acos", "asinh", "atan", "cos", "cosh", "erf", "erfinv", "exp", "exp2", "expm1"),
    *("log", "log1p", "neg", "reciprocal", "relu", "rsqrt", "sigmoid", "sin", "sinh", "softmax"),
    *("log_softmax", "sqrt", "square", "tan", "tanh", "cumsum", "sort", "logsumexp", "cummax"),
]


def _called(name: str) -> Callable[[torch.Tensor], Any]:
    function = getattr(torch, name)
    by_dimension = ("softmax", "log_softmax", "cumsum", "sort", "logsumexp", "cummax")
    found = (lambda x: function(x, -1)) if name in by_dimension else function
    return lambda x: _first(found(x))


def _first(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else value[0]


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {name: _called(name) for name in _UNARY}
PROGRAMS |= {
    "exp of a product": lambda x: (x * 0.5).exp(),
    "tanh of a product": lambda x: (x * 0.5).tanh(),
}
PROGRAMS |= {
    "elu": torch.nn.functional.elu,
    "used again": lambda x: (lambda y: (y, y * y))(x.sin()),
    "used in exp": lambda x: (lambda y: (y, y.exp()))(x.cos()),
    "a view of it": lambda x: x.exp().view(-1),
    "and a view": lambda x: (lambda y: (y, y[1:]))(x.tanh()),
    "division": lambda x: 1 / x,
    "its power": lambda x: x**3,
    "norm": lambda x: x.norm(dim=0, keepdim=True),
}

WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "in place": lambda y: y.mul_(2),
    "beside autograd": lambda y: y.detach().add_(1),
    "not at all": lambda y: None,
}


def outcome(call: Callable[..., Any], write: Callable[..., Any]) -> Any:
    x = torch.tensor([0.3, 0.6, 0.9], requires_grad=True)
    found = call(x)
    results = list(found) if isinstance(found, tuple) else [found]
    try:
        write(results[0])
        sum((item * 1).sum() for item in results).backward()  # type: ignore[attr-defined]
    except RuntimeError as error:
        return False, "modified by an inplace operation" in str(error)
    return True, x.grad


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_write_to_a_result_before_the_backward_pass(name: str) -> None:
    compiled = aot.aot_function(PROGRAMS[name], aot.run_as_is)
    for write in WRITES.values():
        torch.testing.assert_close(outcome(compiled, write), outcome(PROGRAMS[name], write))


@pytest.mark.parametrize("name", ["exp", "tanh", "softmax", "exp of a product"])
def test_within_a_budget_the_gradient_is_right_or_the_write_an_error(name: str) -> None:
    options = aot.Options(memory_budget=0.0)
    compiled = aot.aot_function(PROGRAMS[name], aot.run_as_is, options=options)
    gives, found = outcome(compiled, WRITES["beside autograd"])
    if gives:
        torch.testing.assert_close(found, outcome(PROGRAMS[name], WRITES["not at all"])[1])
