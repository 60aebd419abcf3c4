"""Derivatives by values that the compiled function makes, asked for inside of it: eager's, wherever
a graph ends."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.utils.checkpoint import checkpoint

import flambeau

Make = Callable[[Tensor], Tensor]
End = Callable[[], None]


class Twice(torch.autograd.Function):
    """Writes to its argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


MAKES: dict[str, Make] = {
    "made": lambda x: x.sin(),
    "written": lambda x: (x * 1).mul_(2),
    "argument written": lambda x: x.mul_(2),
    "argument written by a function": lambda x: Twice.apply(x),
}


def by_grad(make: Make, end: End) -> Any:
    def run(x: Tensor) -> Any:
        v = make(x)
        w = v * v
        end()
        return torch.autograd.grad((w * v).sum(), v, retain_graph=True)[0], w

    return run


def by_two(make: Make, end: End) -> Any:
    def run(x: Tensor) -> Any:
        v = make(x)
        w = v * v
        end()
        return *grad((w * v).sum(), [v, w], create_graph=True), w

    return run


def by_inputs(make: Make, end: End) -> Any:
    def run(x: Tensor) -> Any:
        v = make(x)
        w = v * v
        end()
        (w * v).sum().backward(inputs=[v])
        return v.grad, w

    return run


def retained(make: Make, end: End) -> Any:
    def run(x: Tensor) -> Any:
        v = make(x)
        w = v * v
        end()
        v.retain_grad()
        (w * v).sum().backward()
        return v.grad, w

    return run


def hooked(make: Make, end: End) -> Any:
    def run(x: Tensor) -> Any:
        v = make(x)
        w = v * v
        end()
        seen: list[Tensor] = []
        v.register_hook(lambda g: seen.append(g.clone()))
        (w * v).sum().backward()
        return *seen, w

    return run


ASKS = {each.__name__: each for each in (by_grad, by_two, by_inputs, retained, hooked)}
ENDS: tuple[End, ...] = (lambda: None, flambeau.graph_break)


