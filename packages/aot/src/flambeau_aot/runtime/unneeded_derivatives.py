"""User-defined derivatives upstream of a program's inputs, which no gradient may need.

In: the node of a call with its gradients, or a traced program with its inputs. Out: nothing, or a
refusal.
Invariant: eager runs no derivative whose gradient nobody needs. The autograd function of a program
leads from each result to all inputs, and torch's engine goes on to where it has no gradient: its
own derivatives give none there, while a user's is run on zeros, and may do anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau_aot._torch_compat import (
    autograd_nodes,
    current_backward_pass,
    is_of_python,
    of_a_user,
)
from flambeau_aot.errors import AliasingChanged
from flambeau_aot.refusals import refusal

if TYPE_CHECKING:  # what a loaded program runs on knows nothing of tracing
    from flambeau_aot.joint.trace import Joint
import torch

Partly = Sequence[tuple[int, frozenset[int]]]
"""Primals that not all cotangents lead to, each with those that do."""


def refuse_unasked(node: Any, partly: Partly, given: Sequence[Any]) -> None:
    """Raise AotError in a backward pass that would go on to such a derivative where no cotangent
    that is given leads to it."""
    missing = {order for order, item in enumerate(given) if item is None}
    known = (node.next_functions[place][0] for place, tangents in partly if tangents <= missing)
    ends = [following for following in known if following is not None]
    if any(of_a_user(each) for each in note_unasked(ends)):
        raise refusal("AO0158")


def note_unasked(ends: Sequence[Any]) -> list[Any]:
    """The nodes from these on, which the backward pass being run comes to from a compiled call
    without a gradient; those that are calls of compiled programs know it."""
    nodes = [each for each, _ in autograd_nodes(ends)]
    for node in nodes:
        if is_of_python(node):
            node.unasked = current_backward_pass()
    return nodes


def unasked(node: Any) -> bool:
    """Whether the backward pass being run has come to a call in such a way."""
    return getattr(node, "unasked", None) == current_backward_pass()


def refuse_upstream(joint: Joint, inputs: Sequence[Any]) -> None:
    """Raise Unsupported for a program of which a result leads to such a derivative alone through
    the function around the program."""
    first, positions = len(joint.static), joint.plan.inputs.primals
    own = [p - first for p, _ in joint.plan.partly_given if p - first < len(positions)]
    if _user_upstream([inputs[positions[place]] for place in own]):
        raise refusal("AO0158")


def none_of_a_user(partly: Partly, primals: Sequence[Any]) -> None:
    """Raise AliasingChanged where such a derivative leads to one of these primals in this call:
    the program was compiled for another history of its inputs."""
    if _user_upstream([primals[place] for place, _ in partly]):
        raise AliasingChanged("an input comes from a derivative of a user's, unlike when traced")


def _user_upstream(values: Sequence[Any]) -> bool:
    """Whether a user's derivative is upstream of one of the values. Calls of compiled programs are
    noted that have none upstream: in a row of programs each looks as far as the one before."""
    roots: list[Any] = [x.grad_fn for x in values if isinstance(x, torch.Tensor) and not x.is_leaf]
    seen, own = set(roots), list[Any]()
    while roots:
        node = roots.pop()
        if of_a_user(node):
            return True
        if is_of_python(node):
            if getattr(node, "no_user_upstream", False):
                continue
            own.append(node)
        found = {other for other, _ in node.next_functions if other is not None} - seen
        seen |= found
        roots.extend(found)
    for node in own:
        node.no_user_upstream = True
    return False
