"""Library fallback of operators without a lowering rule.

In: an operator overload and its arguments. Out: a `Call` and its results. Invariant: only
operators that write to none of their arguments; one whose results may share memory with an
argument is marked so, and that memory is not reused.
"""

from __future__ import annotations

from typing import Any

from flambeau_inductor._torch_compat import (
    OpOverload,
    has_effect,
    may_alias,
    qualified_name,
    writes,
)
from flambeau_inductor.ir.tensors import Argument, Node
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.metadata import meta_of


def library_call(
    ctx: Context, target: object, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any
) -> Any:
    """Run `target`; returns a node, or a tuple with literals where results are not tensors."""
    if not isinstance(target, OpOverload):
        raise LoweringError(f"{ctx.origin}: {target} is not an operator overload")
    if writes(target):
        raise LoweringError(f"{ctx.origin}: {target} writes to its argument")
    many = isinstance(value, tuple | list)
    values = list(value) if many else [value]
    metas = [meta_of(v, ctx.origin, ctx.sizes) for v in values]
    results = ctx.call(
        qualified_name(target),
        tuple(_argument(a) for a in args),
        tuple((k, _argument(v)) for k, v in kwargs.items()),
        metas=metas,
        impure=has_effect(target),
        aliases=may_alias(target),
    )
    mixed = tuple(v if r is None else r for r, v in zip(results, values, strict=True))
    return mixed if many else mixed[0]


def _argument(value: Any) -> Argument:
    if isinstance(value, list | tuple):
        return tuple(_argument(v) for v in value)
    if isinstance(value, Node) or value is None:
        return value
    return value  # type: ignore[no-any-return]