@pytest.mark.sweep(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("asks", ASKS)
@pytest.mark.parametrize("make", MAKES)
def test_derivatives_see_all_that_goes_through_a_value(make: str, asks: str) -> None:
    for end, leaf in itertools.product(ENDS, (False, True)):
        if leaf and make.startswith("argument"):
            continue  # an error in eager
        run = ASKS[asks](MAKES[make], end)
        compiled = flambeau.compile(run, backend="aot_eager")
        found = []
        for function in (run, compiled, compiled):
            x = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
            found.append([item.detach() for item in function(x if leaf else x * 1)])
        torch.testing.assert_close(found[1:], [found[0]] * 2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_backward_through_a_checkpoint(inside: bool, reentrant: bool) -> None:
    def run(x: Tensor) -> Tensor:
        y = checkpoint(lambda u: u.exp().sin(), x * 2, use_reentrant=reentrant)
        loss = (y * 3).sum() + x.sum()
        if inside:
            loss.backward()
        return loss

    found = []
    for function in (run, flambeau.compile(run, backend="aot_eager")):
        x = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
        loss = function(x)
        if not inside:
            loss.backward()
        found.append((loss.detach(), x.grad))
    torch.testing.assert_close(*found)


OPERATORS: dict[str, Make] = {
    "exp": torch.exp, "square": lambda x: x * x, "sum": lambda x: x.sum(0), "clamp": torch.relu,
    "view": lambda x: x.view(3, 1), "parts": lambda x: x.split(2)[0],
}  # fmt: skip
NODES: dict[str, Callable[[Any], Any]] = {
    "name": lambda node: node.name(),
    "class": lambda node: type(node).__name__,
    "saved": lambda node: sorted(name for name in dir(node) if name.startswith("_saved")),
    "inputs": lambda node: len(node.next_functions),
    "prehook": lambda node: node.register_prehook(lambda g: (g[0] * 10, *g[1:])) and None,
    "hook": lambda node: node.register_hook(lambda given, g: (given[0] + 1, *given[1:])) and None,
    "there": lambda node: node is not None and bool(node),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("look", NODES)
def test_nodes_of_autograd_are_eagers(look: str, later: bool) -> None:
    for make in OPERATORS.values():

        def run(x: Tensor, make: Make = make) -> Any:
            before = x.sin()
            made = make(before)
            node = made.grad_fn
            if not later:
                found = NODES[look](node)
            result = (made * made).sum() + before.sum()
            return NODES[look](node) if later else found, result

        found = []
        for function in (run, flambeau.compile(run, backend="aot_eager")):
            x = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
            seen, result = function(x)
            result.backward()
            assert x.grad is not None
            found.append((seen, result.item(), *x.grad.tolist()))
        assert found[0][0] == found[1][0]
        assert found[0][1:] == pytest.approx(found[1][1:], rel=1e-5)


WEIGHTED = {"vjp": 1, "jvp": 1, "hvp": 1, "vhp": 1}
OPTIONS: dict[str, dict[str, Any]] = {
    "usual": {}, "strict": {"strict": True}, "differentiated": {"create_graph": True},
    "vectorized": {"vectorize": True},
    "forward": {"vectorize": True, "strategy": "forward-mode"},
}  # fmt: skip


def functionals() -> list[tuple[str, str]]:
    """Those of `torch.autograd.functional`, with the options that each takes."""
    names = [name for name in dir(torch.autograd.functional) if name in {*WEIGHTED, "jacobian"}]
    return [(n, o) for n in [*names, "hessian"] for o in OPTIONS if _takes(n, OPTIONS[o])]


def _takes(name: str, options: dict[str, Any]) -> bool:
    known = inspect.signature(getattr(torch.autograd.functional, name)).parameters
    names = {"outer_jacobian_strategy" if o == "strategy" and name == "hessian" else o
             for o in options}  # fmt: skip
    return names <= known.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("name", "kind"), functionals())
def test_functionals_of_autograd(name: str, kind: str, inside: bool) -> None:
    """Around a compiled function, and inside of one."""
    options = dict(OPTIONS[kind])
    if name == "hessian" and "strategy" in options:
        options["outer_jacobian_strategy"] = options.pop("strategy")

    def scalar(t: Tensor) -> Tensor:
        return (t.sin() * t**2).sum()

    def vector(t: Tensor) -> Tensor:
        return t.sin() * t**2

    function = scalar if name.startswith("h") or name == "vhp" else vector
    inner = flambeau.compile(function, backend="aot_eager") if not inside else function

    def run(x: Tensor, v: Tensor, f: Make = function) -> Any:
        derive = getattr(torch.autograd.functional, name)
        found = derive(f, x, *[v] * WEIGHTED.get(name, 0), **options)
        return found[1] if isinstance(found, tuple) else found

    whole = flambeau.compile(run, backend="aot_eager")
    found = []
    for each in (run, whole if inside else lambda x, v: run(x, v, inner)):
        x = torch.tensor([0.5, 1.0, 2.0], requires_grad=kind == "differentiated")
        result = each(x, torch.tensor([1.0, -1.0, 0.5]))
        if kind == "differentiated":
            result = result, *grad(result.sum(), x)
        found.append(result)
    torch.testing.assert_close(found[1], found[0])
    assert torch.is_grad_enabled()


RESULTS: dict[str, Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]] = {
    "loss": lambda loss, hidden, first: (loss,),
    "both": lambda loss, hidden, first: (loss, hidden * 2),
    "apart": lambda loss, hidden, first: (loss, first * 3),
    "more of it": lambda loss, hidden, first: (loss + 1, (loss + first.sum()) * 2),
    "what nothing kept": lambda loss, hidden, first: (loss, first + 1),
}
WRITES = ("nothing", "first", "second", "both")
LATER: dict[str, Callable[[tuple[Tensor, ...], list[Tensor]], Any]] = {
    "nothing": lambda results, leaves: None,
    "backward": lambda results, leaves: results[0].sum().backward(),
    "last": lambda results, leaves: results[-1].sum().backward(),
    "together": lambda results, leaves: sum(x.sum() for x in results).backward(),
    "by one": lambda results, leaves: grad(results[-1].sum(), leaves[0], allow_unused=True),
    "by the other": lambda results, leaves: grad(results[-1].sum(), leaves[1], allow_unused=True),
}


@pytest.mark.sweep(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("asks", LATER)
@pytest.mark.parametrize("result", RESULTS)
def test_results_of_a_step_that_trains_inside(result: str, asks: str) -> None:
    """Their history is freed: nothing is compiled for it, and what asks for it is refused."""
    for writes in WRITES:

        def step(x: Tensor, first: Tensor, second: Tensor, writes: str = writes) -> Any:
            hidden = (x @ first).tanh()
            loss = (hidden @ second).square().mean()
            loss.backward()
            results = RESULTS[result](loss, hidden, first)
            with torch.no_grad():
                for own, name in ((first, "first"), (second, "second")):
                    if writes in (name, "both"):
                        own.sub_(own.grad, alpha=0.1)
            return results

        found = []
        compiled = flambeau.compile(step, backend="aot_eager")
        for function in (step, compiled):
            leaves = [torch.linspace(-1, 1, 12).reshape(3, 4).mT.contiguous().requires_grad_()]
            leaves.append(torch.linspace(0, 1, 6).reshape(3, 2).requires_grad_())
            results = function(torch.linspace(-2, 1, 8).reshape(2, 4), *leaves)
            error = None
            try:
                given = LATER[asks](results, leaves)
            except RuntimeError as caught:
                error, given = str(caught).split(".")[0].split(":")[0], None
            known = [(x.detach(), x.requires_grad) for x in (*results, *leaves)]
            found.append((known, [leaf.grad for leaf in leaves], given, error))
        torch.testing.assert_close(found[1][:3], found[0][:3])
        assert found[1][3] == found[0][3], writes
        if result == "loss":
            assert not flambeau.report(compiled).fallbacks, writes
