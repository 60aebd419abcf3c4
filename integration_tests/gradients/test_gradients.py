"""Gradients and effects across the border of a graph, through `flambeau.compile`.

Autograd functions whose result is a view, steps of training under autocast, hooks, what a backward
pass writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_aot
import flambeau_prims
import pytest
import torch

import flambeau
from flambeau.backends.composed import classify

DEFAULT = "inductor"


class Reverse(torch.autograd.Function):
    """Reverses the gradient; the result is the argument."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return -grad


class Both(torch.autograd.Function):
    """The argument, and a new value of it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.save_for_backward(x)
        return x, x * 2

    @staticmethod
    def backward(ctx: Any, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return one * 3 + other * x


RETURNED: list[Callable[[torch.Tensor], Any]] = [
    lambda x: Reverse.apply(x),
    lambda x: Reverse.apply(x * 2),
    lambda x: Reverse.apply(x * 2).view(-1),
    lambda x: Both.apply(x),
    lambda x: Both.apply(x.cos()),
    # eagerly: a shared view depends on a result
    lambda x: (lambda a: (a, Reverse.apply(a)))(x.sin()),
    lambda x: (lambda y: (y, y[0], y + 1))(Reverse.apply(x)),
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("backend", ["aot_eager", DEFAULT])
@pytest.mark.parametrize("number", range(len(RETURNED)))
def test_a_view_whose_gradient_is_the_users(number: int, backend: str) -> None:
    program = RETURNED[number]

    def outcome(call: Callable[..., Any]) -> Any:
        x = torch.arange(1.0, 7.0).view(2, 3).requires_grad_()
        results = call(x)
        results = results if isinstance(results, tuple) else (results,)
        shared = [r.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for r in results]
        bases = [r._base is x for r in results]
        sum((r * r).sum() for r in results).backward()  # type: ignore[attr-defined]
        return [r.detach() for r in results], shared, bases, x.grad

    compiled = flambeau.compile(program, backend=backend, fullgraph=number < 5)
    for _ in range(2):
        torch.testing.assert_close(outcome(compiled), outcome(program))


MODULES: dict[str, Callable[[], torch.nn.Module]] = {
    "linear": lambda: torch.nn.Linear(4, 3),
    "convolution": lambda: torch.nn.Conv1d(4, 3, 1),
    "lstm cell": lambda: torch.nn.LSTMCell(4, 3),
}


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
@pytest.mark.parametrize("name", list(MODULES))
def test_a_step_of_training_under_autocast(name: str, inside: bool) -> None:
    torch.manual_seed(0)
    module = MODULES[name]()
    x = torch.randn(4, 4)

    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = module(x)
            loss = (found if isinstance(found, torch.Tensor) else found[0]).float().square().sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        return loss.detach()

    def outcome(call: Callable[..., Any]) -> Any:
        module.zero_grad()
        losses = [call(x), call(x)]  # the second adds to gradients that are there
        return losses, [p.grad.clone() for p in module.parameters() if p.grad is not None]

    compiled = flambeau.compile(step, backend="aot_eager", fullgraph=True)
    expected = outcome(step)
    assert len(expected[1]) == len(list(module.parameters()))
    torch.testing.assert_close(outcome(compiled), expected, rtol=2e-2, atol=2e-2)


def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).sin().float() @ w


def partly(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        y = (x.float() @ w).sin()
    return y @ w


def normed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(torch.nn.functional.linear(x, w), (3,))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("backend", ["aot_eager", DEFAULT])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("program", [plain, partly, normed], ids=lambda each: each.__name__)
def test_autocast_around_the_passes(
    program: Callable[..., Any], forward: bool, backward: bool, order: int, backend: str
) -> None:
    """Its casts are those of the forward pass: around a backward pass alone, eager's are left out,
    and the gradients are what they are without it."""

    def outcome(call: Callable[..., Any], cast: bool) -> Any:
        x = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
        w = x.detach().cos().requires_grad_()
        with torch.autocast("cpu", enabled=forward):
            found = result = call(x, w)
        with torch.autocast("cpu", enabled=cast):
            for left in reversed(range(order)):
                loss = found.float().square().sum()
                (found,) = torch.autograd.grad(loss, x, create_graph=left > 0)
        return result.detach(), found

    compiled = flambeau.compile(program, backend=backend, fullgraph=True)
    expected = outcome(program, False)
    near = 2e-2 if forward and order == 2 else 1e-5  # in half precision, sums in another order
    for _ in range(2):
        torch.testing.assert_close(outcome(compiled, backward), expected, rtol=near, atol=near)
    assert not flambeau.report(compiled).faults


SEEN: list[tuple[str, Any]] = []


def _noting(name: str, scale: float | None) -> Callable[[torch.Tensor], Any]:
    def hook(grad: torch.Tensor) -> Any:
        SEEN.append((name, grad.detach().clone()))
        return None if scale is None else grad * scale

    return hook


NOTE, DOUBLE = _noting("noted", None), _noting("doubled", 2.0)


def _on_a_sum(x: torch.Tensor) -> Any:
    a = x.sin()
    b = a.sum()
    b.register_hook(lambda grad: grad * 3.0)
    return a, b


def _inside(x: torch.Tensor) -> Any:
    a = x.sin()
    a.register_hook(lambda grad: grad * 2.0)
    return a.exp(), a.cos()


def _two(x: torch.Tensor) -> Any:
    a = x.sin()
    b = a * 2
    a.register_hook(NOTE)
    b.register_hook(DOUBLE)
    a.register_hook(DOUBLE)
    return a, b, b.exp()


def _kept_and_used(x: torch.Tensor) -> Any:
    a = x.sin()
    b = a.exp()
    a.register_hook(lambda grad: grad * 2.0)
    return a, b


def _in_a_function_called(x: torch.Tensor) -> Any:
    def part(y: torch.Tensor) -> torch.Tensor:
        z = y.exp()
        y.register_hook(NOTE)
        return z

    a = x.sin()
    return part(a), a * 2


def _none(x: torch.Tensor) -> Any:
    return x.sin(), x.cos(), (x * 2).view(-1)


# Programs one of whose results depends on another one: a hook that the caller puts on that one sees
# what reaches it from outside of the graph.
DEPEND = {"_on_a_sum", "_two", "_kept_and_used"}


@pytest.mark.parametrize(
    "program", [_on_a_sum, _inside, _two, _kept_and_used, _in_a_function_called, _none]
)
def test_hooks_run_where_they_do_in_eager(program: Callable[..., Any]) -> None:
    """Hooks of the program's, and others that are put on its results: each set of results that a
    backward pass may begin at."""

    def outcome(call: Callable[..., Any], asked: tuple[int, ...], outside: bool) -> Any:
        SEEN.clear()
        x = torch.arange(1.0, 4.0).requires_grad_()
        x.register_post_accumulate_grad_hook(lambda leaf: SEEN.append(("leaf", leaf.grad.clone())))
        results = call(x)
        for place, result in enumerate(results if outside else ()):
            result.retain_grad()
            result.register_hook(_noting(f"result {place}", None))
            result.register_hook(_noting(f"again {place}", 0.5)).remove()
            result.register_hook(_noting(f"scaled {place}", 0.5))
        sum(results[place].sum() for place in asked).backward()  # type: ignore[attr-defined]
        kept = [result.grad for result in results] if outside else []
        order = sorted(SEEN, key=lambda item: item[0])
        return [name for name, _ in order], [grad for _, grad in order], x.grad, kept

    compiled = flambeau.compile(program, backend="aot_eager")
    count = len(program(torch.ones(3, requires_grad=True)))
    sets = [s for n in range(1, count + 1) for s in itertools.combinations(range(count), n)]
    places = (False,) if program.__name__ in DEPEND else (False, True)
    for asked, outside in itertools.product(sets, places):
        names, *expected = outcome(program, asked, outside)
        found, *values = outcome(compiled, asked, outside)
        assert found == names, asked
        torch.testing.assert_close(values, expected)


def test_an_input_that_nothing_depends_on_has_no_edge() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        with torch.no_grad():
            x.transpose_(0, -1)
        return x, y * 2

    for run in (program, flambeau.compile(program, backend="aot_eager")):
        x, y = torch.randn(4, 3, requires_grad=True), torch.randn(3, 4, requires_grad=True)
        one, other = run(x, y)
        (one.sum() + other.sum()).backward()
        assert x.grad is not None and x.grad.shape == (3, 4)


class Largest(torch.autograd.Function):
    """Keeps a history of the largest gradients, as training in fp8 does."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        ctx.history = history
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        ctx.history.copy_(ctx.history.roll(1))
        ctx.history[0] = grad.abs().amax()
        return grad * ctx.history.sum(), None


