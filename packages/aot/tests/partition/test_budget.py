"""Budgets, bounds on the work done twice, checkpoint marks, and the curve of memory for work."""

import itertools
from dataclasses import replace

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.partition.budget import BoundedCuts, keep
from flambeau_aot.partition.problem import problem_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F


def network(x, *weights):
    for w in weights:
        h = F.layer_norm(x @ w, (16,))
        x = x + F.gelu(h) @ w.t()
    return x.square().mean()


def inputs(depth=4):
    torch.manual_seed(0)
    weights = [(torch.randn(16, 16) / 4).requires_grad_() for _ in range(depth)]
    return [torch.randn(8, 16, requires_grad=True), *weights]


def compiled(fn, values, **options):
    call = aot.aot_function(fn, aot.run_as_is, options=aot.Options(**options))
    grads = torch.autograd.grad(call(*values), values)
    (entry,) = call.compiled.values()
    return entry, grads


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 50)), max_size=9), st.integers(0, 120))
def test_knapsack_is_best(items, capacity) -> None:
    sizes, values = [size for size, _ in items], [float(value) for _, value in items]
    kept = keep(sizes, values, capacity)
    assert sum(sizes[place] for place in kept) <= capacity
    best = max(
        sum(values[place] for place in chosen)
        for count in range(len(items) + 1)
        for chosen in itertools.combinations(range(len(items)), count)
        if sum(sizes[place] for place in chosen) <= capacity
    )
    assert sum(values[place] for place in kept) == best


def test_knapsack_over_the_grid_stays_within_capacity() -> None:
    sizes = [3_000_017 + 7919 * place for place in range(50)]
    kept = keep(sizes, [float(size) for size in sizes], 40_000_000)
    assert 0.9 * 40_000_000 < sum(sizes[place] for place in kept) <= 40_000_000


def test_less_budget_saves_less_and_computes_more() -> None:
    values = inputs()
    rows = []
    for budget in (0.0, 0.3, 0.7, 1.0, None):
        entry, grads = compiled(network, values, memory_budget=budget, recompute_share=1.0)
        rows.append((entry.report.saved_bytes, entry.report.recomputed_share))
        for one, other in zip(grads, compiled(network, values)[1], strict=True):
            torch.testing.assert_close(one, other)
    assert rows[-1] == rows[-2]
    sizes, shares = zip(*rows, strict=True)
    assert list(sizes) == sorted(sizes)
    assert list(shares) == sorted(shares, reverse=True)
    assert sizes[0] < sizes[1] < sizes[-1]


