"""Positions that a C++ kernel looks at as it writes there: what eager gives, or an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from torch import Tensor, fx

aten = torch.ops.aten
MORE, COLUMNS, BINS = 3000, 40, 17

Case = tuple[Callable[..., Tensor], list[Tensor], int]


def _cases() -> dict[str, Case]:
    """A program, its inputs, and how many of its index tensors kernels look at themselves."""
    places, others = torch.randint(0, BINS, (MORE,)), torch.randint(-BINS, BINS, (MORE,))
    values, grid = torch.randn(MORE), torch.randint(0, BINS, (COLUMNS, MORE))
    bins, table = torch.randn(BINS), torch.randn(COLUMNS, BINS)
    square = torch.randn(BINS, BINS)
    return {
        "bins": (lambda b, i, s: b.scatter_add(0, i, s), [bins, places, values], 1),
        "highest": (lambda b, i, s: b.scatter_reduce(0, i, s, "amax"), [bins, places, values], 1),
        "from the end": (
            lambda b, i, s: aten.index_put.default(b, (i,), s, True),
            [bins, others, values],
            1,
        ),
        "pairs": (
            lambda b, i, j, s: aten.index_put.default(b, (i, j), s, True),
            [square, places, others, values],
            2,
        ),
        "along rows": (
            lambda t, i, s: t.scatter_add(1, i, s),
            [table, grid, torch.randn(COLUMNS, MORE)],
            1,
        ),
        "down columns": (
            lambda t, i, s: t.scatter_add(0, i, s),
            [table.t().contiguous(), grid.t().contiguous(), torch.randn(MORE, COLUMNS)],
            1,
        ),
        "rows": (
            lambda t, i, s: t.index_add(0, i, s),
            [table.t().contiguous(), places, torch.randn(MORE, COLUMNS)],
            0,
        ),
    }


NAMES = list(_cases())


def _compiled(of: Callable[..., Tensor], args: Sequence[Tensor], cache: Path) -> Any:
    low = flambeau_prims.lower(fx.symbolic_trace(of), list(args))
    options = Options(cache_dir=str(cache), verify=True)
    return flambeau_inductor.compile(low, list(args), options=options)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_what_eager_writes(name: str, tmp_path: Path) -> None:
    of, args, looked = _cases()[name]
    done = _compiled(of, args, tmp_path)
    assert done.report.sources["wrapper.py"].count("if outside: check_index(") == looked
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert torch.equal(done(list(args))[0], of(*args))
    finally:
        torch.set_num_threads(before)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("bad", [BINS, -BINS - 1, 2**62, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("name", NAMES)
def test_a_bad_position_raises_as_in_eager(name: str, bad: int, tmp_path: Path) -> None:
    of, args, _ = _cases()[name]
    done = _compiled(of, args, tmp_path)
    for which in (k for k, each in enumerate(args) if each.dtype == torch.int64):
        for place in (0, args[which].numel() // 2, -1):
            given = [each.clone() for each in args]
            given[which].view(-1)[place] = bad
            with pytest.raises((IndexError, RuntimeError)):
                of(*given)
            said = re.escape(f"index {bad} is out of bounds")
            with pytest.raises((IndexError, RuntimeError), match=said):
                done(list(given))
    assert torch.equal(done(list(args))[0], of(*args))


def test_positions_that_are_computed_are_still_there_when_one_is_bad(tmp_path: Path) -> None:
    def of(bins: Tensor, places: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        moved = places * 2 + 1
        return bins.scatter_add(0, moved, values), moved.double() * 3

    args = [torch.zeros(BINS * 2 + 1), torch.randint(0, BINS, (MORE,)), torch.randn(MORE)]
    done = _compiled(of, args, tmp_path)  # type: ignore[arg-type]
    for found, wanted in zip(done(list(args)), of(*args), strict=True):
        assert torch.equal(found, wanted)
    args[1][7] = BINS
    with pytest.raises(RuntimeError, match=f"index {2 * BINS + 1} is out of bounds"):
        done(list(args))