@pytest.mark.parametrize("backend", ["eager", "aot_eager", DEFAULT])
def test_what_a_backward_pass_writes(backend: str) -> None:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("history", torch.zeros(3))
            self.weight = torch.nn.Parameter(torch.arange(1.0, 4.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = Largest.apply(x * self.weight, self.history)
            return found.sin() * 2

    seen = []
    for compiled in (False, True):
        module = Module()
        run = flambeau.compile(module, backend=backend, fullgraph=True) if compiled else module
        for scale in (1.0, 5.0):
            end = run(torch.arange(1.0, 4.0)).sum() * scale
            end.backward(retain_graph=True)
            end.backward()
            seen.append((module.history.clone(), module.weight.grad.clone()))
    torch.testing.assert_close(seen[2:], seen[:2])


@pytest.mark.parametrize("backend", ["aot_eager", DEFAULT])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}])
def test_recurrent_layers_whose_graph_is_kept(backend: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module, x = torch.nn.LSTM(4, 4, **options), torch.randn(5, 2, 4)
    seen = []
    for run in (module, flambeau.compile(module, backend=backend)):
        module.zero_grad()
        end = run(x)[0].square().sum()
        end.backward(retain_graph=True)
        end.backward()
        seen.append([p.grad.clone() for p in module.parameters()])
    torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.parametrize("backend", ["aot_eager", DEFAULT])
def test_a_second_derivative_that_is_known_to_be_zero(backend: str) -> None:
    programs: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: x.sum().reshape(1).abs().sum(),
        lambda x: x.reshape(8).sign().mul(x.reshape(8)).sum(),
        lambda x: x.t().abs().sum(0).view(2, 1).sum(),
    ]
    for program in programs:

        def gradient(x: torch.Tensor, program: Callable[..., Any] = program) -> torch.Tensor:
            return torch.autograd.grad(program(x), x, create_graph=True)[0]

        x = torch.randn(2, 4, requires_grad=True)
        torch.testing.assert_close(flambeau.compile(gradient, backend=backend)(x), gradient(x))


