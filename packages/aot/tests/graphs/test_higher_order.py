"""Derivatives of second and third order through compiled graphs, against eager."""

import copy

import flambeau_aot as aot
import pytest
import torch
from torch.nn import functional as F


def derivatives(fn, inputs, order, seed=0):
    """Gradients of every order up to `order`, each of a weighted sum of those below."""
    leaves = [
        item.clone().requires_grad_() if item.is_floating_point() else item for item in inputs
    ]
    wanted = [item for item in leaves if item.requires_grad]
    torch.manual_seed(seed)
    results = fn(*leaves)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    values = [item for item in results if item.requires_grad]
    found = []
    for level in range(order):
        total = sum(
            (item * torch.linspace(0.3, 1.7, item.numel()).view(item.shape)).sum()
            for item in values
        )
        if not total.requires_grad:
            break
        grads = torch.autograd.grad(
            total, wanted, create_graph=level + 1 < order, allow_unused=True
        )
        found.append([None if item is None else item.detach().clone() for item in grads])
        values = [item for item in grads if item is not None]
    return found


def same(fn, *inputs, order=3, **options):
    inputs = [item.double() if item.is_floating_point() else item for item in inputs]
    compiled = aot.aot_function(fn, options.pop("compiler", aot.run_as_is), **options)
    for _ in range(2):
        expected = derivatives(fn, inputs, order)
        given = derivatives(compiled, inputs, order)
        assert len(expected) == len(given)
        for one, other in zip(expected, given):
            for want, got in zip(one, other):
                assert (want is None) == (got is None)
                if want is not None:
                    torch.testing.assert_close(got, want)
    (entry,) = compiled.compiled.values()
    return entry


