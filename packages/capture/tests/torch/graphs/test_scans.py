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


def uneven(left, right):
    """Of no associative function: the order of calls shows."""
    return (left - 0.5 * right) / (1 + left.abs()) + (right - 3).abs().sqrt()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("program", [combine, uneven])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_length_that_is_open_is_scanned_in_the_same_order(capture, backend, reverse, program):
    several = program is combine
    weight = torch.tensor(1.5, requires_grad=True)

    def fn(x):
        given = (x * weight, x.sin()) if several else x * weight
        mode = "generic"
        found = associative_scan(program, given, dim=0, reverse=reverse, combine_mode=mode)
        return sum(found) if several else found

    compiled = capture(fn)
    for length in (5, 3, 4, 2, 9, 16, 7, 17, 1):
        x = torch.rand(length, 3) + 0.5
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        grads = []
        for called, given in ((compiled, one), (fn, other)):
            weight.grad = None
            found = called(given)
            found.square().sum().backward()
            grads.append((found.detach(), given.grad, weight.grad))
        torch.testing.assert_close(grads[0], grads[1])
    # of 5, of 1, and of each range between two powers of two
    assert len(backend) <= 7
