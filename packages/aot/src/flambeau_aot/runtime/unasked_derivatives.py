"""User-defined derivatives upstream of a call that no gradient asks for.

What comes in: the node of the call, its gradients. What goes out: nothing, or an error.
Invariant: a user's derivative that no gradient is asked of is not run, or the pass raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau_aot._torch_compat import autograd_nodes, of_a_user
from flambeau_aot.refusals import refusal


def refuse_unasked(node: Any, gradients: Sequence[Any]) -> None:
    """Raise AotError in a backward pass that would go on to such a derivative with no gradient."""
    for (following, _), gradient in zip(node.next_functions, gradients, strict=False):
        if gradient is None and following is not None and leads_to_users_derivative(following):
            raise refusal("AO0158")


def leads_to_users_derivative(node: Any) -> bool:
    """Whether a pass that comes to this node comes to a derivative of a user's."""
    return node is not None and any(of_a_user(each) for each, _ in autograd_nodes([node]))
