"""The nodes of one compiled call that one backward pass comes to.

What comes in: a note from each of them. What goes out: an error where two do what eager does once.
Invariant: nothing is known of a pass but its number.
"""

from __future__ import annotations

from flambeau_aot._torch_compat import current_backward_pass
from flambeau_aot.errors import DoubleBackwardError


class Visits:
    """One call of a compiled program whose derivative runs eagerly, on nodes of its own: what the
    backward part does besides gradients (writes, the caller's hooks), or does not linearly with
    them, eager does once in a backward pass, and these two would do it once each, of a part of the
    gradient."""

    def __init__(self) -> None:
        self.by: dict[str, int] = {}

    def note(self, who: str) -> None:
        """The backward part ("compiled") or the derivative's nodes ("derived") are run; raises
        DoubleBackwardError where both are in one backward pass."""
        self.by[who] = current_backward_pass()
        if len(self.by) == 2 and self.by["compiled"] == self.by["derived"]:
            raise DoubleBackwardError(
                "a backward pass goes through a compiled program and through its gradients of an "
                "earlier pass with create_graph=True, and its backward part writes to an input, "
                "calls hooks of the caller's or has a derivative of a user's that is not linear in "
                "the gradient, which eager would do once, of the whole gradient; run this part of "
                "the program uncompiled"
            )
