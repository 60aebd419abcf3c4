"""Storage offsets within memory that several arguments share.

What comes in: views by `as_strided`, and questions for the place of a tensor in its storage. What
goes out: the same, counted from the start of the caller's storage or from that of the graph's.
Invariant: the graph takes the part of the storage that the arguments cover, from its first element;
the program, and the views that a call makes again, count from the start of the whole storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from flambeau_aot._torch_compat import storage_key
from flambeau_aot.errors import Unsupported
from flambeau_aot.plan import Merged, ViewStep

aten = torch.ops.aten

STRIDED: Mapping[Any, int] = {
    torch.as_strided: 3,
    torch.Tensor.as_strided: 3,
    aten.as_strided: 3,
    aten.as_strided.default: 3,
    torch.as_strided_scatter: 4,
    torch.Tensor.as_strided_scatter: 4,
    aten.as_strided_scatter: 4,
    aten.as_strided_scatter.default: 4,
}
"""Functions that are told a place in a storage, and where among their arguments."""

_OF_OTHER_SIZE = {aten.view.dtype, aten.view_as_real.default, aten.view_as_complex.default}


def in_whole_memory(merged: Merged, steps: Sequence[ViewStep]) -> tuple[ViewStep, ...]:
    """Views of what the graph takes as views of an argument, by way of its whole storage."""
    start = merged.offset
    whole = ViewStep(aten.as_strided.default, (merged.size, merged.stride, start), {}, None)
    moved: list[ViewStep] = []
    for step in steps:
        if step.func is aten.as_strided.default and len(step.args) > 2 and step.args[2] is not None:
            if any(before.func in _OF_OTHER_SIZE for before in moved):
                raise Unsupported(
                    "a result is a view by as_strided of memory that several arguments share, "
                    "seen as another dtype; use views by dimensions"
                )
            args = (*step.args[:2], step.args[2] + start, *step.args[3:])
            step = replace(step, args=args)
        moved.append(step)
    return (whole, *moved)


class Spans:
    """Where the memory of the stand-ins of shared memory begins in the caller's storage.

    starts: by the storage of such a stand-in, the number of elements before it.
    """

    def __init__(self, starts: Mapping[int, int], placed: set[int] | None = None) -> None:
        """placed: where storages are noted in which the program names a place."""
        self.starts = starts
        self.placed = set[int]() if placed is None else placed

    def start(self, target: torch.Tensor) -> int:
        """How many elements of the caller's storage come before what the graph takes."""
        return self.starts.get(storage_key(target), 0)

    def counted(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call with a place in the storage as the graph counts it."""
        position = STRIDED[func]
        start = self.start(args[0])
        given = args[position] if len(args) > position else kwargs.get("storage_offset")
        if given is not None:
            self.placed.add(storage_key(args[0]))
        if not start or given is None:
            return args, kwargs
        if given < start:
            raise Unsupported(
                "as_strided reaches memory before that of the arguments, which share it and are "
                "written to; use views by dimensions"
            )
        if len(args) > position:
            return (*args[:position], given - start, *args[position + 1 :]), kwargs
        return args, {**kwargs, "storage_offset": given - start}
