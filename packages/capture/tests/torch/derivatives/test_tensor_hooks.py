"""Tensor.register_hook in the graph: hooks that compute, and those that do more."""

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from torch import nn


def x(*shape, grad=False):
    return torch.randn(*(shape or (3, 4)), requires_grad=grad)


def test_a_hook_changes_the_derivative(agree):
    def run(module, value):
        hidden = module(value).tanh()
        hidden.register_hook(lambda derivative: derivative * 3 + 1)
        return hidden.pow(2).sum()

    agree(run, nn.Linear(4, 2), x(grad=True))


def test_a_hook_reads_tensors_of_the_frame(agree):
    def run(value, scale):
        hidden = value.sin()
        factor = scale.exp()

        def clip(derivative):
            return torch.minimum(derivative * factor, hidden.detach())

        hidden.register_hook(clip)
        hidden.register_hook(lambda derivative: derivative.clamp(min=-1))
        return (hidden * 5).sum()

    agree(run, x(grad=True), x())


def test_a_hook_that_answers_nothing(agree):
    def run(value):
        hidden = value.sin()
        hidden.register_hook(lambda derivative: None)
        return (hidden * 5).sum()

    agree(run, x(grad=True))


def test_a_hook_acts_on_a_derivative_taken_in_the_graph(agree):
    def run(value):
        leaf = value.detach().requires_grad_()
        leaf.register_hook(lambda derivative: derivative * 7)
        hidden = leaf.sin()
        hidden.register_hook(lambda derivative: derivative + 1)
        return torch.autograd.grad(hidden.sum(), leaf)[0]

    agree(run, x())


def test_a_tensor_with_a_hook_that_is_returned(agree, capture, backend, same):
    def run(value):
        hidden = value.sin()
        hidden.register_hook(lambda derivative: derivative * 3)
        return hidden

    agree(run, x(grad=True), graphs=None)
    value = x(grad=True)
    hidden = capture(run)(value)
    same(torch.autograd.grad(hidden.sum(), hidden)[0], torch.full((3, 4), 3.0), "seen by its owner")


def test_a_hook_with_a_side_effect(capture, same):
    seen = []

    def run(value):
        hidden = value.sin()
        hidden.register_hook(seen.append)
        return hidden.sum()

    value = x(grad=True)
    capture(run)(value).backward()
    assert len(seen) == 1
    same(seen[0], torch.ones(3, 4), "what the hook has seen")


def test_a_hook_that_writes_to_a_tensor(agree):
    def run(value, total):
        hidden = value.sin()

        def collect(derivative):
            total.add_(derivative.sum())

        hidden.register_hook(collect)
        return hidden.sum()

    def on_derivative(value):
        hidden = value.sin()
        hidden.register_hook(lambda derivative: derivative.mul_(2))
        return (hidden * 3).sum()

    agree(run, x(grad=True), torch.zeros(()), graphs=None)
    agree(on_derivative, x(grad=True), graphs=None)


def test_a_hook_that_is_removed(agree):
    def run(value, keep):
        hidden = value.sin()
        handle = hidden.register_hook(lambda derivative: derivative * 3)
        out = hidden.sum()
        if not keep:
            handle.remove()
        return out

    agree(run, x(grad=True), True)
    agree(run, x(grad=True), False, graphs=None)


def test_a_hook_on_what_came_in_or_needs_none(agree):
    def on_input(value):
        value.register_hook(lambda derivative: derivative * 3)
        return value.sin().sum()

    def without(value):
        return value.sin().register_hook(lambda derivative: derivative)

    agree(on_input, x(grad=True), graphs=None, calls=1)
    agree(without, x(), graphs=None)


def test_an_error_by_hooks_on_saved_tensors_is_the_programs(backend):
    """The derivative of a choice reads positions, of which these hooks make fractions."""

    def run(value):
        added = value.index_add(0, torch.tensor([0, 0, 2]), value + 1)
        added.sum().backward()
        return added

    compiled = optimize(backend)(run)
    for call in (run, compiled):
        value = x(grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t + 0.5, lambda t: t):
            with pytest.raises(RuntimeError, match="index"):
                call(value)
    assert len(backend) == 1
    assert not compiler_of(compiled).records.faults


class _Saves(torch.autograd.Function):
    """Saves both arguments; reads none, one, or both of them again."""

    read = 2

    @staticmethod
    def forward(ctx, x, w, read):
        ctx.save_for_backward(x, w, x)
        ctx.read = read
        return x * w

    @staticmethod
    def backward(ctx, g):
        if not ctx.read:
            return g * 3, g, None
        x, w, _ = ctx.saved_tensors
        return g * w, g * x if ctx.read > 1 else None, None


@pytest.mark.parametrize("read", [0, 1, 2])
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "around"])
def test_functions_save_through_the_programs_hooks(inside, read):
    def work(x, w):
        y = _Saves.apply(x * 2, w, read)
        return _Saves.apply(y, y, read) * x

    def hooked(fn):
        def call(x, w):
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                return fn(x, w)

        return call

    log = []

    def pack(t):
        log.append(tuple(t.shape))
        return t.detach() * (1 + len(log) / 8)

    def unpack(t):
        log.append(None)
        return t + len(log) / 8

    def gradients(plain, under):
        log.clear()
        seen = []
        for fn in (plain, under, plain, under):
            x, w = (torch.linspace(1, 2, 6).requires_grad_() for _ in range(2))
            fn(x, w).sum().backward()
            found = [None if t.grad is None else t.grad.tolist() for t in (x, w)]
            seen.append((found, [*log]))
        return seen

    compiled = optimize("eager", raise_internal_errors=True)
    ours = compiled(work), compiled(hooked(work)) if inside else hooked(compiled(work))
    assert gradients(*ours) == gradients(work, hooked(work))
