"""Rows whose elements repeat: what reads a tensor through a broadcast that is reshaped, repeated,
turned or put together again compiles under every reduction, normalisation and scan, and agrees.

The family: ways to repeat x what goes along rows or down columns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.passes.primitive_passes import rewrite
from torch import Tensor, fx
from torch.nn import functional as F

ROWS, COLUMNS = 6, 32

REPEATED: dict[str, Callable[[Tensor], Tensor]] = {
    "inner": lambda x: x[:, :, None].expand(ROWS, COLUMNS, 8).reshape(ROWS, 8 * COLUMNS),
    "outer": lambda x: x[:, None, :].expand(ROWS, 3, COLUMNS).reshape(ROWS, 3 * COLUMNS),
    "rows": lambda x: x[None].expand(3, ROWS, COLUMNS).reshape(3 * ROWS, COLUMNS),
    "interleaved": lambda x: x.repeat_interleave(5, -1),
    "interleaved rows": lambda x: x.repeat_interleave(2, 0),
    "tiled": lambda x: x.repeat(2, 3),
    "nearest": lambda x: F.interpolate(x[None, None], scale_factor=2.0)[0, 0],
    "rolled": lambda x: x.roll((1, 2), (0, 1)),
    "flipped": lambda x: x.flip(1),
    "stacked": lambda x: torch.stack([x, x, x], 2).reshape(ROWS, 3 * COLUMNS),
    "joined": lambda x: torch.cat([x[:, :1].expand(ROWS, COLUMNS), x], 1),
    "diagonal": lambda x: x.diagonal()[None].expand(9, ROWS),
    "column": lambda x: x[:, :1].expand(ROWS, 17),
    "number": lambda x: x[0, 0].expand(ROWS, 17),
    "constant": lambda x: x.new_full((ROWS, 17), 0.5),
    "computed": lambda x: x.exp().repeat_interleave(4, -1) + x.repeat(1, 4),
}


def _method(name: str, dim: int) -> Callable[[Tensor], Tensor]:
    return lambda x: getattr(x, name)(dim)  # type: ignore[no-any-return]


TAKEN: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        f"{name} {dim}": _method(name, dim)
        for name in (
            "softmax", "log_softmax", "logsumexp", "cumsum", "logcumsumexp", "sum", "amax",
            "argmax", "prod", "var",
        )
        for dim in (0, 1)
    },
    "twice": lambda x: (x.softmax(-1) * x).softmax(-1),
    "of gelu": lambda x: F.gelu(x).softmax(-1),
    "centred": lambda x: (torch.erf(x) - x.mean(-1, keepdim=True)).softmax(-1).sum(0),
    "unit": lambda x: F.normalize(x, dim=1),
}  # fmt: skip


GROUPS = {
    name: list(TAKEN)[first::4] for first, name in enumerate(("first", "second", "third", "fourth"))
}
"""What goes along rows, every fourth each: one program of each way and group, since a compiler with
sanitizers takes more than its share of time for a long one."""


@pytest.mark.sweep(20)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("way", REPEATED)
@pytest.mark.parametrize("kernels", ["cpp", "triton"])
def test_rows_of_repeated_elements(kernels: str, way: str, group: str, tmp_path: Path) -> None:
    names = GROUPS[group]
    if kernels == "triton":
        pytest.importorskip("triton", reason="triton is not installed")
        names = [name for name in names if not name.startswith(("cum", "logcum"))]

    def whole(x: Tensor) -> Any:
        made = REPEATED[way](x)
        return tuple(TAKEN[name](made) for name in names)

    x = torch.randn(ROWS, COLUMNS)
    low = rewrite(flambeau_prims.lower(fx.symbolic_trace(whole), [x]))
    options = Options(kernels=kernels, cache_dir=str(tmp_path), verify=True)
    found = flambeau_inductor.compile(low, [x], options=options)([x])
    for label, got, want in zip(names, found, whole(x), strict=True):
        torch.testing.assert_close(
            got, want, rtol=1e-4, atol=1e-5, msg=lambda text, label=label: f"{label}: {text}"
        )
