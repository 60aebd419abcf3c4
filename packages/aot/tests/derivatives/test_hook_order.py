"""The order in which hooks on several results of one program are called: that of eager's nodes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch.autograd.graph import register_multi_grad_hook
from torch.utils.checkpoint import checkpoint

POINTWISE = ("{n} = {a}.sin()", "{n} = {a} * {b}", "{n} = {a} + {b}", "{n} = {a}.t() + 1")
SEVERAL = (
    "{n}, {m} = {a}.chunk(2)", "{n}, {m} = {a}.max(0)[0], {b}.cumsum(0)",
    "{n}, {m} = {a}.t(), {a}[:2]",
    "{n}, {m} = torch.var_mean({a}, 0)", "{n}, {m} = {a}.sort(0)[0], {b} * 2",
    "{n} = {a}.t(); {m} = {n}[1:]", "{n} = {a}.exp(); {m} = {n}.diagonal()",
    "{n} = {a}.clone(); {n}.mul_({b}); {m} = {n}[0]",
)  # fmt: skip
Program = Callable[..., tuple[torch.Tensor, ...]]


def drawn(chance: random.Random, several: float = 0.6) -> tuple[Program, int]:
    """A program of two squares, and how many results it has. several: how often a statement makes
    views, or two results."""
    squares, values, lines = ["x", "w"], list[str](), ["def program(x, w):"]
    for k in range(chance.randrange(2, 6)):
        a, b, form = chance.choice(squares[-4:]), chance.choice(squares), chance.random()
        table = SEVERAL if form < several else POINTWISE
        lines.append("    " + chance.choice(table).format(n=f"v{k}", m=f"u{k}", a=a, b=b))
        squares += [f"v{k}"] * (table is POINTWISE)
        values += [f"v{k}"] if table is POINTWISE else [f"v{k}", f"u{k}"]
    results = chance.sample(values, min(len(values), chance.randrange(2, 7)))
    space: dict[str, Any] = {"torch": torch}
    exec("\n".join([*lines, f"    return {', '.join(results)},"]), space)
    return space["program"], len(results)


def observed(
    call: Program, count: int, chance: random.Random, only: str | None = None
) -> list[Any]:
    """What hooks saw, each of which scales its gradient by how many were called before it, and the
    gradients that are left of it. only: the leaf that is asked for."""
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(4, 4, generator=generator).requires_grad_() for _ in range(2))
    results, seen = call(x, w), list[Any]()

    def scaling(place: int) -> Callable[[Any], Any]:
        def hook(grad: Any) -> Any:
            seen.append((place, grad is None))
            return None if grad is None else grad * (1 + len(seen))

        return hook

    for place in chance.sample(range(count), count):
        if chance.random() < 0.75:
            results[place].register_hook(scaling(place))
    if chance.random() < 0.5:
        either = "any" if chance.random() < 0.5 else "all"
        register_multi_grad_hook(results, lambda grads: seen.append(repr(grads)), mode=either)  # type: ignore[arg-type]
    used = [place for place in range(count) if chance.random() < 0.8] or [0]
    loss = torch.stack([results[place].sum() * (place + 1) for place in used]).sum()
    loss.backward(inputs=None if only is None else [{"x": x, "w": w}[only]])
    return [seen, x.grad, w.grad]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("seed", range(60))
def test_it_is_that_of_eager_and_so_are_the_gradients(seed: int) -> None:
    program, count = drawn(random.Random(seed))
    compiled = aot.aot_function(program, aot.run_as_is)
    for _ in range(2):
        again = [observed(call, count, random.Random(-seed)) for call in (program, compiled)]
        assert [entry[0] for entry in again[0][0]] == [entry[0] for entry in again[1][0]]
        torch.testing.assert_close(again[1][1:], again[0][1:])


@pytest.mark.sweep(5)
@pytest.mark.parametrize("seed", range(60))
def test_those_that_do_not_lead_to_the_inputs_asked_for_are_not_called(seed: int) -> None:
    program, count = drawn(random.Random(seed), several=0)
    compiled = aot.aot_function(program, aot.run_as_is)
    for only in ("x", "w"):
        again = [observed(call, count, random.Random(-seed), only) for call in (program, compiled)]
        assert [entry[0] for entry in again[0][0]] == [entry[0] for entry in again[1][0]]
        torch.testing.assert_close(again[1][1:], again[0][1:])


def of_one_operator(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.var_mean(x, 0)


def of_several(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.sin(), x.cos(), x.exp()


def of_another(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.exp()
    return y, y.cos(), x.sin()


def views_of_views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.t()
    return y[:2], y, y[1:].t()


def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.unbind()


def in_between(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first, view = x.sin(), x.t()
    return first, view, x.cos()


@pytest.mark.parametrize(
    "program",
    [of_one_operator, of_several, of_another, views_of_views, parts, in_between],
    ids=lambda fn: fn.__name__,
)
@pytest.mark.parametrize("turned", [False, True], ids=["as put", "reversed"])
def test_hooks_whatever_the_order_in_which_they_are_put_there(
    program: Callable[..., Any], turned: bool
) -> None:
    """Those of one operator's results are called in it, and all of them if one has a gradient."""

    def seen(call: Callable[..., Any], used: int) -> list[Any]:
        x = torch.arange(9.0).reshape(3, 3).requires_grad_()
        results, log = call(x), list[Any]()
        for place in sorted(range(len(results)), reverse=turned):
            results[place].register_hook(
                lambda grad, place=place: log.append((place, grad is None))
            )
        torch.autograd.backward([results[place].sum() for place in range(used)])
        return log

    compiled = aot.aot_function(program, aot.run_as_is)
    for used in (1, 2, len(program(torch.ones(3, 3)))):
        assert seen(compiled, used) == seen(program, used)


