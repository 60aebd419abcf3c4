"""What a gradient scaler calls, against ATen's kernel: lists of any length and dtypes, finite and
not."""

import math

import flambeau_prims
import pytest
import torch

UNSCALE = torch.ops.aten._amp_foreach_non_finite_check_and_unscale


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("scale", [1.0, 0.125, 1 / 65536])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("bad", [None, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_unscaling(dtype, bad, count, scale, shape):
    torch.manual_seed(count)
    gradients = [torch.randn(2, n + 1).mul(1000).to(dtype) for n in range(count)]
    if bad is not None:
        gradients[-1][1, 0] = bad
    found, inverse = torch.zeros(shape), torch.full(shape, scale)
    if UNSCALE.default not in flambeau_prims.decompositions():
        pytest.skip("this torch has no functional form of the operator")
    rule = flambeau_prims.decompositions()[UNSCALE.default]
    expected = [[each.clone() for each in gradients], found.clone()]
    torch._amp_foreach_non_finite_check_and_unscale_(*expected, inverse)
    results, infinite = rule(gradients, found, inverse)
    assert (infinite.shape, infinite.dtype) == (expected[1].shape, expected[1].dtype)
    assert infinite.item() == expected[1].item() == float(bad is not None)
    for one, other in zip(results, expected[0], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
