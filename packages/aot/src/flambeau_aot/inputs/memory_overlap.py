"""Memory overlap between tensors.

In: the tensors of a trace, and how the values that they stand for were made as views. Out: whether
two elements of one, or an element of one and one of another, have one address. Invariant: "no" is
proven; where the search would be long the answer is "yes", and where sizes that are left open
decide, it is `NotYetSymbolic`.

An address is a sum of strides, each times an index; two addresses are equal where a sum of strides,
each times a difference of indices, is the distance of the offsets. Differences are searched from
the largest stride down: what the smaller ones can still reach leaves few to try.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    current_value,
    in_general,
    is_functional,
    outside_tracing,
    storage_key,
)
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import ViewStep

_REPEATING = {
    torch.ops.aten.expand.default,
    torch.ops.aten.as_strided.default,
    torch.ops.aten.unfold.default,
}
_INEXACT = {
    torch.ops.aten.unfold.default: "windows of a tensor (unfold)",
    torch.ops.aten.expand.default: "a part of an expanded tensor",
}
_META = torch.device("meta")
_STEPS = 10_000
_OPEN = sys.maxsize
_Range = tuple[int, int, int]  # a stride, the least and the greatest difference of indices


@dataclass(frozen=True)
class StorageLayout:
    """Where the elements of a tensor are in its storage, counted from a value of the trace, `root`;
    those of two roots cannot be compared."""

    storage: int
    dtype: torch.dtype
    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any
    root: int = 0

    @property
    def empty(self) -> bool:
        """Whether there are no elements."""
        return any(size == 0 for size in self.shape)

    @property
    def stop(self) -> Any:
        """The place after the last element."""
        return self.offset + reach(self.shape, self.stride)


def reach(shape: Sequence[Any], stride: Sequence[Any]) -> Any:
    """How many places there are from the first to the last element."""
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def bare(
    shape: Sequence[Any], stride: Sequence[Any], offset: Any, dtype: torch.dtype
) -> torch.Tensor:
    """A tensor of the meta device, so laid out."""
    made = torch.empty_strided(shape, stride, dtype=dtype, device=_META)
    if isinstance(offset, int) and not offset:
        return made
    extent = 0 if made.numel() == 0 else reach(shape, stride)
    return torch.empty([offset + extent], dtype=dtype, device=_META).as_strided(
        shape, stride, offset
    )


ViewOf = Mapping[int, tuple[torch.Tensor, ViewStep]]
"""By the `id` of a value, the value that it is a view of and how."""


def steps_from(
    value: torch.Tensor, view_of: ViewOf, base: torch.Tensor | None = None
) -> tuple[torch.Tensor, tuple[ViewStep, ...]]:
    """The value a view was made of, at most as far back as `base`, and the steps from there."""
    steps: list[ViewStep] = []
    while value is not base and id(value) in view_of:
        value, step = view_of[id(value)]
        steps.append(step)
    return value, tuple(reversed(steps))


class Layouts:
    """Where the elements of a trace's tensors are in memory.

    A value's own strides and offset say nothing of that: a decomposition may have made it in memory
    of its own.
    """

    def __init__(self, view_of: ViewOf) -> None:
        self.view_of = view_of

    def may_repeat(self, tensor: torch.Tensor) -> bool:
        """Whether an element may be there twice: only some views do that, and some inputs."""
        root, steps = steps_from(current_value(tensor), self.view_of)
        repeats = any(step.func in _REPEATING for step in steps)
        return repeats or not is_dense(tuple(root.shape), tuple(root.stride()))

    def inexact(self, tensor: torch.Tensor) -> str | None:
        """What a tensor is a part of, if a functional write to it gives other values than eager's:
        one to windows would clear what lies between them, and add what lies in two; one to an
        expanded tensor adds the differences, so that a sign of zero, an infinity and digits go."""
        _, steps = steps_from(current_value(tensor), self.view_of)
        return next((_INEXACT[x.func] for x in reversed(steps) if x.func in _INEXACT), None)

    def of(self, tensor: torch.Tensor) -> StorageLayout:
        """Where a tensor's elements are, after all writes so far."""
        if not is_functional(tensor):
            return _layout(tensor, storage_key(tensor), 0)
        value, steps = steps_from(current_value(tensor), self.view_of)
        with outside_tracing():
            size, stride, offset = value.shape, value.stride(), value.storage_offset()
            made = bare(size, stride, offset, value.dtype)
            for step in steps:
                made = step.func(made, *step.args, **step.kwargs)
                made = made if step.index is None else made[step.index]
            return _layout(made, storage_key(tensor), id(value))


def _layout(tensor: torch.Tensor, storage: int, root: int) -> StorageLayout:
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    return StorageLayout(storage, tensor.dtype, shape, stride, tensor.storage_offset(), root)


def same_elements(one: StorageLayout, other: StorageLayout) -> bool:
    """Whether two tensors have the same elements at the same indices."""
    return one == other


def overlaps_itself(layout: StorageLayout) -> bool:
    """Whether two elements may be the same memory."""
    if layout.empty or is_dense(layout.shape, layout.stride):
        return False
    return _found(0, [(step, 1 - size, size - 1) for size, step in _dims(layout)], True)