class OfTheFirst(torch.autograd.Function):
    """Two results of one node; the second input has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> tuple[Any, ...]:
        return first, None


PROGRAMS: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "each of its own": lambda x, y: (x * 2, y * 3),
    "function": lambda x, y: (OfTheFirst.apply(x * 1, y)[0], x * y),
    "three": lambda x, y: (x.sin(), (x * y).exp(), y.cos()),
    "depending": lambda x, y: (x.sin(), (x.sin() * y).exp()),
    "one operator": lambda x, y: (*(x * y).unbind(0), x + y),
}
PUT = [["all"], ["any"], ["all", "any"], ["any", "all"], ["each", "all"], ["all", "each"],
       ["each", "any", "all"], ["all", "all", "each"]]  # fmt: skip
USED = [[[0]], [[1]], [[0, 1]], [[0, 1], [1]], [[1], [0]], [[0, 1], [0], [1]]]


@pytest.mark.parametrize("name", PROGRAMS)
def test_hooks_on_several_results_are_called_with_the_last_that_has_a_gradient(name: str) -> None:
    """`register_multi_grad_hook` counts the nodes that are run: in eager, each result's own."""
    program = PROGRAMS[name]

    def seen(call: Callable[..., Any], put: list[str], used: list[list[int]]) -> list[Any]:
        x, y = (torch.arange(k, k + 3.0).requires_grad_() for k in (1, 2))
        log = list[Any]()
        results = call(x, y)
        several = torch.autograd.graph.register_multi_grad_hook
        for kind in put:
            if kind == "all":
                several(results, lambda grads: log.append([g is None for g in grads]), mode="all")
            elif kind == "any":
                several(results, lambda grad: log.append("any"), mode="any")
            else:
                for place, result in enumerate(results):
                    result.register_hook(
                        lambda grad, place=place: (
                            log.append((place, grad is None))
                            or (None if grad is None else grad * (1 + len(log) / 8))
                        )
                    )
        for places in used:
            torch.autograd.backward([results[p].sum() for p in places], retain_graph=True)
        return [*log, *(None if leaf.grad is None else leaf.grad.tolist() for leaf in (x, y))]

    compiled = aot.aot_function(program, aot.run_as_is)
    for put in PUT:
        for used in USED:
            assert seen(compiled, put, used) == seen(program, put, used), (put, used)


@pytest.mark.parametrize("later", [False, True], ids=["before the call", "after it"])
def test_a_hook_on_a_leaf_that_no_gradient_leads_to_is_not_called(later: bool) -> None:
    """The one node of a call leads to all inputs; in eager, that of a result to its own."""
    compiled = aot.aot_function(PROGRAMS["three"], aot.run_as_is)
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    log = list[torch.Tensor]()

    def put() -> Any:
        return y.register_hook(lambda grad: log.append(grad) or grad * 2)

    handle = None if later else put()
    results = compiled(x, y)
    handle = handle or put()
    results[0].sum().backward(retain_graph=True)
    assert log == [] and y.grad is None
    results[2].sum().backward(retain_graph=True)
    assert y.grad is not None and torch.equal(y.grad, -2 * torch.ones(3).sin()) and len(log) == 1
    handle.remove()
    results[2].sum().backward()
    assert torch.equal(y.grad, -3 * torch.ones(3).sin()) and len(log) == 1


