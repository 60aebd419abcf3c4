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


IN_PLACE = {
    name: getattr(torch.Tensor, f"{name}_")
    for name in _UNARY
    if hasattr(torch.Tensor, f"{name}_") and name not in ("asinh", "cumsum", "square")
}
"""Of these, eager keeps the result, or what is there before; `asinh_` has no derivative."""

PLACES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "the whole": lambda y: y,
    "a part": lambda y: y[1:],
    "a part of a part": lambda y: y.unsqueeze(0)[:, ::2],
    "another order": lambda y: y.flip(0).view(3, 1).t(),
}

AFTERWARDS: dict[str, Callable[[list[torch.Tensor]], Any]] = {
    "in place": lambda found: found[0].mul_(2),
    "in a part": lambda found: found[0][:1].zero_(),
    "beside autograd": lambda found: found[-1].detach().add_(1),
    "not at all": lambda found: None,
}


def of_a_part(name: str, place: str, whole: bool) -> Callable[[torch.Tensor], Any]:
    """A program whose result is written to, there, by this operator."""

    def program(x: torch.Tensor) -> Any:
        y = x * 0.5
        part = PLACES[place](y)
        IN_PLACE[name](part)
        return y if whole else (y, part)

    return program


def of_an_input(name: str, place: str, whole: bool) -> Callable[[torch.Tensor], Any]:
    """The same with an input that is written to."""

    def program(x: torch.Tensor) -> Any:
        part = PLACES[place](x)
        IN_PLACE[name](part)
        return x if whole else (x * 2, part)

    return program


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", list(IN_PLACE))
@pytest.mark.parametrize("make", [of_a_part, of_an_input], ids=lambda make: make.__name__)
def test_a_write_to_what_the_program_has_written_to_in_part(make: Any, name: str) -> None:
    for place in PLACES:
        for whole in (True, False):
            program = make(name, place, whole)
            compiled = aot.aot_function(program, aot.run_as_is)
            for said, write in AFTERWARDS.items():
                expected, given = after(program, make, write), after(compiled, make, write)
                assert type(expected) is type(given), (place, whole, said, expected, given)
                torch.testing.assert_close(given, expected)


def after(call: Callable[..., Any], make: Any, write: Callable[..., Any]) -> Any:
    """The gradient, or whether it is refused because of the write."""
    leaf = torch.tensor([0.3, 0.6, 0.9], requires_grad=True)
    x = leaf * 1 if make is of_an_input else leaf
    results = call(x)
    found = list(results) if isinstance(results, tuple) else [results]
    try:
        write([x, *found] if make is of_an_input else found)
        sum((item * 1).sum() for item in found).backward()  # type: ignore[attr-defined]
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return leaf.grad
