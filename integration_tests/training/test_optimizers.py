"""Compiled steps of optimizers: eager's parameters and states, written where they are."""

import copy

import pytest
import torch

import flambeau

OPTIMIZERS = {
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
    "adam, foreach": lambda p: torch.optim.Adam(p, foreach=True),
    "adamw": torch.optim.AdamW,
    "adamw, amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "rprop": torch.optim.Rprop,
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "sgd, foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
}


def parameters():
    torch.manual_seed(0)
    return [torch.randn(shape).requires_grad_() for shape in ((4, 3), (3,), (5, 4), (1,))]


def take(step, own, gradients):
    for parameter, gradient in zip(own, gradients, strict=True):
        parameter.grad = gradient.clone()
    step()


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_eagers(name):
    eager, own = parameters(), parameters()
    want, got = OPTIMIZERS[name](eager), OPTIMIZERS[name](own)
    step = flambeau.compile(got.step)
    where = [parameter.data_ptr() for parameter in own]
    for turn in range(5):
        gradients = [torch.randn_like(each) * 0.1**turn for each in own]
        take(want.step, eager, gradients)
        take(step, own, gradients)
        for a, b in zip(own, eager, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
            assert a.is_leaf and a.requires_grad
    assert where == [parameter.data_ptr() for parameter in own]
    for a, b in zip(got.state.values(), want.state.values(), strict=True):
        assert a.keys() == b.keys()
        for key in a:
            torch.testing.assert_close(a[key], b[key], rtol=1e-5, atol=1e-6)
    assert flambeau.report(step).fallbacks == ()


def test_a_write_is_counted_so_that_autograd_refuses_what_was_saved():
    own = parameters()
    step = flambeau.compile(torch.optim.SGD(own, lr=0.1).step)
    gradients = [torch.ones_like(each) for each in own]
    for _ in range(2):
        take(step, own, gradients)
    product = (own[0] * own[0]).sum()
    take(step, own, gradients)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_parameters_that_share_memory_are_updated_as_in_eager():
    def shared():
        both = torch.arange(8.0)
        return both, [both[:5].requires_grad_(), both[3:].requires_grad_()]

    (memory, own), (other, eager) = shared(), shared()
    step = flambeau.compile(torch.optim.SGD(own, lr=0.1).step)
    plain = torch.optim.SGD(eager, lr=0.1)
    for _ in range(3):
        take(step, own, [torch.ones(5), torch.full((5,), 2.0)])
        take(plain.step, eager, [torch.ones(5), torch.full((5,), 2.0)])
    torch.testing.assert_close(memory, other)


def test_a_copy_of_the_parameters_keeps_its_own():
    own = parameters()
    kept = copy.deepcopy(own)
    step = flambeau.compile(torch.optim.Adam(own).step)
    gradients = [torch.ones_like(each) for each in own]
    for _ in range(3):
        take(step, own, gradients)
    for a, b in zip(kept, parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_whole_step_is_one_graph():
    def made():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return net, step

    (net, step), (eager, plain) = made(), made()
    x = torch.randn(4, 6)
    torch.testing.assert_close(step(x), plain(x))  # the state is made
    compiled = flambeau.compile(step)
    for _ in range(4):
        torch.testing.assert_close(compiled(x), plain(x))
    report = flambeau.report(compiled)
    assert (report.graphs, report.fallbacks, report.breaks) == (1, (), ())
    for a, b in zip(net.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a.grad, b.grad)
