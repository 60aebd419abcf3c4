"""A derivative that there is none of: a zero of torch without memory, which infinities keep."""

import flambeau_aot as aot
import pytest
import torch

POLES = {
    "polygamma": (lambda x: x.clone().polygamma_(3), 0.0),
    "log": (lambda x: x.log(), 0.0),
    "sqrt": (lambda x: x.sqrt(), 0.0),
    "power": (lambda x: x.pow(0.5), 0.0),
    "reciprocal": (lambda x: x.reciprocal(), 0.0),
    "mvlgamma": (lambda x: torch.mvlgamma(x, 5), 2.0),
    "exp": (lambda x: x.exp(), 1000.0),
}
NESTS = {
    "jacfwd of vjp": lambda f: torch.func.jacfwd(
        lambda x: torch.func.vjp(f, x)[1](torch.ones_like(x))[0]
    ),
    "jacfwd of grad": lambda f: torch.func.jacfwd(torch.func.grad(lambda x: f(x).sum())),
    "hessian": lambda f: torch.func.hessian(lambda x: f(x).sum() * 0.5),
    "jvp of jvp": lambda f: (
        lambda x: torch.func.jvp(
            lambda y: torch.func.jvp(f, (y,), (torch.ones_like(y),))[1], (x,), (torch.ones_like(x),)
        )[1]
    ),
}


@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS)
@pytest.mark.parametrize("function, pole", POLES.values(), ids=POLES)
def test_a_tangent_that_is_none_is_zero_times_an_infinity_too(function, pole, nest) -> None:
    fn = nest(function)
    given = torch.tensor([pole, 1.5])
    compiled = aot.aot_function(fn, aot.run_as_is)
    torch.testing.assert_close(compiled(given), fn(given), equal_nan=True)


MEETINGS = {
    "quotient": lambda a, b: torch.logaddexp(a.polygamma(4), a.polygamma(4).clamp_min(b)),
    "product": lambda a, b: a.reciprocal() * (b * 2),
    "divided": lambda a, b: (b * 2) / a.sqrt(),
    "sum": lambda a, b: a.log() * (a + b),
    "difference": lambda a, b: (a - b) * a.reciprocal().exp(),
}


@pytest.mark.parametrize("by", (0, 1))
@pytest.mark.parametrize("function", MEETINGS.values(), ids=MEETINGS)
def test_the_gradient_of_a_tangent_that_meets_none(function, by) -> None:
    """By one argument; the tangent of the other is none. Of one result, and of two."""

    def one(a, b):
        return torch.func.jacfwd(function, argnums=by)(a, b)

    def two(a, b):
        found = one(a, b)
        return found, found.sum() * a

    for fn in (one, two):
        compiled, found = aot.aot_function(fn, aot.run_as_is), []
        for call in (fn, compiled):
            a = torch.tensor([0.0, 1.5, -2.0]).requires_grad_()
            b = torch.tensor(0.3, requires_grad=True)
            results = call(a, b)
            first = results[0] if isinstance(results, tuple) else results
            ends = torch.autograd.grad(first.sum(), (a, b), allow_unused=True)
            found.append((first.detach(), *ends))
        torch.testing.assert_close(found[1], found[0], equal_nan=True)


WRITES = {
    "nanquantile": lambda x: torch.nanquantile(x, 0.5, dim=0),
    "quantile": lambda x: torch.quantile(x, 0.3),
    "lerp_ by a tensor": lambda x: x.clone().lerp_(x * 2, x.detach()),
    "lerp_ by a number": lambda x: x.clone().lerp_(x * 2, 0.5),
    "addcmul_": lambda x: x.clone().addcmul_(x, x),
    "addcdiv_": lambda x: x.clone().addcdiv_(x, x, value=2),
    "add_": lambda x: x.clone().add_(x, alpha=2),
    "pow_": lambda x: x.clone().pow_(x),
    "clamp_": lambda x: x.clone().clamp_(min=x - 1),
    "masked_fill_": lambda x: x.clone().masked_fill_(x > 1, x.sum().detach()),
    "where": lambda x: torch.where(x > 1, x, 0.5),
    "index_fill_": lambda x: x.clone().index_fill_(0, torch.tensor([0]), 2.0),
    "fill_": lambda x: x.clone().fill_(x.sum()),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_any_overload_of_a_write_takes_tangents(write, nest) -> None:
    given = torch.tensor([2.5, 1.5, 0.5])
    fn = nest(write)
    try:
        expected = fn(given)
    except RuntimeError:
        return  # no second derivative by tangents
    torch.testing.assert_close(aot.aot_function(fn, aot.run_as_is)(given), expected)
