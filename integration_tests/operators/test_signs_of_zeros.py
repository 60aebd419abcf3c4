"""Signs of zeros, bit by bit against eager: sums begin with 0, so that those of -0 alone are 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import flambeau

SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-1),
    "sum, first": lambda x: x.sum(0, keepdim=True),
    "sum of all": lambda x: x.sum(),
    "nansum": lambda x: x.nansum(-1),
    "mean": lambda x: x.mean(-1),
    "mean beside a variance": lambda x: torch.var_mean(x, -1)[1],
    "cumsum": lambda x: x.cumsum(0),
    "cumsum, last": lambda x: x.cumsum(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "windows": lambda x: x.unfold(0, 1, 1).sum(-1),
    "trace": lambda x: x[:1, :1].trace(),
    "prod": lambda x: x.prod(-1),
    "cumprod": lambda x: x.cumprod(-1),
    "amax": lambda x: x.amax(-1),
    "pixels": lambda x: torch.nn.functional.avg_pool1d(x[None], 1),
}
SHAPES = ((1, 3), (3, 1), (1, 1), (3, 4))


def bits(results: list[Tensor]) -> list[tuple[list[float], list[bool]]]:
    return [(x.double().flatten().tolist(), x.signbit().flatten().tolist()) for x in results]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dynamic", [None, True])
def test_sums_of_negative_zeros(dtype: torch.dtype, dynamic: bool | None) -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [each(x) for each in SUMS.values()]

    compiled = flambeau.compile(f, dynamic=dynamic)
    for shape in SHAPES:
        x = torch.full(shape, -0.0, dtype=dtype)
        for name, ours, eager in zip(SUMS, bits(compiled(x)), bits(f(x)), strict=True):
            assert str(ours) == str(eager), f"{name} of {shape}"
    assert not flambeau.report(compiled).fallbacks
