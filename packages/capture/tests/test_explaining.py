"""What an explanation tells of a run: graphs, breaks with their costs, recompiles, guards."""

from __future__ import annotations

import time

import flambeau_capture as fc
import pytest
import torch


class _Clock:
    """A microsecond goes by whenever somebody looks, and what a test says."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


clock = _Clock()


def _slow_print(x: torch.Tensor) -> None:
    clock.now += 0.05


def _two_breaks(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    fc.graph_break()
    y = y * 2
    fc.disable(_slow_print)(y)
    return y - 1


def test_breaks_come_with_line_edit_and_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", clock)
    x = torch.randn(4)
    found = fc.explain(_two_breaks, x)
    torch.testing.assert_close(found.result, _two_breaks(x))
    assert len(found.break_reasons) == len(found.costs) >= 2
    lines = [str(reason.user_line) for reason in found.break_reasons]
    slow = [found.costs[i].run_ms for i, line in enumerate(lines) if "_slow_print" in line]
    quick = next(i for i, line in enumerate(lines) if "graph_break" in line)
    # the call of disable() and that of what it answers are two breaks: one of them waits
    assert sum(slow) >= max(slow) >= 50 > found.costs[quick].run_ms
    assert all(cost.capture_ms > 0 for cost in found.costs)
    assert "ms in Python" in found.verbose and "  try: " in found.verbose


def test_recompiles_of_the_run_are_listed() -> None:
    def inner(x: torch.Tensor, word: str) -> torch.Tensor:
        return x * len(word)

    def outer(x: torch.Tensor) -> torch.Tensor:
        fc.graph_break()
        y = inner(x, "a")
        fc.graph_break()
        return y + inner(x, "bb")

    found = fc.explain(outer)(torch.ones(2))
    torch.testing.assert_close(found.result, torch.full((2,), 3.0))
    for record in found.recompiles:
        assert str(record) in found.verbose
    assert sum(len(ops) for ops in found.ops_per_graph) == found.op_count == 3


def test_a_function_without_breaks_has_no_costs() -> None:
    found = fc.explain(lambda x: x.sin().cos(), torch.ones(2))
    assert found.costs == () and found.break_reasons == () and len(found.graphs) == 1
    assert "1 graph, with 0 graph breaks and 2 ops" in found.summary
