"""torch.autograd.grad and requires_grad_ in the graph: what may be held, and what ends it."""

import pytest
import torch
from torch import nn


def x(*shape, grad=False):
    return torch.randn(*(shape or (3, 4)), requires_grad=grad)


def test_a_derivative_by_parameters(agree):
    def run(module, value):
        loss = module(value).pow(2).sum()
        found = torch.autograd.grad(loss, module.parameters())
        return [part * 2 for part in found], loss.detach()

    agree(run, nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), x())


def test_a_step_of_descent(agree):
    def run(module, value):
        loss = module(value).tanh().sum()
        found = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for parameter, derivative in zip(module.parameters(), found):
                parameter -= 0.1 * derivative
        return loss.detach()

    agree(run, nn.Linear(4, 2), x(), calls=3)


def test_a_penalty_on_a_derivative_is_differentiated_again(agree):
    def run(module, value):
        value = value.detach().requires_grad_(True)
        out = module(value).sum()
        (derivative,) = torch.autograd.grad(out, value, create_graph=True)
        return ((derivative.norm(dim=1) - 1) ** 2).mean()

    agree(run, nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)), x())


def test_forces_of_an_energy(agree):
    def run(place):
        distance = (place[:, None] - place[None]).pow(2).sum(-1)
        energy = (-distance).exp().sum()
        return energy, -torch.autograd.grad(energy, place, create_graph=True)[0]

    agree(run, x(5, 3, grad=True))


def test_weights_of_outputs_and_what_is_not_used(agree):
    def run(value, other, weight):
        outputs = [value.sin(), (value * 2).sum()]
        first, second = torch.autograd.grad(
            outputs, (value, other), grad_outputs=[weight, None], allow_unused=True
        )
        zero = torch.autograd.grad(
            value.cos().sum(), other, allow_unused=True, materialize_grads=True
        )[0]
        return first, second is None, zero

    agree(run, x(grad=True), x(grad=True), x())


def test_a_graph_is_freed_or_kept_as_in_eager(agree):
    def twice(value, keep):
        out = value.sin().sum()
        first = torch.autograd.grad(out, value, retain_graph=keep)[0]
        return first + torch.autograd.grad(out, value)[0]

    agree(twice, x(grad=True), True)
    agree(twice, x(grad=True), False, graphs=None)


def test_a_weight_that_is_the_derivative_keeps_its_identity(agree):
    def run(value, weight):
        (found,) = torch.autograd.grad(value, value, weight)
        one, other = torch.autograd.grad((value + found * 2).sum(), (value, value))
        return found is weight, one is other, found * 2

    agree(run, x(grad=True), x())


def test_errors_are_those_of_eager(agree):
    def unused(value, other):
        return torch.autograd.grad(value.sin().sum(), other)

    def no_graph(value, other):
        return torch.autograd.grad(other.detach().sum(), value)

    agree(unused, x(grad=True), x(grad=True), graphs=None)
    agree(no_graph, x(grad=True), x(grad=True), graphs=None)


def test_history_outside_of_the_frame_ends_the_graph(capture, same):
    def run(value, weight):
        return torch.autograd.grad((value * weight).sum(), weight, allow_unused=True)[0]

    weight = x(grad=True)
    for function in (run, capture(run)):
        outside = weight.sin()
        found = function(outside, weight)
        same(found, outside.detach() + weight.detach() * weight.detach().cos(), "derivative")


def test_hooks_on_a_leaf_run_also_if_they_come_late(capture, backend, same):
    def run(weight):
        return torch.autograd.grad((weight * 2).sum(), weight)[0] + 1

    weight = x(grad=True)
    compiled = capture(run)
    same(compiled(weight), run(weight), "without")
    assert len(backend) == 1
    handle = weight.register_hook(lambda derivative: derivative * 3)
    same(compiled(weight), torch.full((3, 4), 7.0), "with a hook")
    handle.remove()
    same(compiled(weight), torch.full((3, 4), 3.0), "without it again")


def test_a_custom_function_is_differentiated_in_the_graph(agree):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            ctx.save_for_backward(value)
            return value * 2

        @staticmethod
        def backward(ctx, derivative):
            return derivative * 5 * ctx.saved_tensors[0]

    def run(value):
        return torch.autograd.grad(Twice.apply(value).sum(), value)[0]

    agree(run, x(grad=True))


@pytest.mark.parametrize("leaf_leaves", [True, False])
def test_a_leaf_made_in_the_frame_stays_in_the_graph(capture, backend, same, leaf_leaves):
    """Or else it is made to require grad by Python, between two graphs."""

    def run(value):
        leaf = value.clone().requires_grad_()
        out = leaf.sin()
        (found,) = torch.autograd.grad(out.sum(), leaf, retain_graph=True)
        return (leaf, out, found) if leaf_leaves else (found * 2, leaf.detach())

    value = x()
    compiled = capture(run)
    for _ in range(2):
        got, expected = compiled(value), run(value)
        same(got, expected, "result")
        if leaf_leaves:
            assert got[0].is_leaf and got[0].requires_grad and not got[1].is_leaf
            got[1].sum().backward()
            same(got[0].grad, value.cos(), "derivative afterwards")
    assert len(backend) == (2 if leaf_leaves else 1)


def test_a_leaf_written_into_an_input_leaves_the_graph(agree):
    def run(value):
        leaf = torch.ones(3, 4).requires_grad_()
        value.mul_(leaf * 2)
        return value.requires_grad, value.grad_fn is None

    agree(run, x(), graphs=None, backward=False, calls=1)


def test_under_a_loop_of_derivatives(agree):
    def run(value):
        value = value.clone().requires_grad_()
        for _ in range(3):
            (step,) = torch.autograd.grad((value**4).sum(), value)
            value = (value - 0.01 * step).detach().requires_grad_()
        return value.detach()

    agree(run, x())
