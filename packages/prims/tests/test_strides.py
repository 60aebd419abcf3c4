"""Strides of what decompositions give, against eager's, for inputs in every order of memory."""

import itertools

import pytest
import torch
from flambeau_prims.conformance import Decomposing

INDEX = torch.tensor([2, 0, 1, 1])
SQUARE = torch.tensor([[2, 0], [1, 1]])
CALLS = {
    "one index": lambda x: x[INDEX],
    "one of two dimensions": lambda x: x[SQUARE],
    "one that is turned": lambda x: x[:, SQUARE.t()],
    "the last": lambda x: x[:, :, INDEX],
    "two beside each other": lambda x: x[:, INDEX, INDEX],
    "two apart": lambda x: x[INDEX, :, INDEX],
    "a row and a column": lambda x: x[INDEX[:, None], INDEX[None, :3]],
    "all": lambda x: x[SQUARE, SQUARE.t(), SQUARE],
    "take_along_dim": lambda x: x.take_along_dim(INDEX.view(4, 1, 1), 0),
    "renorm": lambda x: x.renorm(2, 0, 1.0),
    "mvlgamma": lambda x: (x.abs() + 3).mvlgamma(2),
    "addr": lambda x: x[0].addr(x[0, 0], x[0, 1]),
    "addr of a column": lambda x: x[0].t().addr(x[0, :, 0], x[0, :, 1]),
    "index_put": lambda x: x.index_put((INDEX,), x[:1]),
    "index_put by a mask": lambda x: x.index_put((x[0, 0] > 0,), x[:1, :1]),
    "index_put of a row": lambda x: x.index_put((x[:, 0, 0] > 0,), x[0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_eager(name):
    dense = torch.randn(4, 4, 4)
    for order in itertools.permutations(range(3)):
        inverse = sorted(range(3), key=order.__getitem__)
        x = dense.permute(order).contiguous().permute(inverse)
        for given in (x, x[:, :, :], torch.stack([x, x], -1)[..., 0]):
            expected = CALLS[name](given)
            with Decomposing():
                found = CALLS[name](given)
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride(), order
