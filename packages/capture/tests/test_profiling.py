"""The recompile profiler, and the table of compile times."""

from __future__ import annotations

from typing import Any

import flambeau_capture as fc
import pytest
import torch


def _scaled(x: torch.Tensor, factor: str) -> torch.Tensor:
    return x * len(factor)


def test_the_profiler_counts_what_would_be_compiled_again() -> None:
    prof = fc.CompileProfiler()
    compiled = fc.compile(_scaled, backend=prof)
    for size in (2, 3, 4):
        for factor in ("a", "bb"):
            x = torch.randn(size)
            torch.testing.assert_close(compiled(x, factor), x * len(factor))
    assert prof.graphs == 1 and prof.operations == 1
    assert sum(miss.count for miss in prof.misses) == 5
    by_guard = {miss.guard.split("'")[1]: miss for miss in prof.misses}
    assert set(by_guard) == {"x", "factor"}
    assert (by_guard["x"].count, by_guard["factor"].count) == (2, 3)
    assert "sizes (4)" in by_guard["x"].got
    report = prof.report()
    assert "5 calls would be compiled again" in report and "expected 'a'" in report


def test_what_a_missed_call_calls_is_no_miss_of_its_own() -> None:
    prof = fc.CompileProfiler()
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU())
    compiled = fc.compile(net, backend=prof)
    for size in (2, 3, 4, 2):
        compiled(torch.randn(size, 1, 5, 5))
    assert prof.graphs == 1
    assert [(miss.function, miss.count) for miss in prof.misses] == [("forward", 2)]
    assert "container.py" in prof.misses[0].filename


def test_the_profiler_tells_breaks() -> None:
    prof = fc.CompileProfiler()

    @fc.optimize(prof)
    def branching(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y * 2 if y.sum() > 0 else y

    branching(torch.ones(3))
    found: dict[str, Any] = prof.metrics()
    assert len(found["breaks"]) == 1 and found["breaks"][0].startswith("FB0001")
    assert "1 graph breaks:" in prof.report()


def test_compile_times_has_a_row_for_each_function() -> None:
    def slow(module: torch.fx.GraphModule, inputs: Any) -> Any:
        return module

    compiled = fc.compile(_scaled, backend=slow)
    compiled(torch.randn(2), "a")
    compiled(torch.randn(3), "a")
    head, row, total = fc.compile_times(compiled).splitlines()
    assert head.split()[:3] == ["function", "where", "frames"]
    assert row.startswith("_scaled") and row.split()[2] == "2"
    assert total.startswith("total") and float(total.split()[-2]) > 0
    assert "_scaled" in fc.compile_times()


def test_compile_times_of_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="not a compiled callable"):
        fc.compile_times(_scaled)
