"""Wrapper subclasses of tensors in one graph: operations, places and backends, as eager."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import flambeau
from integration_tests.conftest import BACKENDS
from integration_tests.wrapper_tensors import (
    Masked,
    Mixed,
    masked,
    mixed,
    nested,
    nested_masked,
    quantized,
    quantized_linear,
    same,
    two,
)

DIFFERENTIABLE = {fn.__name__: fn for fn in (two, mixed, nested)}
MAKERS = DIFFERENTIABLE | {fn.__name__: fn for fn in (masked, nested_masked)}
WEIGHTS = {fn.__name__: fn for fn in (quantized, quantized_linear)}


def scaled_in_place(x):
    y = x.clone()
    y.mul_(3).add_(y)
    return y


OPERATIONS = {
    "times": lambda x: x * 2,
    "chain": lambda x: (x * 2).sin() + x,
    "sum": lambda x: x.sum(),
    "mean": lambda x: (x * x).mean() * 2,
    "view": lambda x: x.view(-1) * 2,
    "transposed": lambda x: x.t().cos(),
    "part": lambda x: x[1:] * 2,
    "written": scaled_in_place,
    "detached": lambda x: x.detach() * x,
    "like": lambda x: torch.ones_like(x) * x,
    "several": lambda x: (x.exp(), x.shape, x.sum(), x),
}
FORMS = pytest.mark.parametrize("form", MAKERS)
WITH_GRADIENT = pytest.mark.parametrize("form", DIFFERENTIABLE)
OPERATION = pytest.mark.parametrize("operation", OPERATIONS)
BACKEND = pytest.mark.parametrize("backend", BACKENDS)


def tensors(value):
    """The tensors of a result, for derivatives: those that have some."""
    parts = value if isinstance(value, tuple) else (value,)
    return [x for x in parts if isinstance(x, torch.Tensor) and x.requires_grad and not x.is_leaf]


def with_gradients(call, make):
    """A call's result, argument and gradient."""
    x = make().requires_grad_()
    result = call(x)
    ends = tensors(result)
    torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])
    return result, x, x.grad


@BACKEND
@FORMS
@OPERATION
def test_argument(operation, form, backend):
    fn, make = OPERATIONS[operation], MAKERS[form]
    compiled = flambeau.compile(fn, backend=backend, fullgraph=True)
    for seed in range(2):
        same(compiled(make(seed)), fn(make(seed)))
    assert flambeau.report(compiled).graphs == 1


@BACKEND
@WITH_GRADIENT
@OPERATION
def test_gradient(operation, form, backend):
    fn, make = OPERATIONS[operation], MAKERS[form]
    compiled = flambeau.compile(fn, backend=backend, fullgraph=True)
    same(with_gradients(compiled, make), with_gradients(fn, make))


@pytest.mark.sweep(6)
@BACKEND
@WITH_GRADIENT
@OPERATION
@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_module(operation, form, kind, backend):
    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            if kind == "parameter":
                self.own = torch.nn.Parameter(MAKERS[form]())
            else:
                self.register_buffer("own", MAKERS[form]())

        def forward(self, x):
            return OPERATIONS[operation](self.own), x + 1

    x = torch.arange(3.0)
    seen = []
    for wrap in (lambda m: m, lambda m: flambeau.compile(m, backend=backend, fullgraph=True)):
        module = Holder()
        call = wrap(module)
        for _ in range(2):
            result = call(x)
            ends = tensors(result[0])
            torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])
        seen.append((result, module.own.grad, module.own))
    same(seen[1], seen[0])


@BACKEND
@pytest.mark.parametrize("form", WEIGHTS)
@pytest.mark.parametrize("bias", [False, True])
def test_quantized_weight(form, bias, backend):
    module = torch.nn.Linear(4, 3, bias=bias)
    module.weight = torch.nn.Parameter(WEIGHTS[form](), requires_grad=False)
    compiled = flambeau.compile(module, backend=backend, fullgraph=True)
    for seed in range(2):
        draw = torch.Generator().manual_seed(seed)
        x = torch.randn(2, 4, generator=draw)
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        expected, given = module(one), compiled(other)
        expected.sum().backward()
        given.sum().backward()
        same((given, other.grad), (expected, one.grad))
    assert flambeau.report(compiled).graphs == 1


def made(data, mask):
    return Masked(data, mask, 3.0)


def twice(data, mask):
    return TwoTensor(data, data * 2)


