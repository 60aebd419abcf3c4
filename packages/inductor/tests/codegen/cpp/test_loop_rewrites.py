"""Rewrites before C++: they keep the meaning and change what they say they change."""

from __future__ import annotations

import torch
from flambeau_inductor.codegen.cpp.analysis.plan import plan
from flambeau_inductor.codegen.cpp.loop_rewrites import narrow_indices, two_pass_variance
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.loops import Const, IndexValue, Load, Loop, Point, Reduce, Store

from tests.codegen import loops


def outputs(loop: Loop, memory: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    fresh = {name: tensor.clone() for name, tensor in memory.items()}
    run_loop(loop, fresh)
    return fresh


def test_variance_in_two_passes() -> None:
    loop = loops.layernorm(3, 40)
    changed = two_pass_variance(loop)
    assert [i.kind for i in changed.body if isinstance(i, Reduce)] == ["sum", "sum", "sum"]
    memory = {
        "in0": torch.randn(120),
        "weight": torch.randn(40),
        "out": torch.zeros(120),
        "mean": torch.zeros(3),
    }
    before, after = outputs(loop, memory), outputs(changed, memory)
    for name in memory:
        torch.testing.assert_close(before[name], after[name])


def test_variance_of_a_row_beyond_the_cache_stays_one_pass() -> None:
    """Its sums are in float64; float64 itself keeps Welford's update."""
    body = two_pass_variance(loops.layernorm(1, 100_000)).body
    reductions = [i for i in body if isinstance(i, Reduce)]
    assert [(i.kind, i.dtype) for i in reductions] == [("sum", torch.float64)] * 2


def test_positions_that_are_compared_take_32_bits() -> None:
    changed = narrow_indices(loops.pad(10, 2, 3))
    kinds = {i.dtype for i in changed.body if isinstance(i, IndexValue | Const)}
    assert kinds == {torch.int32}
    assert plan(changed, 64).width == 16
    memory = {"in0": torch.randn(10), "out": torch.zeros(15)}
    before, after = outputs(loops.pad(10, 2, 3), memory), outputs(changed, memory)
    assert torch.equal(before["out"], after["out"])


def test_positions_that_are_stored_stay_wide() -> None:
    index = IndexValue(loops.x(), torch.int64)
    loop = loops.loop("iota", (9,), (), [index, Store("out", loops.x(), 0)])
    assert narrow_indices(loop) is loop


def test_positions_that_do_not_fit_stay_wide() -> None:
    body = [
        IndexValue(loops.x() * (2**33), torch.int64),
        Const(5, torch.int64),
        Point("lt", (0, 1), torch.bool),
        Store("out", loops.x(), 2),
    ]
    loop = loops.loop("far", (9,), (), body)
    assert narrow_indices(loop) is loop


def test_numbers_compared_with_loaded_ones_stay_wide() -> None:
    body = [
        Load("in0", loops.x(), torch.int64),
        IndexValue(loops.x(), torch.int64),
        Point("eq", (0, 1), torch.bool),
        Store("out", loops.x(), 2),
    ]
    loop = loops.loop("mixed", (9,), (), body)
    assert narrow_indices(loop) is loop