def test_a_budget_in_bytes_is_kept_or_refused() -> None:
    values = inputs()
    most = compiled(network, values)[0].report.saved_bytes
    least = compiled(network, values, memory_budget=0.0)[0].report.saved_bytes
    for budget in (least, (least + most) // 2, most, most * 2):
        entry, _ = compiled(network, values, memory_budget=budget)
        assert entry.report.saved_bytes <= budget
    assert entry.report.saved_bytes == most
    with pytest.raises(aot.AotError, match=f"at least {least} bytes"):
        compiled(network, values, memory_budget=least - 1)
    with pytest.raises(aot.AotError, match="memory budget"):
        compiled(network, values, memory_budget=1.5)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
def test_work_done_twice_stays_below_its_share(share) -> None:
    values = inputs()
    free, _ = compiled(network, values, recompute_share=1.0)
    assert free.report.recomputed_share > 0.01
    entry, grads = compiled(network, values, recompute_share=share)
    assert entry.report.recomputed_share <= share
    assert entry.report.saved_bytes >= free.report.saved_bytes
    for one, other in zip(grads, compiled(network, values)[1], strict=True):
        torch.testing.assert_close(one, other)


def test_the_curve_has_no_point_that_another_beats() -> None:
    values = inputs(6)
    call = aot.aot_function(network, aot.run_as_is)
    call(*values)
    (entry,) = call.compiled.values()
    points = aot.memory_curve(entry.joint, points=9)
    assert len(points) >= 4
    for one, other in itertools.pairwise(points):
        assert one.saved_bytes < other.saved_bytes
        assert one.share > other.share
    assert points[-1].saved_bytes == entry.report.saved_bytes
    picture = aot.draw_curve(points)
    assert picture.startswith("<svg")
    assert picture.count("<circle") == len(points)


def test_random_operators_never_run_twice_under_any_budget() -> None:
    def fn(x, w):
        for _ in range(3):
            x = F.dropout(torch.tanh(x @ w), 0.3)
        return x.sum()

    values = inputs(1)
    entry, _ = compiled(fn, values, memory_budget=0.0, recompute_share=1.0)
    assert entry.report.recomputed_share > 0
    assert not [name for name in entry.report.recomputed if "bernoulli" in name or "rand" in name]
    torch.manual_seed(1)
    expected = torch.autograd.grad(fn(*values), values)
    torch.manual_seed(1)
    call = aot.aot_function(fn, aot.run_as_is, options=aot.Options(memory_budget=0.0))
    for one, other in zip(torch.autograd.grad(call(*values), values), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_an_operator_of_another_library_never_runs_twice() -> None:
    runs = []

    @torch.library.custom_op("flambeau_tests::counted", mutates_args=())
    def counted(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return x * 2

    counted.register_fake(lambda x: torch.empty_like(x))
    counted.register_autograd(lambda ctx, grad: grad * 2)
    values = inputs(1)
    entry, _ = compiled(
        lambda x, w: torch.ops.flambeau_tests.counted(torch.tanh(x @ w)).sin().sum(),
        values,
        memory_budget=0.0,
        recompute_share=1.0,
    )
    assert len(runs) == 1
    assert entry.report.recomputed_share > 0


def marked(mark, chosen):
    """A partition that sees chosen operators marked as a checkpoint policy marks them."""

    def partition(joint, options):
        for node in joint.graph.nodes:
            if node.op == "call_function" and any(name in str(node.target) for name in chosen):
                node.meta["recompute"] = mark
        return aot.min_cut_partition(joint, options)

    return partition


def saved_targets(entry):
    return {str(node.target) for node in entry.halves.saved_nodes if node.op == "call_function"}


@pytest.mark.parametrize("all_of_it", [False, True])
def test_marks_of_a_checkpoint_policy(all_of_it) -> None:
    values = inputs(2)
    plain, expected = compiled(network, values)
    assert "aten.mm.default" in saved_targets(plain)

    def with_mark(mark, chosen, **options):
        call = aot.aot_function(
            network, aot.run_as_is, partition=marked(mark, chosen), options=aot.Options(**options)
        )
        grads = torch.autograd.grad(call(*values), values)
        for one, other in zip(grads, expected, strict=True):
            torch.testing.assert_close(one, other)
        (entry,) = call.compiled.values()
        return entry

    again = with_mark("must_recompute", ["mm"], recompute_share=0.0)
    assert "aten.mm.default" not in saved_targets(again)
    assert "aten.mm.default" in again.report.recomputed
    kept = with_mark("must_save", ["gelu.default"])
    assert "aten.gelu.default" in saved_targets(kept)
    rather = with_mark("prefer_save", ["gelu.default", "native_layer_norm.default"])
    assert not {"aten.gelu.default", "aten.native_layer_norm.default"} & {*rather.report.recomputed}
    with pytest.raises(aot.AotError, match="marked 'sometimes'"):
        with_mark("sometimes", ["mm"])


def test_save_all_honours_what_must_be_computed_again() -> None:
    values = inputs(1)
    call = aot.aot_function(network, aot.run_as_is)
    call(*values)
    (entry,) = call.compiled.values()
    for node in entry.joint.graph.nodes:
        if "gelu.default" in str(node.target):
            node.meta["recompute"] = "must_recompute"
    assert not [node for node in aot.save_all(entry.joint) if "gelu.default" in str(node.target)]


def test_curve_and_cut_agree() -> None:
    values = inputs(3)
    call = aot.aot_function(network, aot.run_as_is)
    call(*values)
    (entry,) = call.compiled.values()
    problem = problem_of(entry.joint)
    point = BoundedCuts(problem, 1.0).curve(1)[-1]
    options = replace(aot.Options(), recompute_share=1.0)
    assert {node.name for node in aot.min_cut_partition(entry.joint, options)} == {*point.saved}
