"""The autograd nodes of a program's results: which get one of their own, and the order of all.

In: what the program returned, with its autograd graph. Out: the results, and inputs written to,
that other results' gradients flow through; the nodes of a call in the order in which eager makes
them; views that are made of other results.
Invariant: a result that depends on others is a result of a node of its own, with edges to those
others: in eager it has the whole of its gradient. A backward pass comes to the nodes of a call, and
calls the hooks on their results, in eager's order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from flambeau_aot._torch_compat import is_functional, node_sequence
from flambeau_aot.joint.input_mutations import Effects, in_graph
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import (
    IsInput,
    LiteralResult,
    NodePlace,
    OutputPlan,
    ResultNode,
    SameResult,
    View,
)

History = Sequence[tuple[Any, tuple[Any, ...]]]
"""The autograd nodes of the function's results, each with those that follow."""


@dataclass(frozen=True)
class NodesOfResults:
    """On which nodes results are, and the order of these: fields of a `RuntimePlan`."""

    result_nodes: tuple[ResultNode, ...]
    hook_order: tuple[int, ...]
    node_order: tuple[NodePlace, ...]


def nodes_of_results(effects: Effects, history: History, separate: bool) -> NodesOfResults:
    """The nodes that results get, in the order of their making, which is that of eager's nodes: the
    engine runs the last one first, and calls the hooks on its results then. A node of its own is
    for results that depend on others, those of one operator, and those that come after such ones
    or after a view or an input written to, which have nodes anyway. Neither a view that the
    autograd function makes nor what it is of gets one, and no edge leads to a result that the
    program itself puts a hook on. separate: no results of several operators are on one such node,
    for they do not lead to the same inputs. Raises Unsupported where such a view, or what it is of,
    depends on a result: hooks on that would miss a part of its gradient; and for an input written
    to that keeps its gradient: it keeps that of the value written."""
    primals = effects.primals
    # a view that the autograd function makes would not be one of what another node gives
    whole = {item.output for item in effects.inside}
    known = zip(effects.differentiable, effects.ends, strict=True)
    ends = [(place, end.grad_fn) for place, end in known if end.grad_fn is not None]
    bound = [(at, n) for at, n in ends if at >= len(effects.returned) or at in whole]
    fixed = {node for _, node in bound}
    targets = _targets(effects, history)
    behind = _targets_reached(history, targets)
    if any(behind[node] for node in fixed):
        raise refusal("AO0177")
    for target in targets:
        if target < 0 and ~target < len(primals) and primals[~target].retains_grad:
            raise refusal("AO0132")
    outside = _nodes_outside(effects)
    by_node: dict[Any, list[int]] = {}
    for at, node in ends:
        if node not in fixed:
            by_node.setdefault(node, []).append(at)
    groups: list[_Group] = [_Group([], set(), node_sequence(ends[0][1]) if ends else 0)]
    for node in sorted(by_node, key=node_sequence):
        group, number = groups[-1], node_sequence(node)
        between = any(group.last < other < number for other in map(node_sequence, outside.values()))
        if (
            (len(groups) == 1 and (behind[node] or len(by_node[node]) > 1))
            or (group.outputs and (between or group.of_one or len(by_node[node]) > 1))
            or (separate and len(groups) > 1)
            or any(node_sequence(targets[t][0]) >= group.first for t in behind[node])
        ):
            groups.append(_Group([], set(), number))
        groups[-1].add(number, by_node[node], behind[node])
    main = [(node_sequence(node), at) for at, node in bound]
    if (
        len(groups) == 2
        and groups[1].of_one
        and not (main or groups[0].outputs or groups[1].behind)
    ):
        return NodesOfResults((), (), _node_order(outside, groups[1:]))
    main += groups[0].outputs
    return NodesOfResults(
        tuple(group.node() for group in groups[1:]),
        tuple(at for _, at in sorted(main, reverse=True)),
        _node_order(outside, [_Group(main, set(), 0), *groups[1:]]),
    )


@dataclass
class _Group:
    """What is put on one node: outputs with the sequence numbers of eager's nodes, what they depend
    on, and the first number; whether they are those of one operator."""

    outputs: list[tuple[int, int]]
    behind: set[int]
    first: int
    of_one: bool = False

    @property
    def last(self) -> int:
        return max((number for number, _ in self.outputs), default=self.first)

    def add(self, number: int, outputs: Sequence[int], behind: frozenset[int]) -> None:
        if not self.outputs:
            self.first = number
        self.of_one = len(outputs) > 1
        self.outputs += [(number, at) for at in outputs]
        self.behind |= behind

    def node(self) -> ResultNode:
        # of one operator: by place, as hooks are called in the order of their being put there
        order = sorted(self.outputs, key=lambda x: (-x[0], x[1]))
        places = tuple(at for _, at in order)
        return ResultNode(places, tuple(sorted(self.behind)), self.of_one)


