"""Hooks and users' derivatives behind inputs that not all results depend on: called as in eager."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import flambeau_aot as aot
import pytest
import torch

FORMS = (
    "{a}.sin()", "{a} * {b}", "{a} + {b}", "{a}.t()", "{a} @ {b}", "{a}.square()", "{a}[:2]",
    "{a}.sum(0) * {b}",
)  # fmt: skip
Program = Callable[..., tuple[torch.Tensor, ...]]
WAYS = ("once", "one by one", "twice", "inputs", "grad")


def drawn(chance: random.Random) -> Program:
    names, made, lines = ["a", "b", "c"], list[str](), ["def program(a, b, c):"]
    for k in range(chance.randrange(2, 6)):
        form = chance.choice(FORMS)
        lines.append(f"    v{k} = " + form.format(a=chance.choice(names), b=chance.choice(names)))
        made.append(f"v{k}")
        names += [f"v{k}"] * ("[:2]" not in form)
    results = chance.sample(made, min(len(made), chance.randrange(2, 5)))
    space: dict[str, Any] = {}
    exec("\n".join([*lines, f"    return {', '.join(results)},"]), space)
    program: Program = space["program"]
    return program


class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seen: list[Any]) -> torch.Tensor:
        ctx.seen = seen
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        ctx.seen.append("derivative")
        return grads[0] * 2 + 0.25, None


def observed(call: Program, chance: random.Random, way: str) -> list[Any]:
    """What hooks on inputs, behind them and after accumulation saw, each of which scales by how
    many were called before; the gradients."""
    generator, seen = torch.Generator().manual_seed(0), list[Any]()
    leaves = [torch.randn(4, 4, generator=generator).requires_grad_() for _ in range(3)]

    def scaling(name: str) -> Callable[[Any], Any]:
        def hook(grad: Any) -> Any:
            seen.append((name, grad is None))
            return None if grad is None else grad * (1 + len(seen) / 8)

        return hook

    inputs, known = list[torch.Tensor](), list[tuple[str, torch.Tensor]]()
    for k, leaf in enumerate(leaves):
        middle = chance.choice([leaf * 2, leaf * leaves[0].cos(), Counted.apply(leaf, seen)])
        inputs.append(chance.choice([middle, middle.exp(), middle.t()]))
        known += [(f"leaf {k}", leaf), (f"middle {k}", middle), (f"input {k}", inputs[k])]
        if chance.random() < 0.3:
            leaf.register_post_accumulate_grad_hook(lambda x, k=k: seen.append((k, x.grad is None)))
    hooked = [item for item in known if chance.random() < 0.5]
    late = chance.random() < 0.5
    results: Sequence[torch.Tensor] = call(*inputs) if late else ()
    for name, tensor in hooked:
        tensor.register_hook(scaling(name))
    results = results or call(*inputs)
    used = [at for at in range(len(results)) if chance.random() < 0.6] or [0]
    parts = [results[at].sum() * (at + 1) for at in used]
    loss, found = torch.stack(parts).sum(), list[Any]()
    if way == "one by one":
        for part in parts:
            part.backward(retain_graph=True)
    elif way == "grad":
        found += torch.autograd.grad(loss, chance.choice([leaves, inputs[:1]]), allow_unused=True)
    else:
        only = [chance.choice(leaves)] if way == "inputs" else None
        loss.backward(inputs=only, retain_graph=way == "twice")
        if way == "twice":
            loss.backward()
    return [seen, [leaf.grad for leaf in leaves], found]


@pytest.mark.sweep(8)
@pytest.mark.parametrize("seed", range(80))
def test_they_are_called_for_what_the_results_that_are_used_depend_on(seed: int) -> None:
    program = drawn(random.Random(seed))
    compiled = aot.aot_function(program, aot.run_as_is)
    for turn, way in enumerate(WAYS):
        eager, own = (
            observed(call, random.Random(9 * seed + turn), way) for call in (program, compiled)
        )
        assert own[0] == eager[0]
        torch.testing.assert_close(own[1:], eager[1:])


def test_a_hook_after_accumulation_is_not_called_where_no_gradient_comes() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sin(), w.cos()

    def seen(call: Program) -> list[Any]:
        x, w = (torch.ones(2, requires_grad=True) for _ in range(2))
        log = list[Any]()
        w.register_post_accumulate_grad_hook(lambda leaf: log.append(leaf.grad))
        first, second = call(x, w)
        first.sum().backward(retain_graph=True)
        (first + second).sum().backward()
        return log

    torch.testing.assert_close(seen(aot.aot_function(program, aot.run_as_is)), seen(program))


def test_one_of_several_leaves_that_gets_no_gradient_is_counted() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sin(), w.cos()

    def seen(call: Program) -> list[Any]:
        x, w = (torch.ones(2, requires_grad=True) for _ in range(2))
        log = list[Any]()
        results = call(x, w)
        torch.autograd.graph.register_multi_grad_hook(
            (x, w), lambda grads: log.append([grad is None for grad in grads])
        )
        for result in results:
            result.sum().backward()
        return log

    assert seen(aot.aot_function(program, aot.run_as_is)) == seen(program)


def test_the_memory_of_a_call_goes_with_its_results() -> None:
    x = torch.ones(2, requires_grad=True)
    compiled = aot.aot_function(lambda x, w: (x.sin(), w.cos()), aot.run_as_is)
    first, second = compiled(x * 2, x * 3)
    node = weakref.ref(first.grad_fn.next_functions[0][0])
    first.sum().backward()
    assert node() is not None
    del first, second
    assert node() is None


def test_nothing_is_kept_of_gradients_that_a_pass_does_not_ask_for() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product = x * w
        return x.sin(), product, product.exp(), w.cos()

    x, w = (torch.ones(2, requires_grad=True) for _ in range(2))
    results = aot.aot_function(program, aot.run_as_is)(x * 2, w * 3)
    main = results[0].grad_fn.next_functions[0][0]
    for asked in (x, w, results[1]):
        for _ in range(3):
            torch.autograd.grad(results[2].sum(), asked, retain_graph=True)
            assert all(state.is_over() for state in main.passes.values())
    results[2].sum().backward()
    assert all(state.is_over() for state in main.passes.values())


def test_more_passes_at_a_time_than_are_usual_lose_no_cotangent() -> None:
    x, w = (torch.ones(2, requires_grad=True) for _ in range(2))
    compiled = aot.aot_function(lambda x, w: (x.sin(), x * w, w.cos()), aot.run_as_is)
    inputs, depth, found = (x * 2, w * 3), 12, list[torch.Tensor]()
    results = compiled(*inputs)
    loss = (results[0] * results[1]).sum()
    expected = torch.autograd.grad(loss, w, retain_graph=True)[0]

    def again(grad: torch.Tensor) -> None:
        if len(found) < depth:
            found.append(grad)
            inner = torch.autograd.grad(loss, inputs, retain_graph=True)[1]
            torch.testing.assert_close(inner * 3, expected)

    results[0].register_hook(again)
    loss.backward(retain_graph=True)
    torch.testing.assert_close(w.grad, expected)
    assert len(found) == depth


def test_gates_do_not_keep_the_memory_of_inputs() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + w, w * 3

    call = aot.aot_function(program, aot.run_as_is)
    for has_compiled in (False, True):  # a trace ends with a collection
        base, w = (torch.ones(2, requires_grad=True) for _ in range(2))
        x = base * 2
        memory = weakref.ref(x.untyped_storage())
        results = call(x, w)
        del x
        assert memory() is None or not has_compiled
        sum(result.sum() for result in results).backward()
        assert base.grad is not None and base.grad.tolist() == [2.0, 2.0]
