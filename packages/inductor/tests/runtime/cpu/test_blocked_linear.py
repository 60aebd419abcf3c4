"""Large products by blocks: the numbers of one call, in memory that is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor._torch_compat import onednn_linear
from flambeau_inductor.runtime.cpu import blocked_linear
from flambeau_inductor.runtime.cpu.blocked_linear import IN_BLOCKS, in_blocks
from flambeau_inductor.runtime.operators import operator
from flambeau_inductor.tuning import host_tuning
from flambeau_inductor.wrapper import source
from torch import Tensor, fx

pytestmark = pytest.mark.skipif(onednn_linear() is None, reason="torch was built without oneDNN")

PLAIN, BINARY = IN_BLOCKS


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, for matrices that are soon computed."""
    sizes: dict[str, Any] = {
        "linear_block_bytes": 1 << 12,
        "linear_most_bytes": 1 << 14,
        "linear_block_rows": 8,
    }
    monkeypatch.setattr(blocked_linear, "host_tuning", lambda: replace(host_tuning(), **sizes))


def _allocated(made: list[Tensor]) -> Callable[..., Tensor]:
    def allocate(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
        made.append(torch.full(tuple(shape), float("nan"), dtype=dtype))
        assert made[-1].stride() == tuple(stride)
        return made[-1]

    return allocate


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("turned", [False, True], ids=["row-major", "turned"])
@pytest.mark.parametrize(("rows", "columns"), [(37, 501), (501, 37), (1, 900), (70, 70)])
def test_blocks_are_what_one_call_gives(rows: int, columns: int, turned: bool) -> None:
    x, weight, bias = torch.randn(rows, 48), torch.randn(columns, 48), torch.randn(columns)
    if turned:
        x, weight = x.t().contiguous().t(), weight.t().contiguous().t()
    made: list[Tensor] = []
    for row in (None, bias):
        for after in (("none", [], ""), ("leaky_relu", [0.1], "")):
            found = in_blocks(PLAIN, _allocated(made))(x, weight, row, *after)
            assert found is made[-1]
            torch.testing.assert_close(found, operator(PLAIN)(x, weight, row, *after))
        other = torch.randn(rows, columns)
        found = in_blocks(BINARY, _allocated(made))(x, other, weight, row, "add")
        torch.testing.assert_close(found, operator(BINARY)(x, other, weight, row, "add"))


def test_another_sum_is_refused() -> None:
    x = torch.randn(8, 8)
    with pytest.raises(ValueError, match="mul"):
        in_blocks(BINARY, _allocated([]))(x, x, x, None, "mul")


@pytest.mark.usefixtures("small")
def test_a_large_result_is_computed_by_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return x @ y

    monkeypatch.setattr(source, "RETURNED", 1 << 18)
    options = Options(cache_dir=str(tmp_path), products="onednn")
    for columns, expected in ((100, 0), (1000, 1)):
        args = [torch.randn(150, 200), torch.randn(200, columns)]
        low = flambeau_prims.lower(fx.symbolic_trace(fn), args)
        done = flambeau_inductor.compile(low, args, options=options)
        text = done.report.sources["wrapper.py"]
        assert text.count("= in_blocks(") == expected
        assert not expected or ", kept)" in text
        (found,) = done(list(args))
        torch.testing.assert_close(found, fn(*args), rtol=1e-5, atol=1e-4)
        again, wanted = done(list(args)), fn(*args)
        torch.testing.assert_close(again[0], wanted, rtol=1e-5, atol=1e-4)
        assert again[0].data_ptr() != found.data_ptr()
