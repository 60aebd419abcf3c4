"""Mutations and aliases: what is shared, written and returned is as in eager."""

import itertools

import flambeau_aot as aot
import pytest
import torch

X = torch.randn(4, 6)
W = torch.randn(4, 6, requires_grad=True)
NON_LEAF = torch.randn(4, 6, requires_grad=True) * 2


def mutate_input(x, w):
    x.add_(w.detach())
    return x * 2


def mutate_through_view(x, w):
    x[1].mul_(3)
    x.view(-1)[::2].zero_()
    return x.sin() * w


def mutate_non_leaf(x, w):
    w.mul_(2)
    return w + x


def mutate_non_leaf_view(x, w):
    w[0].mul_(x[0])
    return w * x


def buffer_takes_gradient(x, w):
    x.copy_(w * 2)
    return x.sin()


def mutate_under_no_grad(x, w):
    with torch.no_grad():
        w.mul_(0.5)
    return w * x


def return_input(x, w):
    return x, w


def return_mutated_input(x, w):
    x.mul_(2)
    return x, x + w


def views_of_input(x, w):
    return x.t(), w.view(-1), w[1:], w.t().t(), x.unsqueeze(0)


def view_of_mutated_input(x, w):
    x.add_(1)
    return x.t(), w * x


def split_of_input(x, w):
    return w.split(2, dim=0), x.unbind(1)[2], w.chunk(3, 1)


def views_of_intermediate(x, w):
    y = (x * w).exp()
    return y, y.t(), y[0]


def only_views_of_intermediate(x, w):
    y = (x * w).exp()
    return y.t(), y[0]


def expanded(x, w):
    return w.sum(0, keepdim=True).expand(5, 6), x


def same_result_twice(x, w):
    y = x * w
    return y, y, (x * w)


def equal_but_distinct(x, w):
    return x.clone(), x.clone(), w.clone(), x.contiguous()


def literals(x, w):
    return None, 3, "name", x * w, {"key": [w.sin(), 2.5]}


def not_differentiable(x, w):
    y = w * x
    return y, y.detach(), (y > 0), y.argmax(1)


def detached_view(x, w):
    y = w * x
    return y, y.detach().t()


def view_under_no_grad(x, w):
    with torch.no_grad():
        v = w.t()
    return v, w.sin()


def in_place_on_intermediate_view(x, w):
    y = (x * w).sin()
    y[1].add_(1)
    y.t()[2].mul_(2)
    return y, y[0]


def in_place_chain(x, w):
    y = torch.zeros_like(x)
    y += w
    y.mul_(2)
    y[:, 1:3].copy_(x[:, :2])
    return y


def constants(x, w):
    c = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    return x + c, c, torch.arange(3), torch.ones(2) * w[0, :2]


def dropped(x, w):
    return torch.nn.functional.dropout(x * w, 0.5), torch.rand(3), torch.randn_like(x)


def unused_random(x, w):
    torch.rand(3)
    return torch.rand(3) + w[0, :3]


def strided(x, w):
    return w.as_strided((2, 3), (6, 2), 1) * 2, x.as_strided((3,), (2,))


def data_attribute(x, w):
    x.data.add_(1)
    return x * w


def requires_grad_of_part(x, w):
    return w.sin(), x.cos()


def zero_sized(x, w):
    return x[:0] * w[:0], w[:, :0].sum(1)


def scalar(x, w):
    return (w * x).sum(), w.mean().exp().detach()


def transposed_result(x, w):
    return (w * x).t(), (w * x).t().contiguous(), (x * 2).permute(1, 0)[1]


FUNCTIONS = [
    mutate_input, mutate_through_view, return_input, return_mutated_input, views_of_input,
    view_of_mutated_input, split_of_input, views_of_intermediate, only_views_of_intermediate,
    expanded, same_result_twice, equal_but_distinct, literals, not_differentiable, detached_view,
    view_under_no_grad, in_place_on_intermediate_view, in_place_chain, constants, dropped,
    unused_random, strided, data_attribute, requires_grad_of_part, zero_sized, scalar,
    transposed_result,
]  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_training(fn, same_as_eager):
    same_as_eager(fn, X, W)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_inference(fn, same_as_eager):
    with torch.no_grad():
        entry = same_as_eager(fn, X, W)
    assert entry.report.kind == "inference"


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_transposed_inputs(fn, same_as_eager):
    if fn is strided or "view(-1)" in fn.__code__.co_names or fn is mutate_through_view:
        pytest.skip("the program itself needs contiguous inputs")
    if fn is views_of_input:
        pytest.skip("the program itself needs contiguous inputs")
    same_as_eager(fn, torch.randn(6, 4).t(), torch.randn(6, 4).t().requires_grad_())


