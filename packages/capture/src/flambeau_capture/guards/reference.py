"""Weak reference of a guard to its expected object.

In: an object. Out: a `Reference`: the object while it lives. Invariant: an object that can be
referred to weakly is not kept alive (tensors aside); its address means nothing once it is gone.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

#: made anew by every access: nobody else holds them
_MADE_BY_ACCESS = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)


def _is_kept(obj: Any) -> bool:
    """Tensors are, until the entry ends: torch swaps no tensor that is referred to weakly, and the
    graph has those that guards know by identity."""
    if isinstance(obj, _MADE_BY_ACCESS) or not type(obj).__weakrefoffset__:
        return True
    return any(kind.__module__ == "torch._C" for kind in type(obj).__mro__)


class Reference:
    """Called, it answers the object, or None where it is gone. `weak` is None if it is kept."""

    __slots__ = ("_kept", "_place", "weak")

    def __init__(self, obj: Any) -> None:
        self._place = id(obj)
        self._kept = None
        self.weak: weakref.ref[Any] | None = None
        if _is_kept(obj):
            self._kept = obj
        else:
            self.weak = weakref.ref(obj)

    def __call__(self) -> Any:
        return self._kept if self.weak is None else self.weak()

    def forget(self) -> None:
        """Be of nothing from here on: what asked is never asked again."""
        self._kept = None

    def is_of(self, obj: Any) -> bool:
        return obj is not None and self() is obj

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and other._place == self._place and self.is_of(other())

    def __hash__(self) -> int:
        return self._place
