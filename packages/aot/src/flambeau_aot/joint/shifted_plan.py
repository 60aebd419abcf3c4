"""A runtime plan after tensors were inserted among the primals.

In: a plan, or items of a backward part; where and how many. Out: the same with every place of a
primal moved. Invariant: places of results and of tangents stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from flambeau_aot.runtime_plan import (
    IsInput,
    LateWrite,
    OutputPlan,
    RuntimePlan,
    Saved,
    SparseGrad,
    View,
)

_InBackward = TypeVar("_InBackward", SparseGrad, LateWrite)


def moved(items: Sequence[_InBackward], start: int, by: int, after: int) -> tuple[_InBackward, ...]:
    """The same when `by` primals were inserted at `start`, and `after` at the end."""
    return tuple(
        replace(x, primal=x.primal + (by if x.primal >= start else 0), place=x.place + by + after)
        for x in items
    )


_PLACES = ("begin_grad", "end_grad", "touched", "beside", "apart")
"""Fields of a plan that are places of primals."""


def shifted(plan: RuntimePlan, start: int, by: int) -> RuntimePlan:
    """The plan after `by` static tensors were inserted before primal `start`."""

    def new(primal: int) -> int:
        return primal + by if primal >= start else primal

    def source(item: Saved) -> Saved:
        return item if item.kind == "output" else replace(item, index=new(item.index))

    def result(item: OutputPlan) -> OutputPlan:
        if isinstance(item, IsInput):
            return IsInput(new(item.primal))
        return replace(item, source=source(item.source)) if isinstance(item, View) else item

    own: dict[str, Any] = {name: tuple(map(new, getattr(plan, name))) for name in _PLACES}
    for name in ("updates", "reshapes"):
        items = getattr(plan, name)
        own[name] = tuple(replace(item, primal=new(item.primal)) for item in items)
    for name in ("raising", "keeping"):
        items = getattr(plan, name)
        own[name] = tuple(replace(x, primals=frozenset(map(new, x.primals))) for x in items)
    return replace(
        plan,
        inputs=plan.inputs.moved(start, by),
        results=tuple(map(result, plan.results)),
        offsets=tuple((new(primal), offset) for primal, offset in plan.offsets),
        hooks=tuple((new(primal), hook) for primal, hook in plan.hooks),
        partly=tuple((new(primal), tangents) for primal, tangents in plan.partly),
        leaf_order=tuple((new(primal), nodes) for primal, nodes in plan.leaf_order),
        inside=tuple(replace(item, source=source(item.source)) for item in plan.inside),
        watched=tuple(replace(item, source=source(item.source)) for item in plan.watched),
        result_nodes=tuple(
            replace(x, behind=tuple(at if at >= 0 else ~new(~at) for at in x.behind))
            for x in plan.result_nodes
        ),
        node_order=tuple(
            replace(x, index=new(x.index)) if x.kind == "input" else x for x in plan.node_order
        ),
        **own,
    )
