"""Results through which the gradients of other results go.

What comes in: what the program returned, as autograd knows it. What goes out: the results, and the
inputs written to, that stand in the middle of another result's history.
Invariant: in eager a hook on such a tensor sees the whole of its gradient; the autograd function of
a compiled program has no edge between its results, and whoever puts one there is to be noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from flambeau_aot._torch_compat import accumulates_only, autograd_nodes, is_functional
from flambeau_aot.errors import Unsupported
from flambeau_aot.joint.input_mutations import Effects, in_graph
from flambeau_aot.plan import IsInput, LiteralResult, SameResult

History = Sequence[tuple[Any, tuple[Any, ...]]]
"""The autograd nodes behind the function's results, each with those that follow."""


def history_of(effects: Effects) -> History:
    """What autograd knows of the results that gradients go through."""
    ends = [x.wrapper for x in effects.from_function if x.wrapper is not None and x.differentiable]
    return autograd_nodes([end.grad_fn for end in ends])


def depended_results(effects: Effects, history: History, results: Sequence[Any]) -> tuple[int, ...]:
    """The places of such results; an input is none."""
    behind = _behind(history)
    return tuple(
        place
        for place, (result, plan) in enumerate(zip(results, effects.results, strict=True))
        if is_functional(result)
        and not isinstance(plan, (IsInput, LiteralResult, SameResult))
        and in_graph(result)
        and result.grad_fn in behind
    )


def depended_inputs(
    effects: Effects, history: History, primals: Sequence[torch.Tensor]
) -> tuple[int, ...]:
    """The inputs written to of which that is so. Raises Unsupported for one that keeps its
    gradient: it keeps that of the value written."""
    behind = _behind(history)
    found = []
    for update in effects.updates:
        wrapper = effects.returned[update.output].wrapper
        if update.differentiable and wrapper is not None and wrapper.grad_fn in behind:
            if update.primal < len(primals) and primals[update.primal].retains_grad:
                raise Unsupported(
                    "retain_grad() of an input that the program writes to, where a result depends "
                    "on what was written; call it after the region, or pass a clone"
                )
            found.append(update.primal)
    return tuple(found)


def reentrant_tangents(
    effects: Effects, history: History, differentiable: Sequence[int]
) -> frozenset[int]:
    """The tangents that lead to a checkpoint with use_reentrant=True, which eager's engine goes
    through only where gradients are accumulated in all leaves."""
    if not any(accumulates_only(node) for node, _ in history):
        return frozenset()
    ends = [effects.from_function[place].wrapper for place in differentiable]
    return frozenset(
        order
        for order, end in enumerate(ends)
        if end is not None and any(accumulates_only(n) for n, _ in autograd_nodes([end.grad_fn]))
    )


def _behind(history: History) -> set[Any]:
    """The nodes that the gradients of the function's results go through, behind those results."""
    return {other for _, following in history for other in following}
