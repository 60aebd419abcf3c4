"""torch's associative scan: the running results of a loop, in one graph of few operators."""

import itertools

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan


def combine(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


def by_loop(a, b, reverse):
    steps = list(range(a.shape[1]))
    steps = steps[::-1] if reverse else steps
    found = {steps[0]: (a[:, steps[0]], b[:, steps[0]])}
    for before, now in itertools.pairwise(steps):
        found[now] = combine(found[before], (a[:, now], b[:, now]))
    return tuple(torch.stack([found[n][k] for n in range(a.shape[1])], 1) for k in (0, 1))


@pytest.mark.parametrize("mode", ["pointwise", "generic"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_it_is_the_loop(capture, backend, length, reverse, mode):
    def fn(a, b):
        return associative_scan(combine, (a, b), dim=1, reverse=reverse, combine_mode=mode)

    a, b = torch.rand(2, length, 3), torch.rand(2, length, 3)
    found = capture(fn)(a, b)
    for one, other in zip(found, by_loop(a, b, reverse)):
        torch.testing.assert_close(one, other)
    assert len(backend) == 1