def _nodes_outside(effects: Effects) -> dict[NodePlace, Any]:
    """Eager's nodes of results and inputs that get one at the end of a call."""
    found = {
        NodePlace("result", at): result.grad_fn
        for at, (result, plan) in enumerate(zip(effects.flat, effects.results, strict=True))
        if isinstance(plan, View) and is_functional(result) and in_graph(result)
    }
    for update in effects.updates:
        wrapper = effects.returned[update.output].wrapper
        if update.differentiable and wrapper is not None:
            found[NodePlace("input", update.primal)] = wrapper.grad_fn
    return {place: node for place, node in found.items() if node is not None}


def _node_order(
    outside: Mapping[NodePlace, Any], groups: Sequence[_Group]
) -> tuple[NodePlace, ...]:
    if not outside:
        return ()
    order = [(node_sequence(node), place) for place, node in outside.items()]
    order += [(g.last, NodePlace("output", g.outputs[0][1])) for g in groups if g.outputs]
    return tuple(place for _, place in sorted(order, key=lambda x: x[0])) if len(order) > 1 else ()


Edge = tuple[Any, int]
"""An autograd node and which of its results: a gradient of one goes through none of the others."""


def _targets(effects: Effects, history: History) -> dict[int, Edge]:
    """The edges of the results, and (~primal) of the inputs written to, that gradients of other
    results go through; an input itself is none."""
    behind = {edge for node, _ in history for edge in node.next_functions if edge[0] is not None}
    targets = {
        place: (result.grad_fn, result.output_nr)
        for place, (result, plan) in enumerate(zip(effects.flat, effects.results, strict=True))
        if is_functional(result)
        and not isinstance(plan, (IsInput, LiteralResult, SameResult))
        and not getattr(plan, "late", False)
        and in_graph(result)
        and all(result is not other for other in effects.tracer.hooked)
    }
    for update in effects.updates:
        wrapper = effects.returned[update.output].wrapper
        if update.differentiable and wrapper is not None:
            targets[~update.primal] = wrapper.grad_fn, wrapper.output_nr
    return {target: edge for target, edge in targets.items() if edge in behind}


def _targets_reached(history: History, targets: Mapping[int, Edge]) -> dict[Any, frozenset[int]]:
    """For each node, the targets that its gradients go through."""
    at: dict[Edge, frozenset[int]] = {}
    for target, edge in targets.items():
        at[edge] = at.get(edge, frozenset()) | {target}
    found: dict[Any, frozenset[int]] = {}
    nothing: frozenset[int] = frozenset()
    for node, _ in reversed(history):
        edges = [edge for edge in node.next_functions if edge[0] is not None]
        found[node] = nothing.union(*(found[e[0]] | at.get(e, nothing) for e in edges))
    return found


def shared_views(results: Sequence[OutputPlan], flat: Sequence[Any]) -> tuple[OutputPlan, ...]:
    """The results, with numbers for the steps of views that the program has taken once for several
    of them: one that it took of another one, or several that one operator gave."""
    known = [(at, x) for at, x in enumerate(results) if isinstance(x, View) and not x.leaf]
    calls = {at: [-1] * len(x.steps) for at, x in known}
    for (at, own), (of, other) in permutations(known, 2):
        last = len(other.steps) - 1
        same = (own.source, own.requires_grad, own.late) == (
            other.source, other.requires_grad, other.late,
        )  # fmt: skip
        if not same or not 0 <= last < len(own.steps) or calls[at][last] >= 0:
            continue
        one = replace(own.steps[last], index=other.steps[last].index)
        if (*own.steps[:last], one) == other.steps and _made_of(flat[at], flat[of], own, other):
            calls[of][last] = calls[at][last] = calls[of][last] if calls[of][last] >= 0 else of
    shared = {
        at: replace(x, calls=tuple(calls[at])) for at, x in known if max(calls[at], default=-1) >= 0
    }
    return tuple(shared.get(at, item) for at, item in enumerate(results))


def _made_of(result: Any, other: Any, own: View, of: View) -> bool:
    """Whether autograd knows a view as one of another result, or as of one operator with it."""
    node, end = result.grad_fn, other.grad_fn
    if node is None or end is None:
        return False
    if len(own.steps) == len(of.steps):
        return node is end and own.steps[-1].index is not None
    if own.steps[: len(of.steps)] != of.steps:
        return False
    while node is not None and node is not end:
        following = node.next_functions
        node = following[0][0] if len(following) == 1 else None
    return node is end
