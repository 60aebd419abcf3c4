"""The order in which hooks on the leaves of one program are called: that of eager's nodes."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import flambeau_aot as aot
import pytest
import torch

FORMS = (
    "{a} * {b}", "{a}.sin() + {b}", "torch.addcmul({a}, {b}, {c})", "({a} @ {b}).cos()",
    "{a} / (1 + {b} * {b})", "torch.where({a} > 0, {b}, {c})",
)  # fmt: skip
Program = Callable[..., torch.Tensor]


def drawn(chance: random.Random) -> tuple[Program, int]:
    """A program of several squares, and how many they are."""
    count = chance.randrange(2, 6)
    values, lines = [f"x{k}" for k in range(count)], list[str]()
    for k in range(chance.randrange(2, 6)):
        form, (a, b, c) = chance.choice(FORMS), (chance.choice(values) for _ in range(3))
        lines.append(f"    v{k} = {form.format(a=a, b=b, c=c)}\n")
        values.append(f"v{k}")
    space: dict[str, Any] = {"torch": torch}
    sums = " + ".join(values[count:])
    exec(f"def program({', '.join(values[:count])}):\n{''.join(lines)}    return {sums}", space)
    return space["program"], count


def observed(call: Program, count: int, chance: random.Random) -> list[Any]:
    """What hooks saw, each of which scales its gradient by how many were called before it, and the
    gradients that are left of it."""
    generator, seen = torch.Generator().manual_seed(0), list[int]()
    leaves = [torch.randn(3, 3, generator=generator).requires_grad_() for _ in range(count)]

    def scaling(place: int) -> Callable[[Any], Any]:
        def hook(grad: Any) -> Any:
            seen.append(place)
            return grad * (1 + len(seen))

        return hook

    loss = call(*leaves).sum()
    after = chance.random() < 0.3
    for place, leaf in enumerate(leaves):
        if chance.random() < 0.8 and after:
            leaf.register_post_accumulate_grad_hook(lambda _, place=place: seen.append(place))
        elif not after:
            leaf.register_hook(scaling(place))
    if chance.random() < 0.5:
        loss = sum(((k + 1) * leaf.sum() for k, leaf in enumerate(leaves)), loss)
    for _ in range(2):
        loss.backward(retain_graph=True)
    return [seen, *(leaf.grad for leaf in leaves)]


@pytest.mark.sweep(10)
@pytest.mark.parametrize("seed", range(100))
def test_it_is_that_of_eager_and_so_are_the_gradients(seed: int) -> None:
    program, count = drawn(random.Random(seed))
    compiled = aot.aot_function(program, aot.run_as_is)
    eager, own = (observed(f, count, random.Random(-seed)) for f in (program, compiled))
    assert own[0] == eager[0]
    torch.testing.assert_close(own[1:], eager[1:])


@pytest.mark.parametrize("fails", [False, True])
def test_leaves_are_as_they_were_after_a_backward_pass(fails: bool) -> None:
    """Two that one node of another program leads to are come to by the order of its operands."""
    compiled = aot.aot_function(lambda x, y: x / (1 + y * y), aot.run_as_is)
    x, y = (torch.ones(2).requires_grad_() for _ in range(2))
    seen: list[str] = []

    def hook(name: str) -> None:
        seen.append(name)
        if fails and len(seen) == 2:
            raise ValueError(name)

    x.register_hook(lambda grad: hook("x"))
    y.register_hook(lambda grad: hook("y"))
    loss = compiled(y, x).sum()
    with pytest.raises(ValueError, match="x") if fails else nullcontext():
        loss.backward(retain_graph=True)
    (x * y).sum().backward()
    assert seen == ["y", "x", "x", "y"]
