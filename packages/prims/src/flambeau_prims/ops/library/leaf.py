"""Leaves: primitives that a library computes, each a row from which its definition follows.

In: a schema, a shape rule, the ATen operator that computes it, notes, the reason why no kernel
does. Out: a registered primitive.
Invariant: the eager implementation is that operator's call, its results in the layout of the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau_prims._op import PRIMS, Rule, in_layout, primitive
from flambeau_prims._torch_compat import OpOverload, OpOverloadPacket, argument_names


def leaf(
    schema: str,
    call: OpOverloadPacket | Callable[..., Any],
    *,
    tags: tuple[str, ...] = ("library",),
    **notes: Any,
) -> Callable[[Rule], Callable[..., Any]]:
    """Define the leaf of which the decorated function is the shape rule, as `primitive` does. An
    ATen operator as `call` takes the arguments in their order, those that it has by keyword only
    included."""
    run = _in_order(call.default) if isinstance(call, OpOverloadPacket) else call
    name = schema[: schema.index("(")]

    def eager(*args: Any, **kwargs: Any) -> Any:
        expected = PRIMS[name].predicted(args, kwargs)
        return in_layout(run(*args, **kwargs), expected)

    return primitive(schema, eager, tags=tags, **notes)


def _in_order(op: OpOverload) -> Callable[..., Any]:
    names, by_keyword = argument_names(op)
    count = len(names) - len(by_keyword)

    def run(*args: Any) -> Any:
        return op(*args[:count], **dict(zip(names[count:], args[count:], strict=False)))

    return run
