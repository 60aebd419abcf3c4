"""A compiled callable within a program that torch compiles: each compiler has its own frames.

In: every kind of compiled callable. Invariant: torch's compiler looks at no frame of a call of
ours, nor at our own code; answers and gradients are eager's. Run by
`test_within_torchs_own_compiler.py`.
"""

import pytest
import torch

import flambeau


def whole(x):
    return x.sin() * 2


def broken(x):
    x = x + 1
    print(end="")
    return x.sin()


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x):
        return (x * self.scale).cos()

    def method(self, x):
        return self.forward(x) + 1


LAYER = Layer()
TARGETS = {
    "a function": whole,
    "with a break": broken,
    "a lambda": lambda x: x * 3,
    "a module": LAYER,
    "a method": LAYER.method,
    "that is never taken": lambda x: [whole(each) for each in iter((x,))][0],
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_call_of_ours(target, backend):
    looked_at = []

    def theirs(module, inputs):
        looked_at.append(module.code)
        return module.forward

    fn = TARGETS[target]
    ours = flambeau.compile(fn, backend=backend)
    around = torch.compile(lambda x: ours(x * 2) + 1, backend=theirs)
    for _ in range(12):
        x, other = (torch.linspace(0, 1, 3, requires_grad=True) for _ in range(2))
        answer, wanted = around(x), fn(other * 2) + 1
        answer.sum().backward()
        wanted.sum().backward()
        assert torch.allclose(answer, wanted) and torch.allclose(x.grad, other.grad)
    assert flambeau.report(ours).graphs >= 1
    assert len(looked_at) <= 2  # what is before our call, and what is after it
    assert not any("sin" in code or "cos" in code for code in looked_at)


def test_theirs_goes_on_after_ours():
    looked_at = []

    def theirs(module, inputs):
        looked_at.append(module)
        return module.forward

    ours = flambeau.compile(whole, backend="eager")
    assert torch.equal(ours(torch.ones(2)), whole(torch.ones(2)))
    plain = torch.compile(whole, backend=theirs)
    around = torch.compile(lambda x: (ours(x), plain(x))[1], backend=theirs)
    assert torch.equal(around(torch.ones(2)), whole(torch.ones(2)))
    assert looked_at
    within = flambeau.compile(lambda x: plain(x) + ours(x), backend="eager")
    assert torch.equal(within(torch.ones(3)), whole(torch.ones(3)) * 2)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_what_theirs_hides_of_torch_is_in_our_graphs(kind):
    """Once that compiler has run, parts of torch.optim are wrapped: not to be looked into."""
    torch.compile(whole, backend=lambda module, inputs: module.forward)(torch.ones(2))
    assert hasattr(kind._init_group, "_torchdynamo_disable")
    own, other = ([torch.ones(3, requires_grad=True)] for _ in range(2))
    ours, plain = kind(own, lr=0.1), kind(other, lr=0.1)
    step = flambeau.compile(ours.step)
    for at in range(4):
        own[0].grad, other[0].grad = (torch.full((3,), at + 1.0) for _ in range(2))
        step() if at else ours.step()
        plain.step()
        torch.testing.assert_close(own[0], other[0])
    report = flambeau.report(step)
    assert (report.graphs, report.fallbacks, report.breaks) == (1, (), ())
