"""Prices of saving and of computing again: bytes, by the class of the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.partition.cost import classify, nbytes, recompute_cost, save_cost, work
from torch import fx
from torch.nn import functional as F

BYTES = 64 * 32 * 4


def nodes_of(fn: Callable[..., Any]) -> dict[str, fx.Node]:
    x, w = torch.randn(64, 32, requires_grad=True), torch.randn(32, 32, requires_grad=True)
    joint = aot.export_joint(fn, [x, w]).joint
    found: dict[str, fx.Node] = {}
    for node in joint.graph.nodes:
        if node.op == "call_function":
            found.setdefault(classify(node.target), node)
    return found


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = (x.sin() @ w).t().contiguous()
    return F.dropout(torch.cat([y, y * y.sum()]), 0.5)[:, x.shape[0] - 8 :]


def test_saving_costs_the_bytes_of_a_value() -> None:
    nodes = nodes_of(program)
    assert nbytes(nodes["pointwise"].meta["val"]) == BYTES
    assert save_cost(nodes["pointwise"], "pointwise") == BYTES + 1
    assert save_cost(nodes["view"], "view") > save_cost(nodes["pointwise"], "pointwise")


def test_computing_again_costs_by_class() -> None:
    nodes = nodes_of(program)
    assert recompute_cost(nodes["view"], "view") == 0
    pointwise = recompute_cost(nodes["pointwise"], "pointwise")
    reduction = recompute_cost(nodes["reduction"], "reduction")
    assert pointwise is not None and 0 < pointwise < BYTES * 0.1
    assert reduction == BYTES // 2, "half of what it reads"
    for never in ("matmul", "random", "leaf"):
        assert recompute_cost(nodes.get(never, nodes["matmul"]), never) is None  # type: ignore[arg-type]


def test_work_is_bytes_moved_or_multiplications() -> None:
    nodes = nodes_of(program)
    assert work(nodes["view"], "view") == 0
    assert work(nodes["pointwise"], "pointwise") == BYTES
    product = work(nodes["matmul"], "matmul")
    assert product >= BYTES * 2 + 32 * 32 * 4
    assert product >= 64 * 32 * 32 / 32


def test_views_are_made_again_and_never_saved_beside_what_they_view() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        return (y.t().reshape(8, -1).unsqueeze(0) * y[:8].reshape(1, 8, -1).sum()).sin() * 2

    call = aot.aot_function(fn, aot.run_as_is)
    call(torch.randn(64, 32, requires_grad=True), torch.randn(32, 32, requires_grad=True))
    (entry,) = call.compiled.values()
    roots = [node for node in entry.halves.saved_nodes if node.op == "call_function"]
    assert roots
    assert all(classify(node.target) != "view" for node in roots)


def test_what_is_in_memory_anyway_is_saved_rather_than_what_a_kernel_would_write() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).exp().sum()

    def in_memory(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x @ w).exp()
        return y.sum(), y

    for program_, saved in ((fn, "mm"), (in_memory, "exp")):
        call = aot.aot_function(program_, aot.run_as_is)
        call(torch.randn(64, 32, requires_grad=True), torch.randn(32, 32, requires_grad=True))
        (entry,) = call.compiled.values()
        names = {node.name for node in entry.halves.saved_nodes if node.op == "call_function"}
        assert any(name.startswith(saved) for name in names), (names, saved)


@pytest.mark.parametrize("named", [True, False], ids=["seeded by an input", "by the stream"])
def test_a_random_operator_may_run_twice_only_if_its_seed_is_an_input(named: bool) -> None:
    def noise(seed: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Numbers that follow from the seed, as a functional generator's do."""
        return torch.frac(
            torch.sin(seed + torch.arange(x.numel()).view(x.shape) * 78.233) * 43758.5
        )

    def fn(x: torch.Tensor, w: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        drawn = noise(seed * 1, x) if named else torch.rand(64, 32)
        return (x * drawn).sin() @ w

    x, w = torch.randn(64, 32, requires_grad=True), torch.randn(32, 32, requires_grad=True)
    options = aot.Options(memory_budget=0.0, recompute_share=1.0)
    call = aot.aot_function(fn, aot.run_as_is, options=options)
    call(x, w, torch.tensor(0.25)).sum().backward()
    (entry,) = call.compiled.values()
    twice = set(entry.report.recomputed)
    assert ("aten.frac.default" in twice) == named
    assert "aten.rand.default" not in twice
    if named:
        other = x.detach().clone().requires_grad_()
        fn(other, w.detach(), torch.tensor(0.25)).sum().backward()
        torch.testing.assert_close(x.grad, other.grad)