#: what may be returned in the memory of its operand, and is read again for a derivative
SHAPES = {
    "part of a concatenation": lambda x, y: torch.cat([x, y * 0.1])[:3],
    "rows": lambda x, y: (x * y)[:2],
    "transposed": lambda x, y: (x * y).t(),
    "as a row": lambda x, y: (x * y).reshape(-1),
    "repeated": lambda x, y: (x * y).sum(0).expand(3, 4),
    "flipped": lambda x, y: (x * y).flip(0),
    "one of a stack": lambda x, y: torch.stack([x * 2, y])[0],
    "a half": lambda x, y: (x * y).chunk(2, 1)[1],
    "a diagonal": lambda x, y: (x * y).diagonal(),
    "of an input": lambda x, y: x.t()[1:],
}


def poisoning(gm, inputs, info):
    """A compiler whose backward graphs leave no memory as it was that they may use again."""
    run = flambeau_aot.run_as_is(gm, inputs, info)

    def boxed(args):
        again = [args[place] for place in info.reusable_inputs]
        results = run(args)
        kept = [one if one is None else one.clone() for one in results]
        for memory in again:
            memory.fill_(float("nan"))
        return results if info.kind != "backward" else kept

    return boxed


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_backward_pass_overwrites_nothing_that_the_caller_has(name):
    """Saved values are memory to use again only where no result lies in it."""

    def f(x, y):
        part = SHAPES[name](x, y)
        return part, x * y, part.prod(0) + 1, (part * part.sum()).tanh()

    x, y = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    table = flambeau_prims.decompositions()
    options = flambeau_aot.Options(classify=classify)
    compiled = flambeau_aot.aot_function(f, poisoning, decompositions=table, options=options)
    results = compiled(x, y)
    before = [one.detach().clone() for one in (*results, x, y)]
    gradients = torch.autograd.grad(sum(one.sum() for one in results), (x, y))
    for one, was in zip((*results, x, y), before, strict=True):
        assert torch.equal(one, was)
    wanted = torch.autograd.grad(sum(one.sum() for one in f(x, y)), (x, y))
    torch.testing.assert_close(gradients, wanted)


def test_a_part_of_a_concatenation_is_saved_and_stays():
    def f(x, y):
        scaled = x @ y.t() @ y * 0.1
        part = torch.cat([x, scaled])[:3]
        return x, scaled, part, part.prod(0) + x

    x, y = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    results = flambeau.compile(f, backend=DEFAULT)(x, y)
    before = [one.detach().clone() for one in results]
    sum(one.sum() for one in results).backward()
    assert all(map(torch.equal, results, before))