@pytest.mark.parametrize(
    "fn",
    [mutate_non_leaf, mutate_non_leaf_view, mutate_under_no_grad, buffer_takes_gradient],
    ids=lambda fn: fn.__name__,
)
def test_non_leaf(fn, same_as_eager):
    same_as_eager(fn, X, NON_LEAF)


def test_gradient_reaches_what_a_written_input_came_from() -> None:
    def fn(x):
        x.mul_(3)
        return x.sin()

    compiled = aot.aot_function(fn, aot.run_as_is)
    grads = []
    for run in (fn, compiled):
        leaf = torch.linspace(0, 1, 5).requires_grad_()
        value = leaf * 2
        result = run(value)
        (value.sum() + result.sum()).backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_duplicated_input(same_as_eager) -> None:
    entry = same_as_eager(lambda a, b: (a * b).sin(), W, W)
    assert len(entry.joint.primals) == 1


def test_duplicated_input_written(same_as_eager) -> None:
    def fn(a, b):
        a.add_(1)
        return a * b, b

    same_as_eager(fn, X, X)


def test_duplicates_that_differ_later_are_compiled_again() -> None:
    gm = torch.fx.symbolic_trace(lambda a, b: (a * b,))
    compiled = aot.aot_eager(gm, [X, X])
    for _ in range(2):
        assert torch.equal(compiled(X, X + 1)[0], X * (X + 1))
        assert torch.equal(compiled(X, X)[0], X * X)
    assert len(compiled.variants) == 1


def test_leaf_written_raises_as_eager() -> None:
    def fn(w):
        w.mul_(2)
        return w

    compiled = aot.aot_function(fn, aot.run_as_is)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        compiled(W.detach().clone().requires_grad_())


def overlapping(kind):
    """A caller's tensor and two parts of it that share memory."""
    leaf = torch.linspace(-1, 1, 6).requires_grad_()
    with torch.set_grad_enabled(kind != "plain"):
        base = leaf * 2
    if kind == "detached":
        return leaf, base, base[:4], base.detach()[2:]
    if kind == "whole":
        return leaf, base, base, base[1:5]
    return leaf, base, base[:4], base[2:]


def write_first(a, b):
    a.mul_(3)
    return b.sin(), a, a[1:], b[:1]


def write_second(a, b):
    b[0].add_(a[0].detach())
    return a * 2, b


@pytest.mark.parametrize("kind", ["plain", "recorded", "detached", "whole"])
@pytest.mark.parametrize("fn", [write_first, write_second], ids=lambda fn: fn.__name__)
def test_overlapping_inputs_written(fn, kind) -> None:
    outcomes = []
    for run in (fn, aot.aot_function(fn, aot.run_as_is)):
        leaf, base, a, b = overlapping(kind)
        results = run(a, b)
        if kind != "plain":
            (base.sum() + sum(item.sum() for item in results if item.requires_grad)).backward()
        whose = [item._base is base or item._base is base._base for item in results]
        outcomes.append(([base, a, b, *results], leaf.grad, whose))
    for one, other in zip(outcomes[0][0], outcomes[1][0]):
        torch.testing.assert_close(other, one)
        assert other.requires_grad == one.requires_grad
    assert outcomes[0][2] == outcomes[1][2]
    torch.testing.assert_close(outcomes[1][1], outcomes[0][1])


def test_overlap_of_unrelated_leaves_is_refused() -> None:
    base = torch.randn(6)
    a, b = base[:4].detach().requires_grad_(), base[2:].detach().requires_grad_()

    def fn(a, b):
        with torch.no_grad():
            a.add_(1)
        return b * 2

    with pytest.raises(aot.Unsupported, match="not views of one tensor"):
        aot.aot_function(fn, aot.run_as_is)(a, b)