class Halved(torch.autograd.Function):
    """A derivative of the user's own: half the true one."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * 0.5


def frozen_scale(x, w):
    with torch.no_grad():
        scale = (x * x).mean()
    return (x @ w / (scale + 1)).tanh()


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: (x @ w).sin().exp(),
        lambda x, w: (x @ w).sigmoid() * x.detach() + w.exp().detach() * x.sin(),
        frozen_scale,
        lambda x, w: Halved.apply(x @ w),
        lambda x, w: (x + w, x * 3, (w - 1).t()),
        lambda x, w: torch.softmax(x @ w, -1) @ w,
        lambda x, w: F.layer_norm(x @ w, (3,)),
        lambda x, w: F.gelu(x @ w).pow(3).sum(0),
        lambda x, w: (x.sum() * w.prod(), x.detach() * 2),
    ],
)
@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
def test_three_orders(fn, partition) -> None:
    torch.manual_seed(1)
    same(fn, torch.randn(3, 3), torch.randn(3, 3), partition=partition)


def test_decompositions_do_not_change_the_derivative() -> None:
    table = {torch.ops.aten.sigmoid.default: lambda x: 1 / (1 + torch.exp(-x))}
    same(lambda x: x.sigmoid() * x, torch.randn(4), decompositions=table)


def test_inputs_written_on_the_way() -> None:
    def fn(x, w):
        y = x * 1
        y.mul_(w)
        y[0] = w[1].sin()
        return y.exp()

    same(fn, torch.randn(3), torch.randn(3))


def test_an_input_that_only_second_derivatives_read_is_held() -> None:
    w = torch.randn(3, 3).double()

    def fn(x):
        return torch.tanh(x @ w)

    entry = same(fn, torch.randn(2, 3))
    assert entry.report.held_inputs
    bare = same(lambda x: x + 1, torch.randn(2, 3))
    assert bare.report.held_inputs == ()


def test_dropout_repeats_the_same_mask() -> None:
    def fn(x, w):
        return F.dropout(torch.tanh(x @ w), 0.5).sin()

    before = torch.get_rng_state()
    same(fn, torch.randn(6, 6), torch.randn(6, 6))
    torch.set_rng_state(before)
    x = torch.randn(5, requires_grad=True)
    compiled = aot.aot_function(lambda x: F.dropout(x.sin(), 0.5), aot.run_as_is)
    torch.manual_seed(3)
    result = compiled(x).sum()
    following = torch.rand(3)
    torch.manual_seed(3)
    result = compiled(x).sum()
    torch.autograd.grad(result, x, create_graph=True)
    assert torch.equal(torch.rand(3), following), "the derivative moved the random stream"


def penalised(module, x, y):
    """A loss with a penalty on the gradient, as WGAN-GP and many physics models use."""
    x = x.clone().requires_grad_()
    out = module(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return (out - y).square().mean() + (slope.norm(dim=1) - 1).square().mean()


@pytest.mark.parametrize("bare", [False, True])
def test_gradient_penalty_through_a_module(bare) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1)
    )
    twin = copy.deepcopy(module)
    compiled = aot.aot_module(twin, aot.run_as_is)
    x, y = torch.randn(6, 4), torch.randn(6, 1)
    for _ in range(3):
        for own, runs in ((module, module), (twin, compiled)):
            own.zero_grad()
            penalised(runs, x, y).backward()
            with torch.no_grad():
                for parameter in own.parameters():
                    parameter -= 0.1 * parameter.grad
    for one, other in zip(module.parameters(), twin.parameters()):
        torch.testing.assert_close(other, one)
        torch.testing.assert_close(other.grad, one.grad)


def test_batch_norm_statistics_are_updated_once() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh())
    twin = copy.deepcopy(module)
    compiled = aot.aot_module(twin, aot.run_as_is)
    x, y = torch.randn(6, 4), torch.randn(6, 4)
    for _ in range(2):
        penalised(module, x, y).backward()
        penalised(compiled, x, y).backward()
    for one, other in zip(module.buffers(), twin.buffers()):
        torch.testing.assert_close(other, one)
    for one, other in zip(module.parameters(), twin.parameters()):
        torch.testing.assert_close(other.grad, one.grad)


def test_nothing_is_paid_before_it_is_asked_for() -> None:
    compiled_graphs = []

    def counting(gm, inputs, info):
        compiled_graphs.append((info.kind, info.name))
        return aot.boxed(gm)

    compiled = aot.aot_function(lambda x: x.sin(), counting, options=aot.Options(name="wave"))
    x = torch.randn(3, requires_grad=True)
    compiled(x).sum().backward()
    assert compiled_graphs == [("forward", "wave_forward"), ("backward", "wave_backward")]
    torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    assert compiled_graphs[2:] == [
        ("forward", "wave_derivative_forward"),
        ("backward", "wave_derivative_backward"),
    ]


def test_undefined_cotangents_stay_undefined() -> None:
    compiled = aot.aot_function(lambda a, b: (a.sin(), b.cos() * a), aot.run_as_is)
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    one, two = torch.autograd.grad(
        compiled(a, b)[0].sum(), (a, b), create_graph=True, allow_unused=True
    )
    assert two is None
    (again,) = torch.autograd.grad(one.sum(), a)
    torch.testing.assert_close(again, -a.sin())


def test_two_cotangents_that_are_one_tensor_and_then_two() -> None:
    compiled = aot.aot_function(lambda a: (a.sin(), a.exp()), aot.run_as_is)
    a = torch.randn(3, requires_grad=True)
    shared = torch.ones(3)
    for cotangents in ([shared, shared], [shared, torch.full((3,), 2.0)], [shared, shared]):
        (grad,) = torch.autograd.grad(compiled(a), a, cotangents, create_graph=True)
        (again,) = torch.autograd.grad(grad.sum(), a)
        torch.testing.assert_close(again, -a.sin() * cotangents[0] + a.exp() * cotangents[1])


def test_a_cotangent_that_needs_a_gradient_itself() -> None:
    compiled = aot.aot_function(lambda a: a * 3, aot.run_as_is)
    a, c = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    (grad,) = torch.autograd.grad(compiled(a), a, c, create_graph=True)
    torch.testing.assert_close(torch.autograd.grad(grad.sum(), c)[0], torch.full((3,), 3.0))
    (plain,) = torch.autograd.grad(compiled(a), a, c.detach(), create_graph=True)
    assert not plain.requires_grad


def test_autocast_of_the_first_trace_holds_in_the_derivative() -> None:
    compiled = aot.aot_function(lambda a, w: (a @ w).float().sin(), aot.run_as_is)
    grads = []
    for fn in (lambda a, w: (a @ w).float().sin(), compiled):
        a = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
        w = torch.linspace(0.1, 1.3, 9).view(3, 3).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            result = fn(a, w)
        (one,) = torch.autograd.grad(result.sum(), a, create_graph=True)
        grads.append(torch.autograd.grad(one.square().sum(), w)[0])
    assert torch.equal(grads[0], grads[1])


def scaled_after(x, w):
    y = (x.clone() * w).sin()
    x.mul_(2)
    return y


def scaled_state(x, w):
    before = x.clone()
    y = (before * w).sin()
    with torch.no_grad():
        x[:1].mul_(2)
    return y * before


def test_a_written_input_that_the_derivative_needs_is_kept() -> None:
    for fn in (scaled_after, scaled_state):
        compiled = aot.aot_function(fn, aot.run_as_is)
        found = []
        for call in (fn, compiled):
            x, w = torch.linspace(-1, 1, 3), torch.linspace(0.1, 1, 3).requires_grad_()
            for _ in range(2):
                result = call(x, w).sum()
                (one,) = torch.autograd.grad(result, w, create_graph=True)
                for last in (False, True):
                    again = one.square().sum()
                    found.append(torch.autograd.grad(again, w, retain_graph=not last)[0])
            found.append(x)
        torch.testing.assert_close(found[5:], found[:5])


def test_a_written_input_that_requires_grad_is_refused_by_name() -> None:
    compiled = aot.aot_function(scaled_after, aot.run_as_is)
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    result = compiled(x * 1, w).sum()
    with pytest.raises(aot.DoubleBackwardError, match=r"arg_0.*value is gone"):
        torch.autograd.grad(result, w, create_graph=True)


def test_a_write_between_forward_and_backward_raises() -> None:
    frozen = torch.randn(3, 3)
    compiled = aot.aot_function(lambda x, b: torch.tanh(x @ frozen + b), aot.run_as_is)
    x, b = torch.randn(2, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    result = compiled(x, b).sum()
    with torch.no_grad():
        b.add_(1)
    torch.autograd.grad(result, x, retain_graph=True)  # the first derivative does not read b
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(result, x, create_graph=True)


def test_a_program_that_changed_since_is_refused() -> None:
    returned = [1]
    compiled = aot.aot_function(
        lambda x: tuple(x.sin() * k for k in range(1, returned[0] + 1)), aot.run_as_is
    )
    x = torch.randn(3, requires_grad=True)
    result = compiled(x)[0].sum()
    returned[0] = 2
    with pytest.raises(aot.DoubleBackwardError, match="must not change"):
        torch.autograd.grad(result, x, create_graph=True)


def test_hessian_of_a_compiled_function() -> None:
    compiled = aot.aot_function(lambda x: (x.sin() * x.exp()).sum(), aot.run_as_is)
    x = torch.randn(4, dtype=torch.double)
    expected = torch.autograd.functional.hessian(lambda x: (x.sin() * x.exp()).sum(), x)
    torch.testing.assert_close(torch.autograd.functional.hessian(compiled, x), expected)


def test_gradgradcheck() -> None:
    compiled = aot.aot_function(lambda x, w: F.softplus(F.conv1d(x, w)).mean(-1), aot.run_as_is)
    x = torch.randn(1, 2, 5, dtype=torch.double, requires_grad=True)
    w = torch.randn(3, 2, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradgradcheck(compiled, (x, w))


LINEAR = {
    "the same": lambda x: x.clone(),
    "number added": lambda x: x + 1,
    "view": lambda x: x.t().reshape(-1),
    "part": lambda x: x[0] + x,
    "repeated": lambda x: (x + 1, x + 2),
    "one of two": lambda x: (x.detach() * 2, x + 1),
    "scaled": lambda x: x * 3,
    "sum": lambda x: x.sum() + x.cumsum(0),
    "custom": lambda x: Doubled.apply(x) + 1,
}


class Doubled(torch.autograd.Function):
    """A derivative that is its argument, as it is."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g


@pytest.mark.parametrize("name", LINEAR)
def test_cotangents_with_a_history(name):
    """The gradient of a linear function is its cotangent's, whose history is the caller's."""
    fn = LINEAR[name]

    def run(f):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        results = f(x)
        results = [results] if isinstance(results, torch.Tensor) else list(results)
        total = sum((item * item).sum() for item in results if item.requires_grad)
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        (first * first).sum().backward()
        return first, x.grad

    got, want = run(aot.aot_function(fn, aot.run_as_is)), run(fn)
    torch.testing.assert_close(got, want)
    assert got[0].requires_grad and got[0].grad_fn is not None


def test_a_program_that_gives_an_input_as_the_cotangent():
    def program(x, t):
        return torch.autograd.grad(x + 1, x, t, create_graph=True)[0]

    x, t = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    given = aot.aot_function(program, aot.run_as_is)(x, t)
    (found,) = torch.autograd.grad((given * given).sum(), t)
    torch.testing.assert_close(found, torch.full((3,), 2.0))