def repeats(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor with memory of its own are the same."""
    if is_dense(tuple(tensor.shape), tuple(tensor.stride())):
        return False
    return overlaps_itself(_layout(tensor, 0, 0))


def share_elements(one: StorageLayout, other: StorageLayout) -> bool:
    """Whether an element of one may be the same memory as one of the other."""
    if not near(one, other):
        return False
    if one.dtype != other.dtype or one.root != other.root:
        return True
    distance = other.offset - one.offset
    if not isinstance(distance, int):
        raise refusal("AO0015")
    ranges = [(step, 0, size - 1) for size, step in _dims(one)]
    ranges += [(step, 1 - size, 0) for size, step in _dims(other)]
    return _found(distance, ranges, False)


def near(one: StorageLayout, other: StorageLayout) -> bool:
    """Whether the memory from the first to the last element of one reaches into the other's."""
    if one.storage != other.storage or one.empty or other.empty:
        return False
    if one.dtype != other.dtype or one.root != other.root:
        return True
    return bool(one.offset < other.stop) and bool(other.offset < one.stop)


def _dims(layout: StorageLayout) -> list[tuple[int, int]]:
    """Size and stride of each dimension; one whose size is left open is taken for endless."""
    found: list[tuple[int, int]] = []
    for size, step in zip(layout.shape, layout.stride, strict=True):
        if not isinstance(step, int):
            raise refusal("AO0016")
        if not isinstance(size, int):
            size = _OPEN
        if size > 1:
            found.append((size, step))
    return found


def _found(distance: int, ranges: Sequence[_Range], nonzero: bool) -> bool:
    merged: dict[int, tuple[int, int]] = {}
    count = len(ranges)
    for step, low, high in ranges:
        before = merged.get(step, (0, 0))
        merged[step] = before[0] + low, before[1] + high
    if nonzero and (0 in merged or len(merged) < count):
        return True  # along one stride, one index more and along another one less
    steps = sorted((step for step in merged if step), reverse=True)
    left = [_STEPS]
    return _search(distance, [(step, *merged[step]) for step in steps], left, nonzero)


def _search(distance: int, ranges: Sequence[_Range], left: list[int], nonzero: bool) -> bool:
    """Whether differences in these ranges, not all zero where `nonzero`, make up the distance."""
    if not ranges:
        return distance == 0 and not nonzero
    (step, low, high), rest = ranges[0], ranges[1:]
    reach_low = sum(s * a for s, a, _ in rest)
    reach_high = sum(s * b for s, _, b in rest)
    first = max(low, -((reach_high - distance) // step))
    last = min(high, (distance - reach_low) // step)
    for difference in range(first, last + 1):
        left[0] -= 1
        if left[0] < 0:
            return True
        if _search(distance - step * difference, rest, left, nonzero and not difference):
            return True
    return False


def in_anothers_memory(
    written: Collection[int], others: Iterable[int], tensors: Sequence[Any]
) -> tuple[int, int] | None:
    """A place among `written`, and another one, of two storages over the same memory: one of them
    was made over the memory of NumPy or of another library, as torch never does itself."""
    storages = {
        at: tensors[at].untyped_storage()
        for at in {*written, *others}
        if type(tensors[at]) in (torch.Tensor, torch.nn.Parameter) and tensors[at].is_cpu
    }
    foreign = {at for at, each in storages.items() if not each.resizable()}
    for place in storages.keys() & written if foreign else ():
        mine = storages[place]
        for at in storages if place in foreign else foreign:
            start, length = storages[at].data_ptr() - mine.data_ptr(), storages[at].nbytes()
            if storages[at]._cdata != mine._cdata and length and -length < start < mine.nbytes():
                return place, at
    return None


def is_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether some order of the dimensions makes this layout contiguous."""
    if 0 in shape:
        return True
    expected = 1
    # which order is tried needs no proof: what follows is one
    for size, step in sorted(zip(shape, stride, strict=True), key=lambda x: in_general(x[1])):
        if step == expected:  # of an open size nothing is decided here, which may be 1
            expected = expected * torch.sym_max(size, 1)  # as torch writes strides of one
        elif size != 1:
            return False
    return True


def expanded(shape: Sequence[Any], stride: Sequence[Any]) -> bool:
    """Whether elements are repeated along a dimension, as `expand` does."""
    return any(step == 0 and size > 1 for size, step in zip(shape, stride, strict=True))


def has_gaps(tensor: torch.Tensor) -> bool:
    """Whether there is memory between the elements, and none that two elements share."""
    return have_gaps(tuple(tensor.shape), tuple(tensor.stride()))


def have_gaps(shape: tuple[Any, ...], strides: tuple[Any, ...]) -> bool:
    """The same of a tensor of these sizes and strides."""
    if is_dense(shape, strides):
        return False
    end = 0
    for size, step in sorted(zip(shape, strides, strict=True), key=lambda pair: pair[1]):
        if size > 1:
            if step <= end:
                return False
            end += (size - 1) * step
    return True
