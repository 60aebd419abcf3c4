"""Backward hooks of modules: eager's derivatives, and its calls of hooks; in one graph where hooks
compute and every derivative is there. Generated: hooks, modules that have them, backward passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import flambeau

Grads = tuple[Tensor | None, ...]


class Block(nn.Module):
    """A module around a function, which has the hooks in `inner`."""

    def __init__(self, inner: nn.Module, way: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.way = inner, way

    def forward(self, x: Tensor) -> Tensor:
        return self.way(self.inner, x)


class Applied(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def broken(x: Tensor) -> Tensor:
    y = x.sin()
    flambeau.graph_break()
    return y * 2


# name: (what makes the module, whether it can be one graph)
MODULES: dict[str, tuple[Callable[[], Block], bool]] = {
    "linear": (lambda: Block(nn.Linear(3, 3), lambda m, x: m(x)), True),
    "relu": (lambda: Block(nn.ReLU(), lambda m, x: m(x * 2)), True),
    "in place": (lambda: Block(nn.ReLU(inplace=True), lambda m, x: m(x * 2)), False),
    "parts": (lambda: Block(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), lambda m, x: m(x)), True),
    "two arguments": (
        lambda: Block(Applied(lambda a, b, k: a * b * k), lambda m, x: m(x, m.weight, 2)),
        True,
    ),
    "unread argument": (lambda: Block(Applied(lambda a, b: a * 2), lambda m, x: m(x, x)), True),
    "by name": (lambda: Block(Applied(lambda a, b: a * b), lambda m, x: m(x, b=x.sin())), True),
    "twice": (lambda: Block(nn.Linear(3, 3), lambda m, x: m(m(x))), True),
    "two results": (
        lambda: Block(Applied(lambda a: (a * 2, a.exp())), lambda m, x: m(x)[0]),
        False,
    ),
    "dict": (lambda: Block(Applied(lambda a: {"a": a * 2}), lambda m, x: m(x)["a"]), False),
    "no argument": (lambda: Block(nn.Linear(3, 3), lambda m, x: m(x.detach()) * x), False),
    "broken": (lambda: Block(Applied(broken), lambda m, x: m(x)), False),
    "checkpointed": (
        lambda: Block(nn.Tanh(), lambda m, x: checkpoint(m, x, use_reentrant=False)),
        False,
    ),
}

SEEN: list[Any] = []


def noted(module: nn.Module, given: Grads, out: Grads) -> None:
    SEEN.append([None if g is None else g.tolist() for g in (*given, *out)])


def scaled(module: nn.Module, given: Grads, out: Grads) -> Grads:
    return tuple(None if g is None else g * 2 for g in given)


def of_both(module: nn.Module, given: Grads, out: Grads) -> Grads:
    whole = sum(g.sum() for g in out if g is not None)
    return tuple(None if g is None else g.clamp(min=0) + whole for g in given)


def before(module: nn.Module, out: Grads) -> Grads:
    return tuple(None if g is None else g * 3 for g in out)


def nothing(module: nn.Module, given: Grads, out: Grads) -> None:
    return None


# name: (what puts hooks on a module, whether they only compute)
HOOKS: dict[str, tuple[list[Any], bool]] = {
    "scaled": ([scaled], True),
    "of both": ([of_both], True),
    "several": ([before, scaled, of_both, before], True),
    "before": ([before], True),
    "nothing": ([nothing], True),
    "noted": ([noted], False),
    "noted among others": ([before, scaled, noted], False),
}


def outside(m: nn.Module, x: Tensor) -> Tensor:
    return m(x).sin().sum()


def inside(m: nn.Module, x: Tensor) -> Tensor:
    loss = m(x).sin().sum()
    loss.backward()
    return loss.detach()


def by_grad(m: nn.Module, x: Tensor) -> Tensor:
    return torch.autograd.grad(m(x).sin().sum(), x)[0].sum()


def penalty(m: nn.Module, x: Tensor) -> Tensor:
    return torch.autograd.grad(m(x).sin().sum(), x, create_graph=True)[0].pow(2).sum()


def without_grad(m: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return m(x).sum()


PASSES = {each.__name__: each for each in (outside, inside, by_grad, penalty, without_grad)}


def outcome(run: Any, make: Callable[[], Block], hooks: list[Any]) -> Any:
    torch.manual_seed(0)
    module = make()
    for hook in hooks:
        if hook is before:
            module.inner.register_full_backward_pre_hook(hook)
        else:
            module.inner.register_full_backward_hook(hook)
    x = torch.tensor([[0.5, -1.0, 2.0]], requires_grad=True)
    SEEN.clear()
    results: list[Any] = []
    try:
        for _ in range(2):
            result = run(module, x)
            if result.requires_grad:
                result.backward()
            results.append(result.item())
    except RuntimeError as error:
        results.append(str(error)[:60])
    return results, [t.grad for t in (x, *module.parameters())], [*SEEN]


@pytest.mark.sweep(10)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("module", MODULES)
def test_backward_hooks_of_modules(module: str, hooks: str, passes: str) -> None:
    (make, whole), (put, computes) = MODULES[module], HOOKS[hooks]
    run = PASSES[passes]
    expected = outcome(run, make, put)
    for options in (
        {"backend": "eager"}, {"backend": "aot_eager", "fullgraph": whole and computes}
    ):  # fmt: skip
        found = outcome(flambeau.compile(run, **options), make, put)
        known = [pytest.approx(x, rel=1e-5) if type(x) is float else x for x in expected[0]]
        assert found[0] == known, options
        torch.testing.assert_close(found[1:], expected[1:])


def test_an_undefined_derivative_is_an_error_by_name() -> None:
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> None:
            return None

    module = nn.Tanh()
    module.register_full_backward_hook(scaled)
    compiled = flambeau.compile(lambda x: module(x), backend="eager")
    x = torch.ones(3, requires_grad=True)
    result = Nothing.apply(compiled(x * 2))
    with pytest.raises(RuntimeError, match="FB0007"):
        result.sum().backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_hooks_on_all_modules_see_no_graph_of_ours(backend):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

        def forward(self, x):
            scaled = torch.func.grad(lambda t: t.sin().sum())(x)
            return self.other(self.one(x + scaled))

    def seen(wrap):
        torch.manual_seed(0)
        model, names = Model(), []
        handles = [
            torch.nn.modules.module.register_module_forward_hook(
                lambda module, *_: names.append(type(module).__name__)
            ),
            model.one.register_full_backward_hook(lambda module, into, out: (into[0] * 2,)),
        ]
        try:
            x = torch.ones(2, 3, requires_grad=True)
            wrap(model)(x).sum().backward()
        finally:
            for handle in handles:
                handle.remove()
        return names, x.grad.tolist()

    wanted = seen(lambda model: lambda x: model(x))
    got = seen(lambda model: flambeau.compile(lambda x: model(x), backend=backend))
    assert got[0] == wanted[0]
    torch.testing.assert_close(got[1], wanted[1])
