"""Programs whose sizes and numbers depend on data, and what they are compared by.

In: a program, what makes its inputs for a count. Out: a case of a test; its results and gradients.
Invariant: inputs are copies, so that compiled and eager are given the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

COUNTS = (3, 5, 0, 1, 8, 2)
"""How many of eight are chosen: some, none, one, all."""

Make = Callable[[int], Sequence[Tensor]]


@dataclass(frozen=True)
class Case:
    """A program, what it is given for a count, and whether gradients are compared. in_parts:
    backends that refuse it by name: the graph ends where a size depends on data. eager_at: counts
    for which an operator means something else, or raises, so that such a call runs eagerly.
    branches: it has branches by data, which are to be choices of the graph."""

    program: Callable[..., Any]
    make: Make
    trains: bool = True
    backends: Sequence[str] = ("aot_eager", "inductor")
    in_parts: Sequence[str] = ()
    eager_at: Sequence[int] = ()
    branches: bool = False


class Cases(dict[str, Case]):
    """The cases of a file by name: an instance is a decorator of their programs."""

    def __call__(self, make: Make, **said: Any) -> Callable[[Any], Any]:
        def keep(program: Callable[..., Any]) -> Callable[..., Any]:
            self[program.__name__] = Case(program, make, **said)
            return program

        return keep

    def by_backend(self) -> list[tuple[str, str]]:
        """The names of cases, each with its backends."""
        return [(name, each) for name, one in self.items() for each in one.backends]


def chosen(count: int) -> Tensor:
    return torch.randperm(8) < count


def rows(count: int) -> Sequence[Tensor]:
    return torch.randn(8, 4), chosen(count)


def numbered(count: int) -> Sequence[Tensor]:
    return torch.randn(8, 4), torch.tensor(count)


def ran(fn: Callable[..., Any], given: Sequence[Tensor], trains: bool) -> Any:
    """Results, and gradients of what is a floating-point number."""
    copies = [x.clone().requires_grad_(trains and x.is_floating_point()) for x in given]
    result = fn(*copies)
    results = result if isinstance(result, tuple) else (result,)
    found = [one.sum() for one in results if isinstance(one, Tensor) and one.requires_grad]
    if found:
        sum(found).backward()
    return result, [x.grad for x in copies]


def compared(program: Any, compiled: Any, given: Sequence[Tensor], trains: bool = True) -> None:
    """As eager: results and gradients, or the error."""
    try:
        want = ran(program, given, trains)
    except Exception as error:
        with pytest.raises(type(error)):
            ran(compiled, given, trains)
        return
    got = ran(compiled, given, trains)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
