"""Buffers that a module sets anew in a call: `self.count = self.count + 1`.

In: a module to export. Out: a function to capture in its place, whose graph writes such buffers
where they are. Invariant: a graph holds no names of a module, so what cannot be written in place
(another size, a buffer in two places, a new name) is left to be refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch.utils import _pytree as pytree


def module_of(fn: Any) -> torch.nn.Module | None:
    """The module that is called, or whose method is."""
    owner = fn.__self__ if isinstance(fn, MethodType) else fn
    return owner if isinstance(owner, torch.nn.Module) else None


class SetAnew:
    """The buffers of a module and of all below it, as they are before the call."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.tables = [each._buffers for each in module.modules()]
        self.before = [{**table} for table in self.tables]
        held = [*module.parameters(), *(b for table in self.tables for b in table.values())]
        places = Counter(_memory(b) for b in held if b is not None)
        self.own = [
            {n: b for n, b in table.items() if b is not None and places[_memory(b)] == 1}
            for table in self.tables
        ]

    def written(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn`, after which each buffer is the tensor that it was, with the new value."""
        places = list(zip(self.tables, self.own, strict=True))

        def call(*args: Any, **kwargs: Any) -> Any:
            result = fn(*args, **kwargs)
            anew = [
                (table, name, old, new.clone())
                for table, own in places
                for name, old in own.items()
                if (new := table[name]) is not None and new is not old and _alike(new, old)
            ]
            given = pytree.tree_leaves((args, kwargs))
            # what it returns may be a part of the old value
            result = pytree.tree_map(lambda leaf: _copied(leaf, given), result)
            for table, name, old, new in anew:
                old.copy_(new)
                table[name] = old
            return result

        return call

    def put_back(self) -> bool:
        """Let the buffers be what they were; whether they are already."""
        same = True
        for table, before in zip(self.tables, self.before, strict=True):
            if list(table) != list(before) or any(table[n] is not before[n] for n in before):
                same = False
                table.clear()
                table.update(before)
        return same


def _memory(buffer: torch.Tensor) -> int:
    address: int = buffer.untyped_storage()._cdata
    return address


def _alike(new: Any, old: torch.Tensor) -> bool:
    return (
        isinstance(new, torch.Tensor)
        and new.shape == old.shape
        and new.dtype == old.dtype
        and new.device == old.device
    )


def _copied(leaf: Any, given: list[Any]) -> Any:
    if not isinstance(leaf, torch.Tensor) or any(leaf is each for each in given):
        return leaf
    return leaf.clone()
