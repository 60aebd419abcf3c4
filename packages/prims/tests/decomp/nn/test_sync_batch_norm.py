"""Batch normalization in pieces: put together it is batch normalization."""

import pytest
import torch
import torch.nn.functional as F
from flambeau_prims import decompositions

aten = torch.ops.aten
TABLE = decompositions()


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4, 5)])
def test_pieces(shape):
    torch.manual_seed(0)
    x, grad = torch.randn(2, *shape, dtype=torch.float64)
    weight, bias = torch.randn(2, 3, dtype=torch.float64)
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
    expected = F.batch_norm(leaves[0], None, None, leaves[1], leaves[2], True, eps=1e-3)
    grads = torch.autograd.grad(expected, leaves, grad)

    mean, invstd = TABLE[aten.batch_norm_stats.default](x, 1e-3)
    out = TABLE[aten.batch_norm_elemt.default](x, weight, bias, mean, invstd, 1e-3)
    torch.testing.assert_close(out, expected.detach())
    reduced = TABLE[aten.batch_norm_backward_reduce.default](
        grad, x, mean, invstd, weight, True, True, True
    )
    torch.testing.assert_close(tuple(reduced[2:]), grads[1:])
    count = torch.tensor([x.numel() // 3])
    dx = TABLE[aten.batch_norm_backward_elemt.default](
        grad, x, mean, invstd, weight, reduced[0], reduced[1], count
    )
    torch.testing.assert_close(dx, grads[0])
