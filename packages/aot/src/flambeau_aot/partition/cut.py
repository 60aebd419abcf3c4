"""The result of partitioning, and its invariants.

What comes in: a joint graph and what a partition, perhaps a user's own, chose to save. What goes
out: the same nodes, or an error that says which rule they break.
Invariant: a cut that passes can be split: each half computes what it returns from what it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import fx

from flambeau_aot.errors import AotError
from flambeau_aot.joint.trace import Joint

RULES = (
    "a partition returns the nodes of the joint graph whose values are kept for the backward part: "
    "inputs and values that the forward part computes, enough to compute every gradient from"
)


def checked_cut(joint: Joint, saved: Any) -> Sequence[fx.Node]:
    """The cut, if it is one."""
    if not isinstance(saved, Iterable):
        raise AotError(f"the partition returned {saved!r}; {RULES}")
    chosen = list(saved)
    nodes = set(joint.graph.nodes)
    for item in chosen:
        if not isinstance(item, fx.Node) or item not in nodes:
            raise AotError(f"the partition returned {item!r}, no node of the joint graph; {RULES}")
    late = _after_tangents(joint)
    wrong = [node for node in chosen if node in late]
    if wrong:
        raise AotError(
            f"the partition saves {[node.name for node in wrong]}, which only the backward part "
            f"can compute; {RULES}",
            wrong[0].meta.get("stack_trace") or "",
        )
    missing = _missing(joint, set(chosen))
    if missing:
        raise AotError(
            f"the cut leaves out {[node.name for node in missing]}, which the gradients need; "
            f"{RULES}"
        )
    return chosen


def _after_tangents(joint: Joint) -> set[fx.Node]:
    found = set(joint.late_inputs)
    for node in joint.graph.nodes:
        if any(source in found for source in node.all_input_nodes):
            found.add(node)
    return found


def _missing(joint: Joint, saved: set[fx.Node]) -> list[fx.Node]:
    """Inputs that the gradients are computed from and that are not saved."""
    given = saved | set(joint.late_inputs) | set(joint.symbols)
    seen: set[fx.Node] = set()
    stack = [node for node in joint.grads if node is not None]
    missing: list[fx.Node] = []
    while stack:
        node = stack.pop()
        if node in given or node in seen:
            continue
        seen.add(node)
        if node.op == "placeholder":
            missing.append(node)
        stack.extend(node.all_input_nodes)
    return missing
