"""What a derivative of the user's keeps, and whether a write to it is noticed: as in eager, which
looks at the versions of all that was saved where backward reads `saved_tensors`, and not else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch import Tensor

import flambeau

BACKWARDS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "values": lambda ctx, g: g * ctx.saved_tensors[0],
    "one of two": lambda ctx, g: g * ctx.saved_tensors[1],
    "sizes": lambda ctx, g: g.expand_as(ctx.saved_tensors[0]) * 2,
    "count": lambda ctx, g: g.expand(4) * len(ctx.saved_tensors),
    "nothing": lambda ctx, g: g.expand(4) * 3,
    "an attribute": lambda ctx, g: g * ctx.x,
}
KEPT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "an input": lambda x, fn: fn(x),
    "a view": lambda x, fn: fn(x.view(-1)),
    "a value": lambda x, fn: fn(x * 2),
    "a part": lambda x, fn: fn(torch.cat([x, x])[:4]),
}
WAYS = {
    "aot": lambda fn: aot.aot_function(fn, aot.run_as_is),
    "flambeau": lambda fn: flambeau.compile(fn, backend="aot_eager"),
}


def function_of(backward: Callable[[Any, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.x = x
            ctx.save_for_backward(x, torch.ones(4))
            return x.sum()

    Function.backward = staticmethod(backward)  # type: ignore[method-assign]
    return Function.apply


def operator_of(backward: Callable[[Any, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    name = f"kept_by_functions::op{next(NUMBERS)}"

    @torch.library.custom_op(name, mutates_args=())
    def op(x: Tensor) -> Tensor:
        return x.sum()

    op.register_fake(lambda x: x.new_empty(()))

    def prepare(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.x = inputs[0]
        ctx.save_for_backward(inputs[0], torch.ones(4))

    op.register_autograd(backward, setup_context=prepare)
    return op


NUMBERS = itertools.count()


def outcome(call: Callable[[Tensor], Tensor]) -> Any:
    leaf = torch.arange(4.0).requires_grad_()
    x = leaf * 1
    try:
        result = call(x)
        x.add_(1)
        result.backward()
    except RuntimeError as error:
        return str(error)[:80]
    return leaf.grad


@pytest.mark.sweep(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [function_of, operator_of])
@pytest.mark.parametrize("backward", BACKWARDS)
def test_a_write_after_the_call(backward: str, kind: Any, way: str) -> None:
    own = kind(BACKWARDS[backward])
    for name, kept in KEPT.items():

        def program(x: Tensor, kept: Any = kept) -> Tensor:
            return kept(x, own)

        if backward == "an attribute" and name in ("an input", "a view"):
            continue  # eager reads what was written; it is looked at
        compiled = WAYS[way](program)
        compiled(torch.ones(4, requires_grad=True))  # of a leaf: what it relies on is another's
        expected, found = outcome(program), outcome(compiled)
        if isinstance(expected, str):
            assert found == expected, name
        else:
            torch.testing.assert_close(found, expected, msg=name)
