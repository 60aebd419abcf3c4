"""Calls in which what a graph assumes of data does not hold have eager's answer, its writes and its
random numbers. Generated: what is assumed, beside each effect that a graph may leave, where it
holds, where it does not, and where it holds again."""

from __future__ import annotations

import math

import pytest
import torch

import flambeau

ASSUMED = {
    "maximum with one": (lambda x: 1 / max(1, x.sum() - 5), (7.0, 2.0)),
    "maximum of a number": (lambda x: x * (1 / max(1, x.sum().item() - 5)), (7.0, 2.0)),
    "maximum with nothing": (lambda x: x / max(x.sum() - 5, 0), (7.0, 2.0)),
    **{
        f"{fn.__name__} of a large number": (lambda x, f=fn: x * f(x.sum().item()), (7.5, 2.0**60))
        for fn in (int, math.floor, math.ceil, math.trunc)
    },
    "some elements": (lambda x: x + 1 if len(x[x > 2]) else x - 1, (7.0, 1.0)),
}
BESIDE = {
    "nothing": lambda x, kept: x * 2,
    "a draw": lambda x, kept: x + torch.rand(2),
    "draws": lambda x, kept: torch.dropout(x, 0.5, True) + torch.randn(2),
    "a write": lambda x, kept: kept.add_(x) * 2,
    "a write of a draw": lambda x, kept: kept.add_(torch.rand(2)) + x,
}


def played(fn, values):
    kept, found = torch.zeros(2), []
    torch.manual_seed(0)
    for value in (*values, values[0]):
        try:
            made = fn(torch.tensor([value, 0.0]), kept)
        except Exception as error:
            made = type(error).__name__, str(error)
        found.append((made, kept.clone(), torch.rand(1)))
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("assumed", ASSUMED)
def test_not_in_general(assumed, beside, backend):
    decided, values = ASSUMED[assumed]

    def fn(x, kept):
        return BESIDE[beside](x, kept), decided(x)

    compiled = flambeau.compile(fn, backend=backend)
    want, got = played(fn, values), played(compiled, values)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
