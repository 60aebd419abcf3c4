"""Stale views: taken before an in-place reshape, and refused.

What comes in: tensors as the program makes them, those it reshapes in place, and those that get a
history. What goes out: a refusal where such a view is used afterwards.
Invariant: only views alive when the tensor is reshaped count, and only those of a tensor that
requires grad, then or by what is written to it later; nothing but them is looked at twice.

Eager takes such a view again by its place in memory; a functional tensor has no memory, and takes
it by dimensions, which are not those it was taken of.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from flambeau_aot._torch_compat import base_of
from flambeau_aot.errors import Unsupported


class Views:
    """The views of one trace."""

    def __init__(self) -> None:
        self._of: dict[int, list[weakref.ref[torch.Tensor]]] = {}
        self._stale: dict[int, torch.Tensor] = {}
        # By base, those of tensors that require no grad so far.
        self._without_grad: dict[int, list[torch.Tensor]] = {}

    def made(self, result: Any) -> None:
        """Note views among the results of a call."""
        for value in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(value, torch.Tensor):
                base = base_of(value)
                if base is not value:
                    self._of.setdefault(id(base), []).append(weakref.ref(value))

    def reshaped(self, target: torch.Tensor) -> None:
        """A tensor is given another shape in place."""
        base = base_of(target)
        alive = [known() for known in self._of.pop(id(base), ())]
        views = [view for view in alive if view is not None]
        if base.requires_grad:
            self._stale.update({id(view): view for view in views if view is not target})
        else:
            own = [] if target is base else [base, target]
            self._without_grad.setdefault(id(base), []).extend((*views, *own))

    def recorded(self, target: torch.Tensor) -> None:
        """A tensor without grad is about to get a history, and what shares its memory with it."""
        for view in self._without_grad.pop(id(base_of(target)), ()):
            self._stale[id(view)] = view

    def refuse_stale(self, values: Any) -> None:
        """Raise where one of these is a view of a shape that is gone."""
        if not self._stale:
            return
        for value in values:
            if isinstance(value, (list, tuple)):
                self.refuse_stale(value)
            elif id(value) in self._stale:
                raise Unsupported(
                    "a view of a tensor that requires grad is used after the tensor was given "
                    "another shape in place; use the operator that returns the new shape"
                )
