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


KINDS = {
    "masks": torch.tensor([[True], [False], [True]]),
    "whole numbers": torch.tensor([[3], [0], [-2]]),
    "half": torch.tensor([[3.0], [0.0], [-2.0]], dtype=torch.float16),
    "double": torch.tensor([[3.0], [0.0], [-2.0]], dtype=torch.float64),
}
ONE_SIDED = {
    "div": torch.div,
    "atan2": lambda a, b: torch.atan2(a + 0, b),
    "product less": lambda a, b: a * b - b,
    "rsub": lambda a, b: torch.rsub(a + 0, b, alpha=2),
    "add": lambda a, b: torch.add(a, b, alpha=3),
    "addcdiv": lambda a, b: torch.addcdiv(b, a + 0, b),
    "xlogy": torch.xlogy,
    "pow": lambda a, b: b**a,
    "fmod": torch.fmod,
    "divisor": lambda a, b: torch.div(b, a + 1),
}
FORWARD = {
    "jacfwd": lambda f: lambda a, b: torch.func.jacfwd(f, argnums=1)(a, b),
    "jvp": lambda f: lambda a, b: torch.func.jvp(lambda y: f(a, y), (b,), (b,)),
    "jvp of as many": lambda f: (
        lambda a, b: torch.func.jvp(lambda y: f(a, y), (b.expand(3, 1) + 0,), (b.expand(3, 1) + 0,))
    ),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("nest", FORWARD.values(), ids=FORWARD)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("function", ONE_SIDED.values(), ids=ONE_SIDED)
def test_a_sum_with_a_tangent_that_is_none_is_the_other(function, kind, nest) -> None:
    """Of its dtype, with the sign of its zeros; masks, which have no difference, have none here."""
    fn = nest(function)
    given = kind, torch.tensor(2.0)
    compiled = aot.aot_function(fn, aot.run_as_is)
    try:
        fn(*given)
    except RuntimeError as error:  # the derivative of a power takes 1 from a mask
        with pytest.raises(type(error), match=str(error)[:20]):
            compiled(*given)
        return

    def bits(results):
        return [(x.dtype, x.double() if x.dtype != torch.bool else x) for x in results]

    found, wanted = (bits(torch.utils._pytree.tree_leaves(f(*given))) for f in (compiled, fn))
    for (dtype, value), (expected, want) in zip(found, wanted, strict=True):
        assert dtype is expected
        torch.testing.assert_close(value, want, equal_nan=True)
        assert torch.equal(value.signbit(), want.signbit())
