"""Results that other results' gradients flow through.

What comes in: what the program returned, as autograd knows it. What goes out: the results, and the
inputs written to, that stand in the middle of another result's history.
Invariant: in eager such a tensor has the whole of its gradient, which a hook sees and
`torch.autograd.grad` gives; a result that depends on others is a result of a node of its own, with
edges to those others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from flambeau_aot._torch_compat import accumulates_only, autograd_nodes, is_functional
from flambeau_aot.joint.input_mutations import Effects, in_graph
from flambeau_aot.plan import IsInput, LiteralResult, ResultNode, SameResult
from flambeau_aot.refusals import refusal

History = Sequence[tuple[Any, tuple[Any, ...]]]
"""The autograd nodes behind the function's results, each with those that follow."""


def history_of(effects: Effects) -> History:
    """What autograd knows of the results that gradients go through."""
    ends = [x.wrapper for x in effects.from_function if x.wrapper is not None and x.differentiable]
    return autograd_nodes([end.grad_fn for end in ends])


def result_nodes(
    effects: Effects,
    history: History,
    results: Sequence[Any],
    differentiable: Sequence[int],
    primals: Sequence[torch.Tensor],
    hooked: Sequence[torch.Tensor],
) -> tuple[ResultNode, ...]:
    """The nodes of their own that results get which others are behind, in the order of their
    making: neither a view that the autograd function makes nor what it is of, and no edge leads to
    what these depend on, nor to a result that the program itself puts a hook on. Raises Unsupported
    for an input written to that keeps its gradient: it keeps that of the value written."""
    # a view that the autograd function makes would not be one of what another node gives
    whole = {item.source.index for item in effects.inside if item.source.kind == "output"}
    known = [(place, effects.from_function[place].wrapper) for place in differentiable]
    ends = [(place, end.grad_fn) for place, end in known if end is not None]
    bound = [n for at, n in ends if at >= len(effects.returned) or at in whole]
    ends = [(at, node) for at, node in ends if node not in bound]
    targets = _targets(effects, history, results, hooked)
    if not targets:
        return ()
    behind = _targets_behind(history, targets)
    without = frozenset().union(*(behind[node] for node in bound))
    behind = {node: found - without for node, found in behind.items()}
    for target in targets.keys() - without:
        if target < 0 and ~target < len(primals) and primals[~target].retains_grad:
            raise refusal("AO0132")
    levels: dict[Any, int] = {}
    groups: dict[int, dict[int, frozenset[int]]] = {}
    for node, _ in reversed(history):
        levels[node] = max((levels[targets[t]] + 1 for t in behind[node]), default=0)
        same = [at for at, own in ends if own is node]
        if same and levels[node]:
            groups.setdefault(levels[node], {}).update(dict.fromkeys(same, behind[node]))
    return tuple(
        ResultNode(tuple(sorted(group)), tuple(sorted(frozenset().union(*group.values()))))
        for _, group in sorted(groups.items())
    )


def _targets(
    effects: Effects, history: History, results: Sequence[Any], hooked: Sequence[torch.Tensor]
) -> dict[int, Any]:
    """The autograd nodes of the results, and (~primal) of the inputs written to, that gradients of
    other results go through; an input itself is none."""
    behind = {other for _, following in history for other in following}
    targets = {
        place: result.grad_fn
        for place, (result, plan) in enumerate(zip(results, effects.results, strict=True))
        if is_functional(result)
        and not isinstance(plan, (IsInput, LiteralResult, SameResult))
        and not getattr(plan, "late", False)
        and in_graph(result)
        and all(result is not other for other in hooked)
    }
    for update in effects.updates:
        wrapper = effects.returned[update.output].wrapper
        if update.differentiable and wrapper is not None:
            targets[~update.primal] = wrapper.grad_fn
    return {target: node for target, node in targets.items() if node in behind}


def _targets_behind(history: History, targets: Mapping[int, Any]) -> dict[Any, frozenset[int]]:
    """For each node, the targets that stand behind it."""
    at: dict[Any, frozenset[int]] = {}
    for target, node in targets.items():
        at[node] = at.get(node, frozenset()) | {target}
    found: dict[Any, frozenset[int]] = {}
    nothing: frozenset[int] = frozenset()
    for node, following in reversed(history):
        found[node] = nothing.union(*(found[n] | at.get(n, nothing) for n in following))
    return found


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
