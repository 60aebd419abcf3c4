"""Open numbers of either sign: a later call is answered, or refused, as eager does it."""

import pytest
import torch
from torch.nn.functional import pad

import flambeau

PROGRAMS = {
    "range down": lambda n: torch.arange(0, n, -1),
    "range by steps": lambda n: torch.arange(0, n, -2) * 2,
    "range up": lambda n: torch.arange(n, 4, 3),
    "range by n": lambda n: torch.arange(0, 10, n),
    "float range": lambda n: torch.arange(0.0, n, -0.5),
    "sizes": lambda n: torch.ones(n) + 1,
    "values": lambda n: torch.linspace(0, n, 5) * n,
    "narrow": lambda n: torch.ones(10).narrow(0, n, 2) + 1,
    "slice": lambda n: torch.arange(10)[n:] + 1,
}


def outcome(call, number):
    try:
        return call(number)
    except (RuntimeError, IndexError) as error:
        return type(error).__name__


@pytest.mark.sweep(4)
@pytest.mark.parametrize("numbers", [(-3, -5, 6), (3, -3, -5)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_of_another_sign(name, numbers):
    program = PROGRAMS[name]
    compiled = flambeau.compile(program)
    for number in numbers:
        expected, got = outcome(program, number), outcome(compiled, number)
        if isinstance(expected, str):
            assert got == expected, number
        else:
            torch.testing.assert_close(got, expected)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_padding_of_every_open_size(mode):
    def program(x):
        return pad(x, (1, 2), mode=mode)

    compiled = flambeau.compile(program)
    for shape in ((2, 3, 5), (1, 2, 4), (3, 1, 6)):
        x = torch.randn(shape)
        assert torch.equal(compiled(x), program(x))
    assert not flambeau.report(compiled).faults


X, WHERE, FIRST = torch.ones(3), torch.tensor([True, False, True]), torch.tensor([0])


def _assigned(key):
    def program(a):
        x = X.clone()
        x[key] = a
        return x

    return program


OF_FLOATS = {
    "full": lambda a: torch.full((2,), a),
    "half": lambda a: torch.full((2,), a, dtype=torch.float16),
    "whole": lambda a: torch.full((2,), a, dtype=torch.int32),
    "like": lambda a: torch.full_like(X, a),
    "new": lambda a: X.new_full((2,), a),
    "fill": lambda a: X.clone().fill_(a),
    "masked": lambda a: X.masked_fill(WHERE, a),
    "index": lambda a: X.index_fill(0, FIRST, a),
    "scatter": lambda a: X.scatter(0, FIRST, a),
    "item": _assigned(0),
    "mask": _assigned(WHERE),
    "pad": lambda a: pad(X, (1, 1), value=a),
    "clamp": lambda a: X.clamp(max=a),
    "where": lambda a: torch.where(WHERE, X, a),
    "alpha": lambda a: torch.add(X, X, alpha=a),
    "value": lambda a: torch.addcmul(X, X, X, value=a),
    "sum": lambda a: X + a,
    "product": lambda a: X.half() * a,
    "compared": lambda a: X < a,
    "power": lambda a: X**a,
    "first": lambda a: (torch.full((2,), a), a**2),
    "second": lambda a: (a**2, torch.full((2,), a)),
}


def ending(call, number):
    try:
        return [t.tolist() if isinstance(t, torch.Tensor) else t for t in [call(number)]]
    except (RuntimeError, OverflowError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("backend", ["aot_eager_prims", "inductor"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_float_that_a_dtype_cannot_hold(backend):
    """Refused or infinite as in eager, in the program's order, also where it was left open."""
    for name, program in OF_FLOATS.items():
        if backend == "inductor" and name not in ("full", "half", "masked", "sum", "first"):
            continue  # the guards are capture's, whatever follows
        compiled = flambeau.compile(program, backend=backend)
        for number in (1.5, 2.5, 1e300, -1e300, 1e6, float("inf"), 3.5):
            assert str(ending(compiled, number)) == str(ending(program, number)), (name, number)
        assert not flambeau.report(compiled).faults, name


@pytest.mark.parametrize("asked", [0, 1])
def test_a_result_whose_gradient_is_undefined_beside_an_open_size(asked):
    def two(x, w):
        return (x * w).sum(0), x.exp()

    compiled = flambeau.compile(two, backend="aot_eager", dynamic=True, fullgraph=True)
    for rows in (3, 5):
        x, w = torch.randn(rows, 2, requires_grad=True), torch.randn(2, requires_grad=True)
        grads, seen = [], []
        for call in (two, compiled):
            handle = w.register_hook(lambda grad, seen=seen: seen.append(grad is None))
            call(x, w)[asked].sum().backward()
            handle.remove()
            grads.append((x.grad, w.grad))
            x.grad = w.grad = None
        torch.testing.assert_close(*grads)
        assert seen == [False] * (2 - 2 * asked)