@pytest.mark.sweep(5)
@pytest.mark.parametrize("seed", range(60))
def test_hooks_on_leaves_are_called_as_often_in_derivatives_of_any_order(seed: int) -> None:
    """Never for a gradient that there is none of: not even where another one is asked for."""
    program, count = drawn(random.Random(seed), several=0)
    compiled = aot.aot_function(program, aot.run_as_is)

    def seen(call: Program) -> list[list[Any]]:
        chance, orders = random.Random(-seed), list[list[Any]]()
        x, w = (torch.full((4, 4), k).requires_grad_() for k in (0.5, 2.0))
        results = call(x, w)
        for name, leaf in (("x", x), ("w", w)):
            leaf.register_hook(lambda grad, name=name: orders[-1].append((name, grad is None)))
        used = [place for place in range(count) if chance.random() < 0.6] or [0]
        parts = [results[place].sum() for place in used]
        while parts and len(orders) < 3:
            orders.append([])
            total = torch.stack(parts).sum()
            found = torch.autograd.grad(total, (x, w), create_graph=True, allow_unused=True)
            parts = [g.square().sum() for g in found if g is not None and g.requires_grad]
        return [sorted(each) for each in orders]

    assert seen(compiled) == seen(program)


def test_hooks_inside_of_a_program_that_is_run_again_are_called_as_often() -> None:
    """A second backward pass goes to what the run gave, not through the run."""
    seen: list[bool] = []

    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, z = x * w, w * 2
        z.register_hook(lambda grad: (seen.append(grad is None), grad * 3)[1])
        return y, torch.tanh(y), z.abs()

    def observed(call: Callable[..., Any]) -> list[Any]:
        x, w = torch.arange(1.0, 4), torch.arange(2.0, 5).requires_grad_()
        results = call(x, w)
        seen.clear()
        loss = torch.stack([(result * result).sum() for result in results]).sum()
        (first,) = torch.autograd.grad(loss, w, create_graph=True)
        first.square().sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            first.sum().backward()
        return [*seen, w.grad]

    own, eager = observed(aot.aot_function(program, aot.run_as_is)), observed(program)
    assert own[:-1] == eager[:-1]
    torch.testing.assert_close(own[-1], eager[-1])


@pytest.mark.parametrize("closed", [False, True])
def test_hooks_on_results_of_reentrant_checkpoints_see_whole_gradients(closed: bool) -> None:
    """closed: the checkpoint's function reads a leaf that is no argument of it."""

    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cube = x.pow(3) * w
        y: Any = checkpoint(lambda u: (u * w if closed else u).sin(), x, use_reentrant=True)
        return y, cube, cube * cube.sum() + y

    def observed(call: Callable[..., Any]) -> list[Any]:
        leaf, seen = torch.arange(1.0, 4).requires_grad_(), list[Any]()
        w = torch.arange(2.0, 5).requires_grad_()
        results = call(leaf * 1, w)
        for place, result in enumerate(results):
            result.register_hook(lambda grad, at=place: (seen.append((at, grad)), grad * 2)[1])
        torch.stack([result.sum() for result in results]).sum().backward()
        return [*seen, leaf.grad, w.grad]

    own, eager = observed(aot.aot_function(program, aot.run_as_is)), observed(program)
    torch.testing.assert_close(own, eager)


