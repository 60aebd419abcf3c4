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

from flambeau_aot._torch_compat import autograd_nodes, of_a_user
from flambeau_aot.refusals import refusal

if TYPE_CHECKING:  # what a loaded program runs on knows nothing of tracing
    from flambeau_aot.joint.trace import Joint
import torch


def refuse_unasked(node: Any, gradients: Sequence[Any]) -> None:
    """Raise AotError in a backward pass that would go on to such a derivative with no gradient."""
    pairs = zip(node.next_functions, gradients, strict=False)
    ends = [following for (following, _), gradient in pairs if gradient is None and following]
    if any(of_a_user(each) for each, _ in autograd_nodes(ends)):
        raise refusal("AO0158")


def refuse_upstream(joint: Joint, inputs: Sequence[Any], reached: Sequence[frozenset[int]]) -> None:
    """Raise Unsupported for a program of which a result leads to such a derivative alone through
    the function around the program."""
    plan, first = joint.plan, len(joint.static)
    places = {first + at: inputs[position] for at, position in enumerate(plan.inputs.primals)}
    nodes = {
        place: value.grad_fn
        for place, value in places.items()
        if place not in plan.apart and isinstance(value, torch.Tensor) and value.grad_fn
    }
    every = len(joint.tangents)
    partly = [node for place, node in nodes.items() if len(reached[place]) < every]
    if any(of_a_user(node) for node, _ in autograd_nodes(partly)):
        raise refusal("AO0158")