@pytest.mark.sweep(5)
@BACKEND
@OPERATION
@pytest.mark.parametrize("build", [made, twice], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("leaves", ["result", "parts"])
def test_made_inside(operation, build, leaves, backend):
    def fn(data, mask):
        x = build(data * 2, mask)
        result = OPERATIONS[operation](x)
        if leaves == "result":
            return result
        first = result[0] if isinstance(result, tuple) else result
        if not hasattr(first, "__tensor_flatten__"):
            return first
        return [getattr(first, name) for name in first.__tensor_flatten__()[0]]

    compiled = flambeau.compile(fn, backend=backend, fullgraph=True)
    for seed in range(2):
        x = masked(seed)
        same(compiled(x.data_, x.mask), fn(x.data_, x.mask))


@BACKEND
@FORMS
def test_written_argument(form, backend):
    def fn(x):
        x.mul_(2)
        return x + 1

    compiled = flambeau.compile(fn, backend=backend, fullgraph=True)
    for seed in range(2):
        one, other = MAKERS[form](seed), MAKERS[form](seed)
        inner = other.__tensor_flatten__()[0][0]
        kept = getattr(other, inner)
        same((compiled(other), other), (fn(one), one))
        assert getattr(other, inner) is kept and other._version == one._version


@BACKEND
@FORMS
def test_same_object(form, backend):
    compiled = flambeau.compile(lambda x: (x, x * 2), backend=backend, fullgraph=True)
    x = MAKERS[form]()
    assert compiled(x)[0] is x


def part_written(x):
    x.a.mul_(2)
    return x + 1, x.a


def written_then_read(x):
    y = x.a
    x.mul_(2)
    return y, x.b + 1


def view_written(x):
    x.view(-1).mul_(3)
    return x


def part_replaced(x):
    x.a = x.b
    return x * 2


def parts_shared(x):
    t = TwoTensor(x.a, x.b * 1)
    t.mul_(2)
    return x.b, t, x + 1


def attribute_of_its_own(x):
    x.note = 3
    return x * x.note


def indexed(x):
    return x[torch.tensor([0, 2])], torch.cat([x, x]), torch.stack([x, x * 2])


def classes(x):
    return isinstance(x, TwoTensor), type(x * 2) is TwoTensor, x.get_elem_a()


WAYS = (
    part_written,
    written_then_read,
    view_written,
    part_replaced,
    parts_shared,
    attribute_of_its_own,
    indexed,
    classes,
)


@BACKEND
@pytest.mark.parametrize("fn", WAYS, ids=lambda fn: fn.__name__)
def test_writes_parts_and_attributes(fn, backend):
    """In graphs as many as it takes."""
    compiled = flambeau.compile(fn, backend=backend)
    for seed in range(2):
        expected, given = two(seed), two(seed)
        same((compiled(given), given), (fn(expected), expected))


class Doubling(Mixed):
    """`__torch_function__` that changes what it is called for, and calls it again."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
            return out * 2 if getattr(func, "__name__", "") == "mul" else out


@BACKEND
def test_torch_function_answers_once(backend):
    def fn(x):
        return x.mul(3) + 1, x.mul(2).sum()

    compiled = flambeau.compile(fn, backend=backend, fullgraph=True)
    expected, given = (Doubling(x.low, x.high, x.scale) for x in (mixed(0), mixed(0)))
    same(compiled(given), fn(expected))


@BACKEND
def test_open_sizes_of_others(backend):
    compiled = flambeau.compile(
        lambda w, x: (w * 3, x + 1, x.sum() * w), backend=backend, fullgraph=True
    )
    for size in (2, 3, 4, 5):
        x = torch.arange(float(size))
        same(compiled(two(), x), (two() * 3, x + 1, x.sum() * two()))
    assert flambeau.report(compiled).graphs == 2


@pytest.mark.parametrize("form", [masked, nested_masked], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("operation", ["part", "chain"])
def test_gradients_with_integers_of_their_own_are_refused(form, operation):
    """They are eager's; which integers they have, the compiled form cannot carry."""
    fn = OPERATIONS[operation]
    compiled = flambeau.compile(fn, backend="aot_eager")
    with pytest.warns(UserWarning, match="AO0168"):
        found = with_gradients(compiled, form)
    same(found, with_gradients(fn, form))


def test_a_cotangent_with_other_integers_is_refused():
    compiled = flambeau.compile(lambda x: x * 2, backend="aot_eager", fullgraph=True)
    x = masked().requires_grad_()
    y = compiled(x)
    other = Masked(torch.ones(3, 4), ~y.mask, y.scale)
    with pytest.raises(RuntimeError, match="AO0168"):
        y.backward(other)
