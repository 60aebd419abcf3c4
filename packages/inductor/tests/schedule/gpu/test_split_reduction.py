"""Long rows shared out: the same results, by loops with enough programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from flambeau_inductor.ir.loops import Load, Loop, Reduce
from flambeau_inductor.schedule import Limits
from flambeau_inductor.schedule.gpu.split_reduction import split_loop

from tests.codegen import loops
from tests.evaluated import against_eager

SPLIT = Limits(split_on=("cpu",), split_programs=16, split_length=8)
WHOLE = replace(SPLIT, split_on=())

Function = Callable[..., Any]


def _batch_norm(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    scale = torch.rsqrt(variance + 1e-5)
    out = (x - mean[None, :, None, None]) * scale[None, :, None, None]
    return out.relu(), mean, variance


CASES: dict[str, tuple[Function, tuple[int, ...]]] = {
    "total": (lambda x: x.sum(), (6, 50)),
    "rows": (lambda x: (x.sum(1), x.amax(1)), (3, 400)),
    "columns": (lambda x: x.sum(0) * 2, (512, 5)),
    "all": (lambda x: ((x > -9).all(), (x > 9).any(1)), (4, 300)),
    "product": (lambda x: (x * 0.1 + 1).prod(1), (2, 128)),
    "softmax": (lambda x: x.softmax(-1), (2, 700)),
    "variance": (lambda x: torch.var_mean(x, 1), (3, 360)),
    "layer norm": (lambda x: torch.nn.functional.layer_norm(x, (360,)), (3, 360)),
    "batch norm": (_batch_norm, (8, 3, 6, 5)),
    "prime": (lambda x: x.sum(1), (2, 401)),
    "winner": (lambda x: (x.argmax(1), x.argmin(1), x.amax(1)), (3, 400)),
    "winner of all": (lambda x: (x * 2).argmax(), (6, 50)),
    "first of many": (lambda x: (x > 0.5).float().argmax(1), (3, 400)),
    "whole numbers": (lambda x: (x * 3).to(torch.int32).argmin(1), (3, 400)),
    "none is a number": (lambda x: torch.where(x > 1.5, torch.nan, x).argmax(1), (3, 400)),
    "element stores": (lambda x: (x * 2, (x * 2).sum(1)), (2, 256)),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_whole_loop(name: str) -> None:
    function, shape = CASES[name]
    x = torch.randn(shape)
    x.view(-1)[7] = 3.5
    done = against_eager(function, x, tolerance=1e-4, limits=SPLIT)
    whole = against_eager(function, x, tolerance=1e-4, limits=WHOLE)
    if name == "prime":
        assert len(done.loops) == len(whole.loops)
    else:
        assert len(done.loops) > len(whole.loops)


def _split(loop: Loop, limits: Limits = SPLIT) -> tuple[Loop, ...]:
    made: list[str] = []

    def new_buffer(shape: tuple[int, ...], dtype: torch.dtype) -> str:
        made.append(f"part{len(made)}")
        return made[-1]

    return split_loop(loop, limits, new_buffer)


def test_parts_are_enough_programs_and_long_enough() -> None:
    parts, rows = _split(loops.reduction("sum", 2, 4096, torch.float32, torch.float32))
    points = 1
    for axis in parts.x:
        assert isinstance(axis.size, int)
        points *= axis.size
    assert points >= SPLIT.split_programs
    assert sum(isinstance(i, Reduce) for i in (*parts.body, *rows.body)) == 2


@pytest.mark.parametrize(
    "loop",
    [
        loops.reduction("sum", 64, 4096, torch.float32, torch.float32),
        loops.reduction("sum", 2, 15, torch.float32, torch.float32),
        loops.pointwise("exp", 1, 4096, torch.float32, torch.float32),
        loops.scatter_add(64),
    ],
    ids=["rows enough", "short rows", "no reduction", "atomic"],
)
def test_what_does_not_profit_stays_whole(loop: Loop) -> None:
    assert _split(loop) == (loop,)


def test_columns_are_split_from_four_parts_on() -> None:
    """A program has few columns, and would go through the rows step by step."""
    limits = replace(Limits(), split_on=("cpu",))
    for function, shape, count in (
        (lambda x: x.sum(0), (4 * limits.split_part, 48), 2),
        (lambda x: x.sum(0), (4 * limits.split_part - 1, 48), 1),
        (lambda x: x.sum(1), (48, 4 * limits.split_part), 1),
    ):
        done = against_eager(function, torch.randn(shape), tolerance=1e-3, limits=limits)
        assert len(done.loops) == count, shape


def _centred(stored: tuple[str, ...], terms: int) -> Function:
    """Rows of products with a sum of so many `terms`, without their mean; and what is `stored`."""

    def function(x: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = others[0]
        for k in range(1, terms):
            total = total + others[k]
        made = {"sum": total, "product": x * total}
        return (*(made[name] for name in stored), made["product"] - made["product"].mean(0))

    return lambda x, a, b, c: function(x, a, b, c)


@pytest.mark.parametrize(
    ("stored", "terms", "read"),
    [
        ((), 2, 3),
        (("product",), 2, 1),
        (("product",), 1, 1),
        (("sum",), 2, 2),
        (("sum",), 3, 2),
        (("sum", "product"), 3, 1),
    ],
)
def test_the_rest_reads_what_the_parts_have_stored(
    stored: tuple[str, ...], terms: int, read: int
) -> None:
    """Instead of all that it is computed from, where that is more."""
    xs = [torch.randn(256, 3) for _ in range(4)]
    done = against_eager(_centred(stored, terms), *xs, tolerance=1e-4, limits=SPLIT)
    rest = done.loops[-1]
    assert not rest.r, "the last loop is the rest"
    loads = [i for i in rest.body if isinstance(i, Load)]
    assert len({i.buffer for i in loads if len(i.index.vars) == 2}) == read
