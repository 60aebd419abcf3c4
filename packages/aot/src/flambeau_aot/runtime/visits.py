"""The nodes of one compiled call that one backward pass comes to.

What comes in: a note from each of them. What goes out: an error where two do what eager does once.
Invariant: nothing is known of a pass but its number.
"""

from __future__ import annotations

from flambeau_aot._torch_compat import current_backward_pass
from flambeau_aot.refusals import refusal


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
            raise refusal("AO0159")
