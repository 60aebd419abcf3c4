"""Bodies that capture keeps as one call: whoever traces a graph finds the operators inside."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap
from torch.utils.checkpoint import checkpoint

import flambeau


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx, derivative):
        (x,) = ctx.saved_tensors
        return derivative * 7 * x * ctx.scale, None


def doubled(module, x):
    return functional_call(module, {n: p * 2 for n, p in module.named_parameters()}, (x,))


PROGRAMS = {
    "autograd function": lambda m, x: Cube.apply(m(x), 2.0),
    "checkpoint": lambda m, x: checkpoint(m, x, use_reentrant=False).sum(1),
    "grad": lambda m, x: grad(lambda t: (t**3).sum())(m(x)),
    "per sample": lambda m, x: vmap(grad(lambda t: (t**3).sum()))(m(x)),
    "jacrev": lambda m, x: jacrev(lambda t: t**3)(m(x)[0]),
    "hessian": lambda m, x: hessian(lambda t: (t**3).sum())(m(x)[0]),
    "jvp": lambda m, x: jvp(torch.sin, (m(x),), (m(x),))[1],
    "functional_call": doubled,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_training_through_a_body(name):
    program = PROGRAMS[name]
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    results = []
    for wrap in (
        lambda fn: fn,
        lambda fn: flambeau.compile(fn, backend="aot_eager", fullgraph=True),
    ):
        own = copy.deepcopy(module)
        given = torch.linspace(-1, 1, 20).view(5, 4).requires_grad_()
        out = wrap(program)(own, given)
        out.square().sum().backward()
        results.append((out.detach(), given.grad, [p.grad for p in own.parameters()]))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_branch_is_compiled_and_so_is_its_derivative(sign):
    def run(x, w):
        return torch.cond(x.sum() > 0, lambda: (x * w).sin(), lambda: (x + w).cos(), ())

    compiled = flambeau.compile(run, backend="aot_eager")
    x, w = torch.full((3,), sign), torch.rand(3, requires_grad=True)
    with torch.no_grad():
        expected = (x * w).sin() if sign > 0 else (x + w).cos()
        torch.testing.assert_close(compiled(x, w), expected)
    compiled(x, w).sum().backward()
    derivative = x * (x * w).cos() if sign > 0 else -(x + w).sin()
    torch.testing.assert_close(w.grad, derivative.detach())
    assert flambeau.report(compiled).fallbacks == ()


def _reentrant(x):
    return checkpoint(lambda u: u.sin() * u, x, use_reentrant=True)


def _beside(x):
    region = _reentrant(x)
    return torch.autograd.grad((x * x).sum(), x)[0], region


def _accumulating(x):
    region = _reentrant(x * 2)
    region.sum().backward()
    return region.detach()


REENTRANT = {
    "derivative inside": lambda x: torch.autograd.grad(_reentrant(x * 2).sum() * 1, [x])[0],
    "derivative beside": _beside,
    "backward inside": _accumulating,
    "first result": lambda x: (_reentrant(x), x * 2),
    "only result": lambda x: _reentrant(x * 2),
}
PASSES = {
    "backward": lambda end, x: end.backward(),
    "create_graph": lambda end, x: end.backward(create_graph=True),
    "inputs": lambda end, x: end.backward(inputs=[x]),
    "grad": lambda end, x: torch.autograd.grad(end, x),
}


@pytest.mark.parametrize("asked", PASSES)
@pytest.mark.parametrize("program", REENTRANT)
def test_what_goes_through_a_reentrant_checkpoint(program, asked):
    """Eager's engine does where it accumulates in all leaves, and else raises."""

    def outcome(run, which):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        try:
            results = run(x)
            results = results if isinstance(results, tuple) else (results,)
            ends = [item.sum() for item in results if item.requires_grad]
            found = PASSES[asked](ends[which % len(ends)], x) if ends else None
        except RuntimeError as error:
            return str(error)[:60]
        return x.grad, found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = flambeau.compile(REENTRANT[program], backend="aot_eager")
        for which in (0, 1):
            expected = outcome(REENTRANT[program], which)
            given = outcome(compiled, which)
            if isinstance(expected, str):
                assert given == expected
            else:
                torch.testing.assert_close(given, expected)
