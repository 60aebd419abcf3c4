"""Derivatives of derivatives: captured, or left to torch, with the thread as it was."""

import itertools

import pytest
import torch
from flambeau_capture._torch_compat.state import dispatch_key_sets as keys
from torch.utils._pytree import tree_leaves

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


#: derivatives of what is computed of x, which was computed outside
BESIDE = {
    "by it": lambda x, w: grad_of((x**3 * w).sum(), x),
    "by both": lambda x, w: grad_of((x**3 * (w * 2)).sum(), [x, w]),
    "by one made here": lambda x, w: grad_of(((h := x.sin() * w) ** 3 * x).sum(), h),
    "by one written to": lambda x, w: grad_of(((h := (x * 1).mul_(w)) ** 3 * x).sum(), h),
    "of another": lambda x, w: (grad_of((w**3).sum(), w) * x.detach(), x * 2),
    "by a view of it": lambda x, w: grad_of(((h := x.t()) ** 3 * x).sum(), h),
}
#: those that are in one graph: whatever else came in, beside a leaf
IN_ONE = {"by one made here", "by one written to"}


def grad_of(loss, inputs):
    found = torch.autograd.grad(loss, inputs, create_graph=True)
    return sum(found) + loss


@pytest.mark.parametrize("kept", [None, "hook", "retain_grad"])
@pytest.mark.parametrize("other", ["leaf", "computed", "computed of it"])
@pytest.mark.parametrize("name", BESIDE)
def test_beside_a_tensor_that_was_computed_outside(capture, backend, same, name, other, kept):
    run = BESIDE[name]

    def played(fn):
        told = []
        for seed in range(2):
            torch.manual_seed(seed)
            leaf, w = (torch.randn(2, 2, requires_grad=True) for _ in range(2))
            x = leaf * 1.5
            second = {"leaf": w, "computed": w * 2, "computed of it": x * w}[other]
            if kept == "hook":
                x.register_hook(lambda g, told=told: told.append(g.clone()))
            if kept == "retain_grad":
                x.retain_grad()
            results = [*tree_leaves(fn(x, second))]
            sum(each.sum() for each in results).backward()
            told += [*(each.detach() for each in results), leaf.grad, w.grad]
            told += [x.grad] if kept == "retain_grad" else []
        return told

    expected = played(run)
    backend.clear()
    same(played(capture(run)), expected)
    if name in IN_ONE or (other == "leaf" and kept is None and name in ("by it", "of another")):
        assert len(backend) == 1