def test_overlap_that_appears_later_is_compiled_again() -> None:
    gm = torch.fx.symbolic_trace(lambda a, b: (a.add_(1) * b,))
    compiled = aot.aot_eager(gm, [torch.randn(4), torch.randn(4)])
    for _ in range(2):
        one, other = torch.arange(6.0), torch.arange(6.0)
        (expected,) = gm(one[:4], one[2:])
        (given,) = compiled(other[:4], other[2:])
        assert torch.equal(given, expected)
        assert torch.equal(one, other)
    assert len(compiled.variants) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.unsqueeze_(1),
        lambda x: x.unsqueeze_(0).transpose_(0, 2),
        lambda x: x.t_().mul_(2),
        lambda x: x.mul_(2).t_()[0].zero_(),
    ],
)
@pytest.mark.parametrize("grad", [True, False])
def test_input_reshaped_in_place(change, grad) -> None:
    if grad and {"mul_", "zero_"} & set(change.__code__.co_names[1:]):
        with pytest.raises(aot.Unsupported, match="given another shape in place"):
            aot.aot_function(change, aot.run_as_is)(torch.ones(3, 4, requires_grad=True) * 1)
        return

    def fn(x):
        before = x[0]
        change(x)
        return before, x * 2, x[0], x

    outcomes = []
    for run in (fn, aot.aot_function(fn, aot.run_as_is)):
        leaf = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_(grad)
        x = leaf * 1
        version = x._version
        results = run(x)
        assert x._version > version
        assert results[3] is x
        if grad:
            sum((item * item).sum() for item in results).backward()
        outcomes.append((x, results, leaf.grad))
    assert outcomes[0][0].shape == outcomes[1][0].shape
    assert outcomes[0][0].stride() == outcomes[1][0].stride()
    for one, other in zip(outcomes[0][1], outcomes[1][1]):
        torch.testing.assert_close(other, one)
    torch.testing.assert_close(outcomes[1][2], outcomes[0][2])


@pytest.mark.parametrize("change", [lambda x: x.set_(torch.ones(2)), lambda x: x.resize_(5, 5)])
def test_input_of_another_storage_is_refused(change) -> None:
    def fn(x):
        change(x)
        return x * 2

    with pytest.raises(aot.AotError):
        aot.aot_function(fn, aot.run_as_is)(torch.randn(3, 4))


def test_grad_mode_left_behind() -> None:
    def fn(x):
        torch.set_grad_enabled(False)
        return x * 2

    compiled = aot.aot_function(fn, aot.run_as_is)
    with torch.enable_grad():
        compiled(torch.randn(2, requires_grad=True))
        assert not torch.is_grad_enabled()


def test_closing_over_a_parameter_is_refused() -> None:
    with pytest.raises(aot.Unsupported, match="closes over"):
        aot.aot_function(lambda x: x * W, aot.run_as_is)(X)


def test_results_that_are_views_may_be_written_to() -> None:
    def fn(x):
        h = x.cos() * 2
        return h.t(), (x @ x)[1:], x.sin().unsqueeze(0)

    grads = []
    for run in (fn, aot.aot_function(fn, aot.run_as_is)):
        x = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
        one, two, three = run(x)
        one.mul_(3)
        two[0].add_(1)
        three.squeeze_(0).neg_()
        ((one * one.detach()).sum() + two.sum() + three.sum()).backward()
        grads.append(x.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_results_that_are_not_differentiable_may_be_written_to() -> None:
    def fn(x):
        return x.sin(), (x.detach() * 2).t(), (x > 0)[1:]

    x = torch.randn(3, 3, requires_grad=True)
    value, plain, mask = aot.aot_function(fn, aot.run_as_is)(x)
    plain.mul_(2)
    mask.logical_not_()
    plain.add_(value.t())
    torch.testing.assert_close(plain, (x * 4 + x.sin()).t())
    assert torch.equal(mask, (x <= 0)[1:])


MADE_LEAVES = {
    "itself": lambda y: y,
    "a view": lambda y: y.view_as(y),
    "a transpose": lambda y: y.t(),
    "a value": lambda y: y + 0,
}
VIEWS_OF_LEAVES = {
    "dimension": lambda leaf: leaf.unsqueeze(0),
    "transpose": lambda leaf: leaf.t(),
    "row": lambda leaf: leaf[1],
}


@pytest.mark.parametrize(
    ("shown", "expected"),
    [("v", 0), ("yv", 0), ("vy", 0), ("mv", 0), ("lv", 12), ("vl", 12), ("ylv", 3)],
)
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
def test_views_of_leaves_made_inside(grad: bool, shown: str, expected: int) -> None:
    """They require grad as in eager, with a base that does; or they are refused."""

    def told(results):
        return [(x.requires_grad, x.is_leaf, getattr(x._base, "requires_grad", 0)) for x in results]

    made = 0
    for before, view in itertools.product(MADE_LEAVES.values(), VIEWS_OF_LEAVES.values()):

        def fn(x, before=before, view=view):
            y = x * 2
            m = before(y)
            leaf = m.detach().requires_grad_()
            known = {"y": y, "m": m, "l": leaf, "v": view(leaf)}
            return tuple(known[name] for name in shown)

        x = torch.randn(3, 3, requires_grad=True)
        with torch.set_grad_enabled(grad):
            try:
                given = told(aot.aot_function(fn, aot.run_as_is)(x))
            except aot.Unsupported:
                continue
            made += 1
            assert given == told(fn(x))
    assert made == expected