def with_leaves(
    call: Program, count: int, chance: random.Random, inner: Sequence[int] = ()
) -> list[Any]:
    """What hooks on leaves and results saw, put there in any order, with the gradients. inner:
    inputs that are no leaves, with hooks, too."""
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(4, 4, generator=generator).requires_grad_() for _ in range(2)]
    first, seen = chance.random() < 0.3, list[Any]()

    def put(known: list[tuple[str, torch.Tensor]]) -> None:
        for name, tensor in chance.sample(known, len(known)):
            tensor.register_hook(lambda grad, name=name: (seen.append(name), scaled(grad))[1])

    def scaled(grad: Any) -> Any:
        return None if grad is None else grad * (1 + len(seen) / 8)

    hooked = [(f"leaf {k}", leaf) for k, leaf in enumerate(leaves) if chance.random() < 0.75]
    put(hooked * first)
    inputs = [leaf * 2 if k in inner else leaf for k, leaf in enumerate(leaves)]
    put([(f"input {k}", inputs[k]) for k in inner])
    results = call(*inputs)
    made = [(f"result {k}", x) for k, x in enumerate(results) if chance.random() < 0.75]
    put(hooked * (not first) + made)
    used = [place for place in range(count) if inner or chance.random() < 0.8] or [0]
    ends = [results[place].sum() * (place + 1) for place in used]
    ends += [leaf.sum() for leaf in leaves if chance.random() < 0.5]
    loss, found = torch.stack(ends).sum(), list[Any]()
    way = chance.choice(["backward", "twice", "inputs", "grad", "create_graph"])
    if way in ("grad", "create_graph"):
        create = way == "create_graph"
        found += torch.autograd.grad(loss, leaves, create_graph=create, allow_unused=True)
    else:
        loss.backward(retain_graph=way == "twice", inputs=leaves[:1] if way == "inputs" else None)
    if way == "twice":
        loss.backward()
    return [seen, [leaf.grad for leaf in leaves], [x if x is None else x.detach() for x in found]]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("seed", range(100))
def test_it_is_that_of_eager_among_hooks_on_leaves(seed: int) -> None:
    """A leaf's are called once its gradient is complete, be there results that are come to later:
    each hook scales its gradient by how many were called before."""
    program, count = drawn(random.Random(seed), several=0)
    compiled = aot.aot_function(program, aot.run_as_is)
    for turn in range(4):
        again = [with_leaves(c, count, random.Random(4 * seed + turn)) for c in (program, compiled)]
        assert again[0][0] == again[1][0]
        torch.testing.assert_close(again[1][1:], again[0][1:])


@pytest.mark.sweep(5)
@pytest.mark.parametrize("seed", range(100))
def test_it_is_that_of_eager_or_refused_where_inputs_are_no_leaves(seed: int) -> None:
    """All of these have their gradients at once, before that of a leaf is complete."""
    program, count = drawn(random.Random(seed), several=0)
    compiled = aot.aot_function(program, aot.run_as_is)
    for turn, inner in enumerate([(0,), (1,), (0, 1)]):
        eager = with_leaves(program, count, random.Random(3 * seed + turn), inner)
        own = with_leaves(compiled, count, random.Random(3 * seed + turn), inner)
        assert own[0] == eager[0]
        torch.testing.assert_close(own[1:], eager[1:])


def test_hooks_on_a_leaf_that_is_overtaken_beside_an_input_that_is_none_are_in_order() -> None:
    def seen(call: Program) -> list[str]:
        log, x, w = list[str](), torch.ones(2, requires_grad=True), torch.ones(2).requires_grad_()
        results = call(x * 2, w)
        named = [("w", w), ("first", results[0]), ("second", results[1])]
        for name, tensor in named:
            tensor.register_hook(lambda grad, name=name: log.append(name))
        (results[0] + results[1]).sum().backward()
        return log

    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sin(), w.cos()

    assert seen(program) == ["second", "w", "first"]
    assert seen(aot.aot_function(program, aot.run_as_is)) == seen(program)


@pytest.mark.parametrize("form", ["x * w, (x * w)[0], w.sin()", "x.t(), w.sin(), x * w"])
def test_views_among_the_results_leave_the_order_of_others(form: str) -> None:
    """A view has a node of its own, which waits for no leaf: what would have to is refused."""
    space: dict[str, Any] = {}
    exec(f"def program(x, w):\n    return {form}", space)
    compiled, refused = aot.aot_function(space["program"], aot.run_as_is), 0
    for turn in range(20):
        eager = with_leaves(space["program"], 3, random.Random(turn))
        try:
            own = with_leaves(compiled, 3, random.Random(turn))
        except aot.Unsupported as error:
            assert "AO0182" in str(error)
            refused += 1
        else:
            assert own[0] == eager[0]
            torch.testing.assert_close(own[1:], eager[1:])
    assert refused < 10
