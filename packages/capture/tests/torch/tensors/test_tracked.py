"""`requires_grad_()` of tensors that the program has: forces, gradient penalties."""

import torch
from torch import nn


def potential():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1))


def train(decorate, calls=3):
    """Energies, forces, parameters' gradients, and the positions' flags and gradients."""
    model, seen = potential(), []

    def forces(positions):
        positions.requires_grad_(True)
        energy = model(positions).sum()
        (gradient,) = torch.autograd.grad(energy, positions, create_graph=True)
        return energy, -gradient

    run = decorate(forces)
    for _ in range(calls):
        positions = torch.randn(5, 3)
        energy, force = run(positions)
        (energy + force.square().sum()).backward()
        seen += [energy.detach(), force.detach(), positions.grad, positions.requires_grad]
    return seen, [p.grad for p in model.parameters()]


def test_forces_are_one_graph_and_can_be_trained(capture, backend):
    torch.testing.assert_close(train(capture), train(lambda fn: fn))
    assert len(backend) == 1


def compare(capture, backend, same, fn, graphs):
    def run(decorate):
        torch.manual_seed(1)
        target, found = decorate(fn), []
        for _ in range(2):
            x = torch.randn(3)
            found.append((target(x), x.requires_grad, x.grad))
        return found

    same(run(capture), run(lambda fn: fn))
    assert len(backend) == graphs


def test_the_flag_stays(capture, backend, same):
    def only(x):
        x.requires_grad = True
        return 3

    def back(x):
        x.requires_grad_()
        gradient = torch.autograd.grad(x.exp().sum(), x)[0]
        x.requires_grad_(False)
        return gradient, x * 2

    def without_mode(x):
        with torch.no_grad():
            x.requires_grad_()
            y = x * 2
        return y, x * 3

    compare(capture, backend, same, back, 1)
    backend.clear()
    compare(capture, backend, same, without_mode, 1)
    backend.clear()
    compare(capture, backend, same, only, 1)


def test_what_came_before_it_has_no_history(capture, backend, same):
    def fn(x):
        y = x * 2
        x.requires_grad_()
        return y, y.requires_grad, x * 3

    compare(capture, backend, same, fn, 2)


def test_views_and_integers_are_left_to_torch(capture):
    base = torch.randn(2, 3)

    def fn(x):
        x.requires_grad_()
        return x * 2

    compiled = capture(fn)
    assert compiled(base[0]).requires_grad and not base.requires_grad
    try:
        compiled(torch.ones(2, dtype=torch.long))
    except RuntimeError as error:
        assert "floating point" in str(error)
    else:
        raise AssertionError("integers cannot require grad")
