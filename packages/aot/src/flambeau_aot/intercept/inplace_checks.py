"""Eager's checks on in-place writes, which functional wrappers would let pass.

What comes in: calls that write in place, before they are made. What goes out: nothing, or what
eager raises. Invariant: an input that is a leaf, or a view of one, is not written to with grad
enabled.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_aot._torch_compat import base_of
from flambeau_aot.errors import Unsupported
from flambeau_aot.inputs.input_facts import InputFacts
from flambeau_aot.intercept.inplace import RESHAPE_IN_PLACE, is_basic, writes_in_place
from flambeau_aot.intercept.stale_views import Views

_AMBIGUOUS = (
    "A view was created in no_grad mode and is being modified inplace with grad mode enabled."
)


class RefusedWrites:
    """Looks at each write of one trace.

    known: what the inputs are that stand-ins stand for. views: where views are noted, so that one
    of a shape that is gone is not used.
    """

    def __init__(self, known: InputFacts, views: Views) -> None:
        self.known = known
        self.views = views
        self.reshaped: list[torch.Tensor] = []

    def look(self, name: str, target: torch.Tensor, args: tuple[Any, ...]) -> None:
        """Writes that eager refuses for leaves, which stand-ins are not, and those to the memory
        of a tensor reshaped in place: autograd would take its views again of the new shape."""
        if not writes_in_place(name):
            return
        base = base_of(target)
        if not base.requires_grad:
            if any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
                if id(base) in self.known.ambiguous:
                    raise RuntimeError(_AMBIGUOUS)
                self.views.recorded(target)
                self.views.refuse_stale((target,))
            return
        if id(base) in self.known.viewing_leaves and base is not target and base.is_leaf:
            # In eager they are both views of a tensor that requires no grad.
            raise Unsupported(
                "a write to a view of an input that is a view itself and began to require grad "
                "(requires_grad_); write to it before, or to a clone"
            )
        if id(base) in self.known.ambiguous:
            raise RuntimeError(_AMBIGUOUS)
        if self.known.leaves.get(id(base)) or id(base) in self.known.views_of_leaves:
            if name == "__setitem__" and is_basic(args[1]):
                target.detach()[args[1]]  # an index out of bounds is noticed first
            leaf = self.known.leaves.get(id(base)) and base is target
            what = "a leaf" if leaf else "a view of a leaf"
            raise RuntimeError(
                f"{what} Variable that requires grad is being used in an in-place operation."
            )
        if name in RESHAPE_IN_PLACE:
            self.reshaped.append(base)
        elif any(base is item for item in self.reshaped):
            raise Unsupported(
                "a write to a tensor that requires grad and was given another shape in place; "
                "use the operator that returns the new shape"
            )

    def look_at_lists(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The same for an operator that writes to a list of tensors."""
        given = [(*item,) if isinstance(item, (list, tuple)) else (item,) for item in args[1:]]
        others = tuple(value for item in given for value in item)
        if torch.is_grad_enabled():
            for target in args[0] if args else kwargs["self"]:
                self.look(name.removeprefix("_foreach_"), target, (target, *others))
