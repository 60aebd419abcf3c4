"""Normalizations whose scale is infinite, of variances and an `eps` that add up to nothing or less:
every operator, of each dtype and memory format, with and without weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from flambeau_prims.conformance import Decomposing
from torch import Tensor

#: values of a channel with an exact mean and variance
CHANNELS = {"one value": [3.0] * 4, "zeros": [0.0] * 4, "twos": [2.0, 0.0, 2.0, 0.0]}
CHANNELS |= {"negative": [-2.0, 0.0, -2.0, 0.0], "far": [1.0, 1.0, 1.0, -3.0]}

Normalization = Callable[[Tensor, float, list[Tensor | None], Tensor, Tensor], Tensor]
OPERATORS: dict[str, Normalization] = {
    "group": lambda x, eps, scaled, *_: torch.group_norm(x, 3, *scaled, eps),
    "batch": lambda x, eps, scaled, mean, variance: torch.batch_norm(
        x, *scaled, mean.clone(), variance.clone(), True, 0.1, eps, False
    ),
    "running": lambda x, eps, scaled, mean, variance: torch.batch_norm(
        x, *scaled, mean, variance, False, 0.1, eps, False
    ),
    "layer": lambda x, eps, *_: torch.layer_norm(x, [2, 2], None, None, eps),
    "root mean square": lambda x, eps, *_: torch.rms_norm(x, [2, 2], None, eps),
    "instance": lambda x, eps, scaled, *_: torch.instance_norm(
        x, *scaled, None, None, True, 0.1, eps, False
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_as_eager(name: str) -> None:
    wrong = []
    dtypes = (torch.float32, torch.bfloat16, torch.float64)
    formats = (torch.contiguous_format, torch.channels_last)
    for channel, dtype, eps, laid, weighed in product(
        CHANNELS, dtypes, (-3.0, -1.0, 0.0), formats, (False, True)
    ):
        own = torch.float64 if dtype == torch.float64 else torch.float32
        x = torch.tensor(CHANNELS[channel] * 6, dtype=dtype).reshape(1, 6, 2, 2)
        x = x.to(memory_format=laid)
        scaled: list[Tensor | None] = [None, None]
        if weighed:
            pair = ([0.5, -1, 2, 1, 1, 0], [0, 0.5, 1, 0, 0, 0])
            scaled = [torch.tensor(each, dtype=own) for each in pair]
        mean = torch.tensor([0, 1, -1, 2, 0, 0], dtype=own)
        variance = torch.tensor([1, 0, 3, 1, 1, 1], dtype=own)

        def call(x=x, eps=eps, scaled=scaled, mean=mean, variance=variance) -> Tensor:
            return OPERATORS[name](x, eps, scaled, mean, variance)

        expected = call()
        with Decomposing():
            found = call()
        if not torch.allclose(found, expected, rtol=0.02, atol=0.01, equal_nan=True):
            wrong.append((channel, dtype, eps, laid, weighed))
    assert not wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_large_weights_of_groups_overflow_where_eager_s_do(dtype: torch.dtype) -> None:
    """Eager has a scale and a constant for each channel: their products overflow before others."""
    most, generator = torch.finfo(dtype).max, torch.Generator().manual_seed(0)
    weight = torch.tensor([torch.inf, most, -most / 2, 1, torch.nan, 0]).to(dtype)
    shapes = ((2, 6), (2, 6, 5), (1, 6, 3, 4), (3, 6, 4, 4))
    for shape, groups, both, last in product(shapes, (1, 2, 3), (False, True), (False, True)):
        x = torch.randn(shape, generator=generator).to(dtype)
        x = x.to(memory_format=torch.channels_last) if last and x.dim() == 4 else x
        bias = torch.randn(6, generator=generator).to(dtype) if both else None
        expected = torch.group_norm(x, groups, weight, bias)
        with Decomposing() as seen:
            found = torch.group_norm(x, groups, weight, bias)
        assert seen.decomposed["aten.native_group_norm.default"]
        torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02, equal_nan=True)
