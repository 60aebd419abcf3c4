"""Derivatives of derivatives: captured, or left to torch, with the thread as it was."""

import itertools

import pytest
import torch
from flambeau_capture._torch_compat.state import dispatch_key_sets as keys

DERIVATIVES = (torch.func.jacrev, torch.func.jacfwd, torch.func.hessian)
FUNCTIONS = (lambda a, b: (a.prod() * b * 0.5).sum(), lambda a, b: (a.sin() * a[0] * b).sum())


@pytest.mark.sweep(3)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("outer, inner", [*itertools.product(DERIVATIVES, repeat=2)])
def test_a_thread_is_as_it_was_after_a_derivative_of_a_derivative(capture, outer, inner, function):
    """Where torch refuses one of the operators, the error holds guards of the thread's keys."""

    def of(a, b):
        return outer(lambda *args: (inner(function)(*args) * 2).sum(), argnums=1)(a, b)

    given = torch.linspace(0.5, 1.5, 4).view(2, 2), torch.ones(2, 2)
    before = keys()
    answer = capture(of)(*given)
    assert keys() == before
    torch.testing.assert_close(answer, of(*given))
