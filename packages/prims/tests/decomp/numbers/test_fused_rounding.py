"""Operators that eager's kernels compute a product and a sum for round once, as those do."""

import pytest
import torch
from flambeau_prims.conformance import Decomposing

CALLS = {
    "addcmul": torch.addcmul,
    "addcmul of a factor": lambda x, y, z: torch.addcmul(x, y, z, value=0.3),
    "add": lambda x, y, z: torch.add(x, y, alpha=0.3),
    "sub": lambda x, y, z: torch.sub(x, y, alpha=0.3),
    "rsub": lambda x, y, z: torch.rsub(x, y, alpha=0.3),
    "addcdiv": lambda x, y, z: torch.addcdiv(x, y, z, value=0.3),
    "lerp": torch.lerp,
    "lerp near the start": lambda x, y, z: torch.lerp(x, y, 0.3),
    "lerp near the end": lambda x, y, z: torch.lerp(x, y, 0.8),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CALLS)
def test_bits_are_those_of_eager(name, dtype):
    for count in (1, 7, 16, 301):
        x, y, z = (torch.randn(count, dtype=dtype) for _ in range(3))
        with Decomposing():
            found = CALLS[name](x, y, z)
        assert torch.equal(found, CALLS[name](x, y, z))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logarithms_of_sums_of_powers(dtype):
    """By whole vectors: the elements after the last have another library's logarithm."""
    x, y = torch.randn(2, 4096, dtype=dtype) * 5
    for a, b in ((x, y), (x, x), (x, x + 1)):
        with Decomposing():
            found = torch.logaddexp2(a, b)
        assert torch.equal(found, torch.logaddexp2(a, b))


def test_a_product_beyond_all_numbers_is_none_if_the_sum_is_not():
    a, b = torch.full((16,), 3e38), torch.full((16,), -2.5)
    with Decomposing():
        found = torch.addcmul(a, a, b, value=0.5)
    assert torch.equal(found, torch.addcmul(a, a, b, value=0.5)) and found.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_whole_and_complex_numbers(dtype):
    x, y, z = (torch.arange(6).to(dtype) + n for n in range(3))
    with Decomposing():
        found = torch.addcmul(x, y, z, value=2), torch.add(x, y, alpha=3), torch.sub(x, y, alpha=3)
    torch.testing.assert_close(found[0], torch.addcmul(x, y, z, value=2))
    torch.testing.assert_close(found[1:], (x + 3 * y, x - 3 * y))
