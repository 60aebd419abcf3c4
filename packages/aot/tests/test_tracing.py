"""What programs may do while they are traced, and what is refused by name."""

import flambeau_aot as aot
import pytest
import torch
from torch.nn import functional as F

from .programs import scope  # noqa: F401  (registers the operators used below)

X = torch.randn(3, 3)
LEAF = torch.randn(3, 3, requires_grad=True)


def saved_at_half_precision(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
        return (x.sin() * x).exp()


def hook_on_an_intermediate(x):
    y = x.sin()
    y.register_hook(lambda grad: grad * 3)
    return y * x, y


def conjugates(x):
    z = torch.complex(x, x.sin())
    return (z * z.conj()).real, z.conj().imag, z.conj(), (z.conj() + z.sin().conj()).abs()


def custom_operator(x):
    return torch.ops.flambeau_aot_tests.cube(x) * x


def same_object_twice(x):
    y = x.t()
    return y, [y, y], x.sin()


def same_object_before_and_after_views_of_it(x):
    y = x.sin()
    return y, y.t(), y[0], y


def grad_enabled_inside(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x.sin()
    return y, z


def leaf_made_inside(x):
    return x.detach().clone().requires_grad_(), x.sin()


def out_argument(x):
    target = torch.empty(3, 3)
    torch.mul(x.detach(), 2, out=target)
    return target + x


@pytest.mark.parametrize(
    "fn",
    [
        saved_at_half_precision,
        hook_on_an_intermediate,
        conjugates,
        custom_operator,
        same_object_twice,
        same_object_before_and_after_views_of_it,
        grad_enabled_inside,
        out_argument,
    ],
    ids=lambda fn: fn.__name__,
)
def test_as_eager(fn, same_as_eager) -> None:
    same_as_eager(fn, LEAF, exact=False)


def test_a_leaf_made_inside_is_a_leaf_outside() -> None:
    made, _ = aot.aot_function(leaf_made_inside, aot.run_as_is)(LEAF)
    assert made.is_leaf
    assert made.requires_grad
    (made * 2).sum().backward()
    assert torch.equal(made.grad, torch.full((3, 3), 2.0))


def test_an_input_that_begins_to_require_grad() -> None:
    def fn(x):
        x.requires_grad_()
        return torch.ones(2)

    x = torch.randn(3)
    aot.aot_function(fn, aot.run_as_is)(x)
    assert x.requires_grad


def test_a_users_operator_that_writes(same_as_eager) -> None:
    def fn(x):
        torch.ops.flambeau_aot_tests.halve_(x[0])
        torch.ops.flambeau_aot_tests.halve_(x)
        return x.sin()

    same_as_eager(fn, X)


def test_a_write_in_place_keeps_strides(same_as_eager) -> None:
    def fn(x):
        y = x.t() * 2
        y.masked_fill_(y > 0, 1.0)
        y.t()[0].add_(1)
        return y, y.tanh()

    same_as_eager(fn, X)


def test_a_write_through_data_is_not_counted() -> None:
    def fn(x):
        x.data.mul_(2)
        return x.sin()

    x = torch.ones(3)
    aot.aot_function(fn, aot.run_as_is)(x)
    assert torch.equal(x, torch.full((3,), 2.0))
    assert x._version == 0


def bag(x):
    return F.embedding_bag(torch.tensor([[0, 1]]), x, sparse=True, max_norm=1.0)


def accumulated(x):
    return torch.ops.higher_order.associative_scan(lambda a, b: (a + b,), (x,), ())


def expanded_write(x):
    x.sum(0).expand(3, 3).fill_(1)
    return x


def tangent_of_views(x):
    def differences(a):
        v = (a * a).reshape(-1)
        return v[1:] - v[:-1]

    return torch.func.jvp(differences, (x,), (x,))[1]


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (bag, "use sparse=False"),
        (accumulated, "higher-order operator"),
        (lambda x: x.register_hook(print), "the handle of a hook on an input"),
        (lambda x: x.sin().retain_grad(), "retain_grad"),
        (lambda x: x.sin() if x.grad is None else x, r"reading \.grad of an input"),
        (expanded_write, "expanded tensor"),
        (lambda x: torch._foreach_add_([x * 1] * 2, 1), "share memory"),
        (lambda x: (x * 1)[1:].as_strided_((2,), (1,)), "as_strided_, in place, of a view"),
        (lambda x: torch.add(X, 1, out=torch.empty(2)) + x, "out= of another size"),
        (lambda x: x * int(torch.equal(x, x)), "asks for the values of tensors"),
        (lambda x: x.tensor_split(torch.tensor([1])), "asks for the values of a tensor"),
        (tangent_of_views, "forward-mode differentiation of a view"),
    ],
)
def test_refused_by_name(fn, message) -> None:
    with pytest.raises(aot.Unsupported, match=message):
        aot.aot_function(fn, aot.run_as_is)(LEAF.detach().clone().requires_grad_())


def test_the_line_of_a_refusal() -> None:
    def fn(x):
        return x.resize_(5, 5) * 2

    with pytest.raises(aot.AotError, match="another storage or size"):
        aot.aot_function(fn, aot.run_as_is)(torch.randn(3, 4))


def test_a_users_operator_writes_beside_autograd(same_as_eager) -> None:
    def fn(x):
        y = x * 2
        torch.ops.flambeau_aot_tests.halve_(y)
        part = y[1:]
        torch.ops.flambeau_aot_tests.halve_(part)
        return y.exp(), part * 1

    same_as_eager(fn, LEAF)


@pytest.mark.parametrize("call", [torch.Tensor.slice_inverse, torch.ops.aten.slice_inverse])
def test_a_view_of_two_tensors_is_refused_by_name(call):
    def fn(x):
        return call(x * 1, torch.ones(3), 0)

    with pytest.raises(aot.Unsupported, match="slice_inverse"):
        aot.aot_function(fn, aot.run_as_is)(torch.ones(3))


DRAWS = {
    "between": lambda x: x.clone().random_(0, 10),
    "from": lambda x: x.clone().random_(3, None),
    "below": lambda x: x.clone().random_(7),
    "any": lambda x: x.clone().random_(),
}


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.int64, torch.uint8))
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_an_operator_that_python_cannot_name_is_refused_or_has_another_name(draw, dtype) -> None:
    x = torch.zeros(3, 4, dtype=dtype).t()
    torch.manual_seed(0)
    expected = draw(x)
    torch.manual_seed(0)
    try:
        found = aot.aot_function(draw, aot.run_as_is)(x)
    except aot.AotError as error:
        assert error.id == "AO0162" and draw is DRAWS["from"]
        return
    assert torch.equal(found, expected) and found.stride() == expected.stride()
