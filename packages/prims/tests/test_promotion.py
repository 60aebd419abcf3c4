"""Promotion and broadcasting against torch's."""

import itertools

import pytest
import torch
from flambeau_prims import PrimError
from flambeau_prims.promotion import broadcast_shapes, result_type

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
OPERANDS = (
    [torch.ones(2, dtype=d) for d in DTYPES]
    + [torch.ones((), dtype=d) for d in DTYPES]
    + [True, 2, 2.5, 2j]
)


def test_pairs_agree_with_torch():
    compared = 0
    for a, b in itertools.product(OPERANDS, repeat=2):
        assert result_type((a, b)) == torch.result_type(a, b), (a, b)
        compared += 1
    assert compared == len(OPERANDS) ** 2


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_default_dtype(default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        x = torch.ones(2, dtype=torch.int64)
        assert result_type((x, 2.5)) == torch.result_type(x, 2.5) == default
    finally:
        torch.set_default_dtype(before)


def test_broadcast():
    pool = [(), (1,), (3,), (2, 1), (2, 3), (4, 1, 3), (0, 3), (1, 1)]
    for a, b in itertools.product(pool, repeat=2):
        try:
            expected = tuple(torch.broadcast_shapes(a, b))
        except RuntimeError:
            with pytest.raises(PrimError):
                broadcast_shapes(a, b)
        else:
            assert broadcast_shapes(a, b) == expected
