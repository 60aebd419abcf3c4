"""Whole training steps as one graph, beside eager."""

import copy

import flambeau_aot as aot
import pytest
import torch


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8, bias=False),
        torch.nn.BatchNorm1d(8),
        torch.nn.Tanh(),
        torch.nn.Linear(8, 1),
    )


def step_of(module, optimizer, zero="before"):
    def step(x, y):
        if zero == "before":
            optimizer.zero_grad()
        loss = (module(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        if zero == "after":
            optimizer.zero_grad()
        return loss.detach()

    return step


def close(one, other):
    """Steps counted in a float32 tensor, as on a device, give factors that are not the host's."""
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    (torch.optim.Adam, {"lr": 0.05, "amsgrad": True}),
    (torch.optim.AdamW, {"lr": 0.05, "weight_decay": 0.1}),
    (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5}),
    (torch.optim.NAdam, {"lr": 0.05}),
]


@pytest.mark.parametrize("zero", ["before", "after", "never"])
@pytest.mark.parametrize(("kind", "settings"), OPTIMIZERS)
def test_training_beside_eager(kind, settings, zero) -> None:
    one = network().double()  # the smallest rounding grows in Adam's quotient
    two = copy.deepcopy(one)
    optimizers = [kind(item.parameters(), **settings) for item in (one, two)]
    eager = step_of(one, optimizers[0], zero)
    kinds = []

    def compiler(gm, examples, info):
        kinds.append(info.kind)
        return aot.boxed(gm)

    compiled = aot.aot_step(step_of(two, optimizers[1], zero), [two], [optimizers[1]], compiler)
    parameters = list(two.parameters())
    for seed in range(6):
        torch.manual_seed(seed)
        x, y = torch.randn(5, 4).double(), torch.randn(5, 1).double()
        close(compiled(x, y), eager(x, y))
    assert compiled.eager_calls == 1
    assert kinds == ["inference"], "one graph, and no backward half"
    assert all(a is b for a, b in zip(parameters, two.parameters(), strict=True))
    for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        close(a, b)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            close(a.grad, b.grad)
    for a, b in zip(
        torch.utils._pytree.tree_leaves(optimizers[0].state_dict()),
        torch.utils._pytree.tree_leaves(optimizers[1].state_dict()),
        strict=True,
    ):
        close(a, b)


def test_a_learning_rate_in_a_tensor_is_an_input() -> None:
    module = network()
    rate = torch.tensor(0.5)
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    compiled = aot.aot_step(step_of(module, optimizer), [module], [optimizer], aot.run_as_is)
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    compiled(x, y)
    compiled(x, y)
    before = [item.detach().clone() for item in module.parameters()]
    rate.zero_()
    compiled(x, y)
    assert len(compiled.compiled) == 1
    for one, other in zip(before, module.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_learning_rate_that_is_a_number_is_a_constant_of_the_graph() -> None:
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    compiled = aot.aot_step(step_of(module, optimizer), [module], [optimizer], aot.run_as_is)
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    for _ in range(3):
        compiled(x, y)
    optimizer.param_groups[0]["lr"] = 0.0
    before = [item.detach().clone() for item in module.parameters()]
    compiled(x, y)
    assert len(compiled.compiled) == 2
    for one, other in zip(before, module.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=2),
        lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    ],
)
def test_an_optimizer_that_needs_values_is_refused_and_left_as_it_was(make) -> None:
    module = network()
    optimizer = make(module.parameters())

    def step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = (module(x) - y).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    compiled = aot.aot_step(step, [module], [optimizer], aot.run_as_is)
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    compiled(x, y)
    parameters = list(module.parameters())
    with pytest.raises(aot.AotError):
        compiled(x, y)
    assert all(a is b for a, b in zip(parameters, module.parameters(), strict=True))
    assert all(isinstance(item, torch.nn.Parameter) for item in module.parameters())
    assert all(a is b for a, b in zip(parameters, optimizer.param_groups[0]["params"], strict=True))
    assert not torch.compiler.is_compiling()


def functional_step(params, moments, x, y):
    """SGD with momentum written by hand, through torch.autograd.grad."""
    weight, bias = params
    loss = ((x @ weight + bias).tanh() - y).square().mean()
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        for value, moment, grad in zip(params, moments, grads, strict=True):
            moment.mul_(0.9).add_(grad)
            value.sub_(moment, alpha=0.1)
    return loss.detach()


def test_functional_steps_need_nothing_special() -> None:
    torch.manual_seed(0)
    own = [[torch.randn(4, 2), torch.randn(2)] for _ in range(2)]
    for one, other in zip(*own, strict=True):
        other.copy_(one)
    params = [[item.clone().requires_grad_() for item in group] for group in own]
    moments = [[torch.zeros_like(item) for item in group] for group in own]
    compiled = aot.aot_function(functional_step, aot.run_as_is)
    for _ in range(4):
        x, y = torch.randn(3, 4), torch.randn(3, 2)
        expected = functional_step(params[0], moments[0], x, y)
        torch.testing.assert_close(compiled(params[1], moments[1], x, y), expected)
    for one, other in zip(*params, strict=True):
        torch.testing.assert_close(one, other)
    (entry,) = compiled.compiled.values()
    assert entry.report.kind == "inference"
    assert [update.primal for update in entry.joint.plan.updates] == [0, 1, 2, 3]
