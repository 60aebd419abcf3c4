"""What cancels exactly in eager's backward of batch normalisation does in its decomposition."""

import pytest
import torch
from flambeau_prims import lower
from torch import fx

aten = torch.ops.aten


@pytest.mark.parametrize("batch", [2, 4, 8])
@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 4, 2)])
def test_a_gradient_of_one_value_gives_zeros(batch, shape):
    """The input is of whole numbers, the mean of so many of them exact: their distances from it
    add up to nothing."""
    g = torch.Generator().manual_seed(batch)
    x = torch.randint(-4, 5, (batch, *shape), generator=g).float()
    weight, nothing = torch.rand(3, generator=g), torch.zeros(3)
    _, mean, rstd = aten.native_batch_norm(x, weight, nothing, None, None, True, 0.1, 1e-5)

    def backward(grad, x, weight, mean, rstd):
        return aten.native_batch_norm_backward(
            grad, x, weight, None, None, mean, rstd, True, 1e-5, [True, True, True]
        )

    given = [torch.ones_like(x), x, weight, mean, rstd]
    wanted = backward(*given)
    got = lower(fx.symbolic_trace(backward), given)(*given)
    assert not wanted[0].any() and not wanted[1].any()
    for one, other in zip(wanted, got, strict=True):
        assert torch.equal(one, other)
