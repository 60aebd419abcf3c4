"""Numbers that fill a tensor: what eager takes is taken, what it refuses is refused by name."""

from __future__ import annotations

import math

import flambeau_prims
import pytest
import torch

aten = torch.ops.aten
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
NUMBERS = (
    *(0, 1, -1, 127, 128, -128, -129, 255, 256, -255, -256, 2**31 - 1, 2**31, -(2**31) - 1),
    *(0.5, -0.5, 65504.0, 65536.0, -1e9, 3e38, 3.4e38, 1e39, -1e39, 1e300, 1e308),
    *(math.inf, -math.inf, math.nan, True),
)
CALLS = {
    aten.full.default: lambda n, dtype: (([2], n), {"dtype": dtype}),
    aten.full_like.default: lambda n, dtype: ((torch.ones(2, dtype=dtype), n), {}),
    aten.new_full.default: lambda n, dtype: ((torch.ones(2, dtype=dtype), [3], n), {}),
    aten.fill.Scalar: lambda n, dtype: ((torch.ones(2, dtype=dtype), n), {}),
    aten.masked_fill.Scalar: lambda n, dtype: (
        (torch.ones(2, dtype=dtype), torch.tensor([True, False]), n),
        {},
    ),
}


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
@pytest.mark.parametrize("op", CALLS, ids=str)
def test_a_number_fits_where_eager_takes_it(op: torch._ops.OpOverload, dtype: torch.dtype) -> None:
    rule = flambeau_prims.decompositions()[op]
    for number in NUMBERS:
        args, kwargs = CALLS[op](number, dtype)
        try:
            expected = op(*args, **kwargs)
        except RuntimeError:
            with pytest.raises(flambeau_prims.PrimError):
                rule(*args, **kwargs)
            continue
        given = rule(*args, **kwargs)
        torch.testing.assert_close(given, expected, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool, torch.complex64], ids=str)
def test_a_number_that_is_copied_is_converted(dtype: torch.dtype) -> None:
    """As elements are: nothing is refused."""
    rule = flambeau_prims.decompositions()[aten.copy.default]
    for number in (*NUMBERS, 1e-300, 2 + 1j):
        if dtype in INTEGERS and isinstance(number, float) and not abs(number) < 100:
            continue  # C leaves it open
        expected = torch.ones(2, dtype=dtype).copy_(number)
        given = rule(torch.ones(2, dtype=dtype), number)
        torch.testing.assert_close(given, expected, equal_nan=True, rtol=0, atol=0)
