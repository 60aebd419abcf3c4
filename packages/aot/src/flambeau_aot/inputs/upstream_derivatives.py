"""User-defined derivatives upstream of a compiled program's inputs.

What comes in: a traced program with its inputs. What goes out: nothing, or an error.
Invariant: eager runs no derivative that no gradient is asked of. The autograd function of a program
leads from each result to all inputs, and torch's engine goes on to where it has no gradient: its
own derivatives answer none there, while a user's is run of zeros, and may do anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from flambeau_aot._torch_compat import autograd_nodes, of_a_user
from flambeau_aot.joint.trace import Joint
from flambeau_aot.partition.split import tangents_of
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.unasked_derivatives import leads_to_users_derivative


def refuse_upstream(joint: Joint, inputs: Sequence[Any]) -> None:
    """Raise Unsupported for a program of which a result leads to such a derivative alone through
    the function around the program."""
    plan = joint.plan
    first = len(joint.static)
    places = {
        first + place: inputs[position]
        for place, position in enumerate(plan.inputs.primals)
        if first + place not in plan.apart
    }
    behind_any = [x.grad_fn for x in places.values() if isinstance(x, torch.Tensor) and x.grad_fn]
    if not any(of_a_user(node) for node, _ in autograd_nodes(behind_any)):
        return
    found = [place for place, value in places.items() if _is_downstream_of_users(value)]
    every = len(joint.tangents)
    reached = tangents_of(joint)
    if any(len(reached[place]) < every for place in found):
        raise refusal("AO0158")


def _is_downstream_of_users(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.requires_grad
        and leads_to_users_derivative(value.grad_fn)
    )
