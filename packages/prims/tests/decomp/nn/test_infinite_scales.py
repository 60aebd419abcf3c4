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
