"""torch.func under capture: vmap, grad and its relatives, nested in each other."""

import pytest
import torch
from torch import nn
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vmap


def x(*shape, grad=False):
    return torch.randn(*(shape or (4,)), requires_grad=grad)


@pytest.mark.parametrize("transform", [jacrev, jacfwd, hessian])
def test_derivatives_of_vectors(agree, transform):
    def inner(t):
        return (t**3).sum() if transform is hessian else torch.sin(t) * t[0]

    agree(lambda t: transform(inner)(t), x())


def test_grad_and_its_options(agree):
    def loss(weights, t):
        return ((weights["w"] * t + weights["b"]) ** 2).sum()

    weights = {"w": x(), "b": x()}
    agree(lambda w, t: grad(loss)(w, t), weights, x())
    agree(lambda w, t: grad_and_value(loss, argnums=(0, 1))(w, t), weights, x())

    def with_more(t):
        return (t**2).sum(), {"doubled": t * 2, "n": t.sum()}

    agree(lambda t: grad(with_more, has_aux=True)(t), x())


def test_jvp(agree):
    agree(lambda t, u: jvp(lambda a, b: a * b.sin(), (t, u), (u, t)), x(), x())


def test_what_is_closed_over(agree):
    scale = x()
    agree(lambda t: grad(lambda a: (a * scale * t).sum())(t), x())


def test_per_sample_gradients(agree):
    def loss(weight, sample):
        return torch.tanh(sample @ weight).sum()

    agree(lambda w, t: vmap(grad(loss), in_dims=(None, 0))(w, t), x(4, 2), x(3, 4))


def test_vmap_of_structures(agree):
    def combine(pair, scale):
        return {"sum": pair["a"] + pair["b"] * scale, "both": (pair["a"], pair["b"].sum())}

    agree(lambda a, b: vmap(combine, in_dims=(0, None))({"a": a, "b": b}, 2.0), x(3, 4), x(3, 4))
    agree(
        lambda a, b: vmap(combine, in_dims=({"a": 1, "b": 0}, None))({"a": a, "b": b}, 2),
        x(4, 3),
        x(3, 4),
    )
    agree(lambda a, b: vmap(torch.dot, in_dims=(0, 1), out_dims=0)(a, b), x(3, 4), x(4, 3))


def test_derivatives_of_transforms_outside(agree):
    agree(lambda t: vmap(lambda a: a * a.sum())(t), x(3, 4, grad=True))


def test_functional_call_in_a_transform(agree):
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))

    def run(m, t):
        parameters = dict(m.named_parameters())

        def loss(values, sample):
            return torch.func.functional_call(m, values, (sample,)).sum()

        return vmap(grad(loss), in_dims=(None, 0))(parameters, t)

    agree(run, module, x(5, 4))


def test_functional_call_replaces_and_restores(agree):
    module = nn.Linear(4, 4)

    def run(m, t):
        swapped = torch.func.functional_call(m, {"weight": m.weight * 2}, (t,))
        return swapped - m(t)

    agree(run, module, x(3, 4))


def test_a_mapped_function_that_writes_runs_in_python(capture):
    log = []

    def run(t):
        return vmap(lambda a: log.append("one") or a * 2)(t * 3)

    given = x(3, 4)
    assert torch.equal(capture(run)(given), given * 6)
    assert log == ["one"]


class Mapped(torch.nn.Module):
    """Holds what transforms have made before, as models do."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(3))
        self.rows = torch.func.vmap(self.one, in_dims=(0, None))
        self.slope = torch.func.grad(lambda a: (a**3).sum())
        self.second = torch.func.hessian(lambda a: (a**3).sum())
        self.jacobian = torch.func.jacrev(lambda a, b: a * b, argnums=1)

    def one(self, x, k):
        return (x * self.w).sum() * k

    def forward(self, x):
        return self.rows(x, 2.0), self.slope(x), self.second(x[0]), self.jacobian(x, x)


def test_transforms_made_before_the_call(capture, backend, same):
    module, t = Mapped(), torch.randn(4, 3)
    compiled = capture(module)
    same(compiled(t), module(t))
    same(compiled(t * 2), module(t * 2))
    assert len(backend) == 1
    module.slope = torch.func.grad(lambda a: (a**2).sum())
    same(compiled(t), module(t))
    assert len(backend) == 2


@pytest.mark.parametrize("dim", [-2, -1, 0, 1])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 2), (2, 0)])
def test_a_map_along_a_dimension_without_examples(capture, shape, dim):
    def run(value):
        return torch.vmap(lambda row: row.sin() * 2, in_dims=dim)(value)

    def outcome(call):
        try:
            return call(torch.ones(shape)).shape
        except (ValueError, RuntimeError, IndexError) as error:
            return type(error), str(error)

    assert outcome(capture(run)) == outcome(run)


@pytest.mark.parametrize("outer", [(None, 0), (0, None)])
@pytest.mark.parametrize("inner", [(0, None), (None, 0)])
@pytest.mark.parametrize("picked", [0, 1])
def test_an_argument_of_the_outer_vmap_that_the_inner_one_gives_back(agree, outer, inner, picked):
    def give(*pair):
        return pair[picked]

    agree(lambda a, b: vmap(vmap(give, in_dims=inner), in_dims=outer)(a, b), x(3, 2), x(3, 2))
