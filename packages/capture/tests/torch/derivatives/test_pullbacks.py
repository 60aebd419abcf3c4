"""`torch.func.vjp` and `linearize`: the result and the derivative are one graph."""

import pytest
import torch
from flambeau_capture.graph.functions import linear_call


def x(*shape, grad=False):
    return torch.randn(*shape, requires_grad=grad)


def pulled(a, weight):
    out, pullback = torch.func.vjp(lambda t: (t**2).sum(-1), a)
    return out, pullback(weight)[0] * 2


def of_trees(a, b):
    def fn(tree):
        return {"a": tree["u"] * b, "b": tree["v"].sin()}, tree["u"].sum()

    out, pullback, aux = torch.func.vjp(fn, {"u": a, "v": a * 2}, has_aux=True)
    return out, pullback({"a": a, "b": a}), aux


def linear(a):
    out, derivative = torch.func.linearize(torch.sin, a)
    return out, derivative(a), derivative(a * 2)


def twice(a):
    out, pullback = torch.func.vjp(torch.sin, a)
    return out, pullback(a, retain_graph=True), pullback(out)


def dropped(a):
    out, pullback = torch.func.vjp(lambda t: torch.nn.functional.dropout(t, 0.5), a)
    return out, pullback(torch.ones_like(a))


@pytest.mark.parametrize(
    "fn, args",
    [
        (pulled, (x(3, 2), torch.ones(3))),
        (pulled, (x(3, 2, grad=True), torch.ones(3))),
        (of_trees, (x(3), x(3))),
        (linear, (x(3),)),
        (twice, (x(3),)),
        (dropped, (x(20),)),
    ],
)
def test_a_result_and_its_derivative_are_one_graph(agree, fn, args):
    agree(fn, *args)


def test_a_pullback_is_called_under_vmap_by_torch(agree):
    def fn(a):
        _, pullback = torch.func.vjp(torch.sin, a)
        return torch.stack([pullback(row)[0] for row in torch.eye(3)])

    agree(fn, x(3))


def test_a_derivative_that_leaves_is_made_in_python(capture, backend):
    def fn(a):
        b = a + 1
        out, pullback = torch.func.vjp(torch.sin, b)
        return out.cos(), pullback

    a = x(3)
    out, pullback = capture(fn)(a)
    assert torch.equal(out, (a + 1).sin().cos())
    assert torch.allclose(pullback(torch.ones(3))[0], (a + 1).cos())
    assert len(backend) == 2


def test_a_linear_function_of_what_is_written_to_afterwards_keeps_its_place(agree):
    def fn(a):
        b = a.clone()
        out, derivative = torch.func.linearize(torch.sin, b)
        b.add_(1)
        return out, derivative(a), b

    agree(fn, x(3), graphs=None)


def tangent(function):
    def of(a):
        return torch.func.linearize(function, a)[1](torch.ones_like(a))

    return of


AROUND = {
    "itself": lambda fn: fn,
    "jvp": lambda fn: lambda a: torch.func.jvp(fn, (a,), (torch.ones_like(a),))[1],
    "vmap": torch.func.vmap,
}


@pytest.mark.sweep(4)
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr")
@pytest.mark.parametrize("function", [torch.sin, lambda t: t * 2 + t.sum(), lambda t: t.detach()])
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("grad", [False, True])
def test_a_linear_function_is_constant_in_its_primals(capture, function, around, grad):
    """Eager folds the primals into it, so no gradient reaches them; nor may it be transformed."""
    fn = around(tangent(function))
    seen = []
    for run in (fn, capture(fn)):
        a = torch.linspace(0.5, 1.5, 3).requires_grad_(grad)
        try:
            out = run(a)
        except RuntimeError:
            seen.append(None)
            continue
        if out.requires_grad:
            out.sum().backward()
        seen.append((out.detach(), out.requires_grad, a.grad))
    torch.testing.assert_close(*seen)


def test_a_function_with_side_effects_is_left_to_python(agree):
    seen = []

    def fn(a):
        def inner(t):
            seen.append(1)
            return t.sin()

        out, pullback = torch.func.vjp(inner, a)
        return out + pullback(a)[0]

    agree(fn, x(3), graphs=None, calls=1)
    assert seen == [1, 1]  # once captured, once in eager


OUTSIDE = torch.ones(3, 3)
OF_TWO = {
    "plain": (True, lambda a, b: a.sin() * b),
    "products": (True, lambda a, b: (a @ b.t()).cumsum(-1)[1:]),
    "zeros": (True, lambda a, b: (a.sign(), b.floor())),
    "detached": (True, lambda a, b: a.detach() * b),
    "write": (False, lambda a, b: a.clone().mul_(b)),
    "part": (False, lambda a, b: torch.zeros_like(a).index_copy_(0, torch.tensor([0]), a[:1]) * b),
    "draw": (False, lambda a, b: a * torch.rand_like(b)),
    "indices": (False, lambda a, b: tuple(a.sort(-1))),
    "constant": (False, lambda a, b: OUTSIDE * 2),
    "number": (False, lambda a, b: (a.sum(), 3)),
    "itself": (False, lambda a, b: b),
    "view": (False, lambda a, b: (a * 2, b.t())),
    "twice": (False, lambda a, b: [a.sin()] * 2),
    "mapped": (False, torch.func.vmap(lambda a, b: a * b)),
    "inner derivative": (False, torch.func.jacrev(lambda a, b: (a * b).sin())),
}


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr")
@pytest.mark.parametrize("whole, function", OF_TWO.values(), ids=OF_TWO)
def test_a_linear_function_is_the_recording_that_eager_makes(capture, backend, whole, function):
    """Where that is more than the derivative of what is pure, it is left to eager."""

    def fn(a, b):
        return torch.func.linearize(function, a, b)[1](a, b)

    seen = []
    for run in (fn, capture(fn)):
        torch.manual_seed(0)
        given = (x(3, 3), x(3, 3))
        leaves = torch.utils._pytree.tree_leaves(run(*given))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        held = [t.untyped_storage()._cdata for t in (*given, *tensors)]
        about = [(type(t), t.stride(), held.index(t.untyped_storage()._cdata)) for t in tensors]
        seen.append((leaves, about))
    torch.testing.assert_close(seen[0][0], seen[1][0], equal_nan=True)
    assert seen[0][1] == seen[1][1]
    calls = [node.target for graph in backend.graphs for node in graph.graph.nodes]
    assert whole == (linear_call in calls)
