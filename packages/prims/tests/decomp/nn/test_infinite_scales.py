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


aten = torch.ops.aten
NATIVE: dict[str, Callable[[Tensor, list[Tensor | None]], tuple[Tensor, ...]]] = {
    "batch": lambda x, scaled: aten.native_batch_norm(
        x, *scaled, torch.zeros(6), torch.ones(6), True, 0.1, 1e-5
    ),
    "running": lambda x, scaled: aten.native_batch_norm(
        x, *scaled, torch.ones(6), torch.ones(6), False, 0.1, 1e-5
    ),
    "group": lambda x, scaled: aten.native_group_norm(
        x.contiguous(), *scaled, x.shape[0], 6, x[0, 0].numel(), 3, 1e-5
    ),
    "layer": lambda x, scaled: aten.native_layer_norm(
        x.flatten(2).transpose(1, 2), [6], *scaled, 1e-5
    ),
}


@pytest.mark.parametrize("name", NATIVE)
def test_infinite_elements_and_weights_give_eager_s_results_and_statistics(name: str) -> None:
    """A mean of infinities is infinite where eager divides a sum, and none where it goes on by
    differences; a product by a weight overflows before or after the constant is added to it."""
    inf, nan = torch.inf, torch.nan
    generator = torch.Generator().manual_seed(0)
    draws = {"infinite": (inf, inf, 1.0), "both": (inf, -inf), "nan": (nan, inf), "plain": (1.0,)}
    weights = ([inf, -inf, nan, 0, 2, -1], [1, 2, 0, -0.0, 3e38, inf], None)
    shapes = ((3, 6, 1), (2, 6, 5), (2, 6, 3, 3))
    for shape, drawn, weight, last in product(shapes, draws, weights, (False, True)):
        x = torch.randn(shape, generator=generator)
        values = torch.tensor(draws[drawn])
        picked = values[torch.randint(len(values), (6,), generator=generator)]
        x[0, :, 0] = picked if x.ndim == 3 else picked[:, None]
        x = x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x
        own = weight and torch.tensor(weight, dtype=torch.float32)
        scaled = [own, own if own is None else own.flip(0)]
        expected = NATIVE[name](x, scaled)
        with Decomposing() as seen:
            found = NATIVE[name](x, scaled)
        assert any("native" in op for op in seen.decomposed)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4, equal_nan=True)
