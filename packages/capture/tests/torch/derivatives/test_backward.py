"""Tensor.backward() in the graph: what may be held, and what ends it."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def x(*shape, grad=False):
    return torch.randn(*(shape or (3, 4)), requires_grad=grad)


def net():
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))


def steps(capture, backend, same, step, make, calls, graphs):
    """`step(state, *args)` captured and in eager agree in results and in all of the state."""
    backend.clear()
    torch.manual_seed(0)
    ours = make()
    torch.manual_seed(0)
    theirs = make()
    compiled = capture(step)
    for number, args in enumerate(calls):
        torch.manual_seed(number)
        got = compiled(*ours, *args)
        torch.manual_seed(number)
        same(got, step(*theirs, *args), f"result of call {number}")
        for one, other in zip(_leaves(ours), _leaves(theirs), strict=True):
            same(one, other, "parameter")
            same(one.grad, other.grad, "derivative")
    assert len(backend) == graphs


def _leaves(state):
    for part in state:
        if isinstance(part, nn.Module):
            yield from part.parameters()
        elif isinstance(part, torch.Tensor):
            yield part


def with_sgd():
    module = net()
    return module, torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)


def test_a_whole_step_of_training(capture, backend, same):
    def step(module, optimizer, value, target):
        loss = F.mse_loss(module(value), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    calls = [(x(3, 4), x(3, 1)) for _ in range(3)]
    steps(capture, backend, same, step, with_sgd, calls, graphs=2)


def test_derivatives_are_added_to_what_is_there(capture, backend, same):
    def step(module, parts):
        for part in parts:
            (module(part).pow(2).mean() / len(parts)).backward()
        return [parameter.grad.norm() for parameter in module.parameters()]

    calls = [([x(3, 4), x(3, 4)],) for _ in range(3)]
    steps(capture, backend, same, step, lambda: (net(),), calls, graphs=2)


def test_the_tensor_that_holds_a_derivative_stays_one(capture, same):
    def step(weight):
        (weight * 2).sum().backward()
        return None

    weight = x(grad=True)
    weight.grad = held = torch.ones(3, 4)
    capture(step)(weight)
    assert weight.grad is held
    same(held, torch.full((3, 4), 3.0), "derivative")


def test_a_derivative_has_the_layout_of_its_leaf(capture):
    def step(weight, value):
        (value @ weight).sum().backward()

    weight = torch.empty_strided((3, 4), (1, 3)).normal_().requires_grad_()
    capture(step)(weight, x(2, 3))
    assert weight.grad.stride() == (1, 3)


def turned(shape):
    return x(*shape[::-1]).permute(*range(len(shape))[::-1])


LEAVES = {
    "rows": lambda shape: x(*shape),
    "turned": turned,
    "channels last": lambda shape: x(*shape).contiguous(memory_format=torch.channels_last),
    "with holes": lambda shape: torch.stack([turned(shape)] * 2, -1)[..., 0],
    "repeated": lambda shape: x(*shape[:-1], 1).expand(shape),
}
LOSSES = {
    "of kernels that write rows": lambda a, b: F.mse_loss(a, b, reduction="sum"),
    "of two operands": lambda a, b: (F.hardswish(a) * b).sum(),
    "repeated": lambda a, b: a.sum() + b.sum(),
    "of views": lambda a, b: (a.permute(3, 2, 1, 0).reshape(-1) * b.reshape(-1)).sum(),
    "of an image": lambda a, b: (F.avg_pool2d(a, 2) + F.max_pool2d(b, 2)).square().sum(),
    "shared": lambda a, b: (a + b).exp().sum(),
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 4, 4)])
def test_a_derivative_is_laid_out_as_autograd_keeps_it(capture, loss, shape):
    def step(a, b):
        LOSSES[loss](a, b).backward()

    for one in LEAVES:
        for other in LEAVES:
            made = [LEAVES[one](shape), LEAVES[other](shape)]
            kept = []
            for call in (step, capture(step)):
                leaves = [value.detach().requires_grad_() for value in made]
                call(*leaves)
                kept.append([leaf.grad for leaf in leaves])
            for expected, got in zip(*kept, strict=True):
                wide = [size > 1 for size in shape]
                strides = zip(wide, expected.stride(), got.stride())
                assert all(e == g for told, e, g in strides if told), (one, other)
                torch.testing.assert_close(got, expected)


SHARED = {
    "joined": lambda a, b, c: torch.cat([a, b, c]).exp().sum(),
    "stacked": lambda a, b, c: (torch.stack([a, b]) * 2).sum() + c.exp().sum(),
    "joined rows": lambda a, b, c: torch.cat([a.view(-1), b.view(-1)]).exp().sum() + c.sum(),
    "a part": lambda a, b, c: (a * 1).sum() + (torch.cat([b, a, c])[:3] * 2).sum(),
    "parts": lambda a, b, c: sum((p * p).sum() for p in (torch.cat([a, b, c]) * 2).split(3)),
    "columns": lambda a, b, c: torch.stack([a, b, c], -1).exp().sum(),
    "a sum with a view": lambda a, b, c: (a + b.view(3, 4) + c.reshape(3, 4)).exp().sum(),
    "sums in a part": lambda a, b, c: torch.cat([torch.ones(3, 4), a + b + c]).exp().sum(),
    "turned": lambda a, b, c: torch.cat([a.t(), b.t(), c.t()]).exp().sum(),
    "products": lambda a, b, c: (a @ b.t() + F.linear(a, c)).exp().sum(),
}


@pytest.mark.parametrize("loss", SHARED)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_derivatives_share_the_memory_that_autograd_lets_them_share(capture, loss, order):
    def step(*leaves):
        SHARED[loss](*(leaves[place] for place in order)).backward()

    def places(leaves):
        starts = [leaf.grad.untyped_storage().data_ptr() for leaf in leaves]
        told = [(x.grad.storage_offset(), x.grad.stride(), x.grad._is_view()) for x in leaves]
        return told, [starts.index(start) for start in starts]

    made = [x(3, 4) for _ in range(3)]
    one, other = ([x.detach().requires_grad_() for x in made] for _ in range(2))
    step(*one)
    capture(step)(*other)
    assert places(other) == places(one)
    for expected, got in zip(one, other, strict=True):
        torch.testing.assert_close(got.grad, expected.grad)


def test_weights_inputs_and_graphs_that_are_kept(capture, backend, same):
    def step(one, other, value):
        out = one * other * value
        out.backward(value, retain_graph=True, inputs=[one])
        torch.autograd.backward([out, one.sin()], [value, value])
        one.backward(value)
        return one.grad + 1

    def make():
        return x(grad=True), x(grad=True)

    steps(capture, backend, same, step, make, [(x(),), (x(),)], graphs=2)


def test_a_leaf_made_in_the_frame(capture, backend, same):
    def step(module, value):
        change = torch.zeros_like(value, requires_grad=True)
        hidden = module[0](value + change)
        hidden.retain_grad()
        module[2](hidden).sum().backward()
        return value + change.grad.sign(), hidden.grad

    steps(capture, backend, same, step, lambda: (net(),), [(x(3, 4),)], graphs=1)


def test_a_leaf_made_in_the_frame_that_leaves_it(capture, backend, same):
    def step(value):
        leaf = torch.zeros_like(value, requires_grad=True)
        (leaf * value).sum().backward()
        return leaf

    value = x()
    found = capture(step)(value)
    assert found.is_leaf and found.requires_grad
    same(found.grad, value, "derivative")


def hook(weight):
    weight.register_hook(lambda derivative: derivative * 2)


def hook_after(weight):
    def double(leaf):
        leaf.grad.mul_(2)

    weight.register_post_accumulate_grad_hook(double)


@pytest.mark.parametrize("watch", [hook, hook_after])
def test_hooks_run_also_if_they_come_late(capture, backend, same, watch):
    def step(weight):
        weight.grad = None
        (weight * 3).sum().backward()
        return weight.grad + 1

    weight = x(grad=True)
    compiled = capture(step)
    same(compiled(weight), torch.full((3, 4), 4.0), "without")
    assert len(backend) == 1
    watch(weight)
    same(compiled(weight), torch.full((3, 4), 7.0), "with a hook")


def test_history_outside_of_the_frame_ends_the_graph(capture, same):
    def step(value, weight):
        (value * weight).sum().backward()
        return weight.grad + 1

    weight = x(grad=True)
    expected = 4 * weight.detach() + 1
    same(capture(step)(weight * 2, weight), expected, "derivative")


def test_what_autograd_refuses_it_refuses(capture):
    def twice(weight):
        loss = weight.sin().sum()
        loss.backward()
        loss.backward()

    def nothing(weight):
        weight.detach().sum().backward()

    for function, text in ((twice, "second time"), (nothing, "does not require grad")):
        with pytest.raises(RuntimeError, match=text):
            capture(function)(x(grad=True))


def test_sparse_derivatives_and_those_of_derivatives_are_left_to_autograd(capture, same):
    def sparse(table, places):
        table(places).sum().backward()
        return table.weight.grad.is_sparse

    assert capture(sparse)(nn.Embedding(5, 3, sparse=True), torch.tensor([1, 2])) is True

    def second(weight):
        (weight**3).sum().backward(create_graph=True)
        return weight.grad.sum()

    weight = x(grad=True)
    (found,) = torch.autograd.grad(capture(second)(weight), weight)
    same(found, 6 * weight.detach(), "second derivative")
