"""Constant results, forbidden functions, replacements."""

from __future__ import annotations

import operator

import flambeau_capture as fc
import pytest
import torch
from flambeau_capture.api import compiler_of

CALLS: list[int] = []


def _graphs(compiled: object) -> int:
    compiler = compiler_of(compiled)
    assert compiler is not None
    return len(compiler.records.graphs)


def test_a_constant_result_is_asked_for_once() -> None:
    @fc.assume_constant_result
    def width(base: int) -> int:
        CALLS.append(base)
        return base * 2

    @fc.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * width(3)

    CALLS.clear()
    x = torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(f(x), x * 6)
    assert CALLS == [3] and _graphs(f) == 1


def test_a_constant_result_of_a_tensor_breaks() -> None:
    @fc.assume_constant_result
    def peak(x: torch.Tensor) -> float:
        return float(x.max())

    @fc.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y * peak(y)

    for x in (torch.rand(4), torch.rand(4) + 3):
        torch.testing.assert_close(f(x), (x + 1) * float((x + 1).max()))
    compiler = compiler_of(f)
    assert compiler is not None
    assert "not known at capture" in compiler.records.breaks[0].what


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    @fc.assume_constant_result
    def largest(self, times: int = 1) -> float:
        return times * float(self.linear.weight.abs().max())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) / self.largest() + self.largest(times=2)


def test_a_constant_result_of_what_the_program_has_before() -> None:
    @fc.assume_constant_result
    def ordered(x: torch.Tensor) -> torch.Tensor:
        return x.sort().values

    kept = torch.randn(2)

    @fc.optimize(nopython=True)
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + ordered(kept) * ordered(x)

    module, x = Scaled(), torch.randn(2)
    torch.testing.assert_close(f(x), x + kept.sort().values * x.sort().values)
    torch.testing.assert_close(fc.optimize(nopython=True)(module)(x), module(x))


def test_a_constant_result_of_what_the_call_has_changed_breaks() -> None:
    @fc.assume_constant_result
    def total(x: torch.Tensor) -> float:
        return float(x.sum())

    @fc.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * total(x)

    x = torch.ones(3)
    torch.testing.assert_close(f(x), torch.full((3,), 12.0))


def test_a_disallowed_function_ends_the_graph() -> None:
    @fc.disallow_in_graph
    def outside(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() - 1)

    @fc.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return outside(x * 2) * 3

    x = torch.randn(4)
    for _ in range(2):
        torch.testing.assert_close(f(x), (x * 2 - 1) * 3)
    compiler = compiler_of(f)
    assert compiler is not None
    assert [report.reason.id for report in compiler.records.breaks][0] == "FB0006"
    assert {record.function for record in compiler.records.graphs} >= {"f"}


def test_a_replacement_is_traced_in_place_of_the_original() -> None:
    def opaque(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        CALLS.append(1)
        return torch.from_numpy(x.numpy() * scale)

    @fc.substitute_in_graph(opaque)
    def traced(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale

    @fc.compile(fullgraph=True)
    def f(x: torch.Tensor) -> torch.Tensor:
        return opaque(x) + opaque(x, scale=3.0)

    CALLS.clear()
    x = torch.randn(4)
    torch.testing.assert_close(f(x), x * 5)
    assert CALLS == []
    torch.testing.assert_close(opaque(x), x * 2)
    assert CALLS == [1]


def test_a_replacement_of_another_signature_is_refused() -> None:
    def original(x: int) -> int:
        return x

    with pytest.raises(TypeError, match="another signature"):

        @fc.substitute_in_graph(original)
        def other(x: int, y: int) -> int:
            return x + y


def test_a_second_replacement_is_refused() -> None:
    def original(x: int) -> int:
        return x

    fc.substitute_in_graph(original)(lambda x: x)
    with pytest.raises(ValueError, match="replaced already"):
        fc.substitute_in_graph(original)(lambda x: x + 1)


@pytest.mark.parametrize(
    "teach", [fc.disallow_in_graph, fc.assume_constant_result, fc.substitute_in_graph]
)
def test_what_cannot_be_called_is_refused(teach: object) -> None:
    with pytest.raises(TypeError, match="takes a function"):
        operator.call(teach, 3)  # type: ignore[operator]
