"""Shape rules: metadata of results, and torch's stride rules.

In: shapes, strides, dtypes, devices. Out: the same, computed in plain Python.
Invariant: nothing here runs an operation or forces a symbolic size to a number by itself.

`Size` is spelled `int` for the type checker; a `torch.SymInt` is taken wherever an `int` is.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch

from flambeau_prims._torch_compat import device_of, is_less, surely

Size: TypeAlias = int
Sizes: TypeAlias = Sequence[Size]
Shape: TypeAlias = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Shape and strides (in elements), dtype and device of a strided tensor."""

    shape: Shape
    stride: Shape
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorMeta:
        """The metadata of a tensor, fake tensor, or anything with the same four accessors."""
        device = device_of(tensor)
        return TensorMeta(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, device)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def numel(self) -> Size:
        """Number of elements."""
        return product(self.shape)

    def nbytes(self) -> Size:
        """Bytes of the elements, each counted once however often it is repeated by strides."""
        return self.numel() * self.dtype.itemsize

    def like(
        self,
        shape: Sizes | None = None,
        stride: Sizes | None = None,
        dtype: torch.dtype | None = None,
    ) -> TensorMeta:
        """This metadata with another shape (contiguous unless strides are given) or dtype."""
        if shape is None:
            return replace(self, stride=tuple(stride or self.stride), dtype=dtype or self.dtype)
        sizes = tuple(shape)
        strides = contiguous_strides(sizes) if stride is None else tuple(stride)
        return TensorMeta(sizes, strides, dtype or self.dtype, self.device)


def product(sizes: Sizes) -> Size:
    """The product of sizes; 1 for none."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


def contiguous_strides(shape: Sizes) -> Shape:
    """Row-major strides; a dimension of size 0 counts as 1, as in torch, one that data decides as
    itself."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * (1 if surely(size == 0) else size)
    return tuple(reversed(strides))


def ordered_strides(shape: Sizes, order: Sequence[int]) -> Shape:
    """Dense strides with dimensions laid out from outermost to innermost as `order` lists them; of
    no elements, those outside a size of 0 are 0."""
    strides: list[Size] = [1] * len(shape)
    step: Size = 1
    for dim in reversed(order):
        strides[dim] = step
        step = step * shape[dim]
    return tuple(strides)


_CHANNELS_LAST_ORDER = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}


def channels_last_strides(shape: Sizes) -> Shape:
    """Strides of the channels-last format of a 4-d or 5-d shape."""
    return ordered_strides(shape, _CHANNELS_LAST_ORDER[len(shape)])


def is_contiguous(shape: Sizes, stride: Sizes) -> bool:
    """Row-major and dense; strides of size-1 dimensions do not matter, nor any if empty."""
    expected: Size = 1
    good = True
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size == 0:
            return True
        if size != 1:
            good = good and bool(step == expected)
            expected = expected * size
    return good


def is_channels_last(shape: Sizes, stride: Sizes) -> bool:
    """Dense in the channels-last order (4-d and 5-d only)."""
    order = _CHANNELS_LAST_ORDER.get(len(shape))
    if order is None:
        return False
    return is_contiguous([shape[d] for d in order], [stride[d] for d in order])


def suggests_channels_last(meta: TensorMeta) -> bool:
    """Torch's guess at the format meant by the strides, dense or not (`suggest_memory_format`)."""
    order = _CHANNELS_LAST_ORDER.get(meta.ndim)
    if order is None or meta.stride[1] == 0:
        return False
    least: Size = 0
    for dim in reversed(order):
        size, step = meta.shape[dim], meta.stride[dim]
        if size == 0 or surely(step < least):
            return False
        if dim == 0 and least == meta.stride[1]:  # N111 and the like: ambiguous, so contiguous
            return False
        least = step * size if size != 1 else step
    return True


def is_dense(shape: Sizes, stride: Sizes) -> bool:
    """No overlap and no holes: some permutation of the dimensions is contiguous."""
    if is_contiguous(shape, stride):
        return True
    expected: Size = 1
    waiting = [(n, s) for n, s in zip(shape, stride, strict=True) if n != 1]
    while waiting:  # the next dimension outwards is the one with the right stride
        found = next((k for k, (_, step) in enumerate(waiting) if step == expected), None)
        if found is None:
            return False
        expected = expected * waiting.pop(found)[0]
    return True


def elementwise_strides(metas: Sequence[TensorMeta], alike: bool = True) -> Shape:
    """Strides of the result of a pointwise operation on operands of one shape.

    Torch's rule: where they are `alike`, of this shape before anything was broadcast, contiguous or
    channels-last when all operands are; the common strides when they are equal and dense. Else
    dense, with the dimensions sorted by the operands' strides, the first operand that orders two
    dimensions deciding.
    """
    first = metas[0]
    shape = first.shape
    if len(shape) == 0:
        return ()
    if alike and all(is_contiguous(shape, m.stride) for m in metas):
        return contiguous_strides(shape)
    if alike and len(shape) == 4 and all(is_channels_last(shape, m.stride) for m in metas):
        return channels_last_strides(shape)
    if alike and all(m.stride == first.stride for m in metas) and is_dense(shape, first.stride):
        return first.stride
    order = list(range(len(shape) - 1, -1, -1))  # innermost first
    for i in range(1, len(order)):
        moving = i
        for other in range(i - 1, -1, -1):
            verdict = _inner_to_outer(shape, metas, order[other], order[moving])
            if verdict > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif verdict < 0:
                break
    if order == list(range(len(shape) - 1, -1, -1)):
        return contiguous_strides(shape)
    return ordered_strides(shape, order[::-1])


def preserved_strides(meta: TensorMeta) -> Shape:
    """Strides of a copy that keeps the layout: the same if dense, else sorted like them."""
    if is_dense(meta.shape, meta.stride):
        return meta.stride
    return elementwise_strides((meta,), alike=False)


def dense_order(meta: TensorMeta) -> list[int]:
    """Dimensions from outermost to innermost in a copy that keeps the layout."""
    strides = preserved_strides(meta)

    def order(a: int, b: int) -> int:
        if strides[a] != strides[b]:
            return -1 if is_less(strides[b], strides[a]) else 1
        # plain bools of two open sizes, as symbolic ones have no order
        return (bool(meta.shape[a] == 1) - bool(meta.shape[b] == 1)) or a - b

    return sorted(range(meta.ndim), key=functools.cmp_to_key(order))


def _inner_to_outer(shape: Shape, metas: Sequence[TensorMeta], a: int, b: int) -> int:
    """Positive if dimension `a` should lie outside `b`, negative if inside, 0 if it is all one."""
    for meta in metas:
        step_a, step_b = meta.stride[a], meta.stride[b]
        if step_a == 0 or step_b == 0:
            continue
        if is_less(step_a, step_b):
            return -1
        if is_less(step_b, step_a) or surely(shape[a] > shape[b]):
            return 1
    return 0


def view_strides(shape: Shape, stride: Shape, new_shape: Sizes) -> Shape | None:
    """Strides that make `new_shape` a view of (`shape`, `stride`); None if only a copy will do."""
    if product(shape) == 0:
        return stride if tuple(new_shape) == shape else contiguous_strides(new_shape)
    if not shape:
        return (1,) * len(new_shape)
    result: list[Size] = [0] * len(new_shape)
    target = len(new_shape) - 1
    chunk_step = stride[-1]
    chunk: Size = 1
    filled: Size = 1
    for dim in range(len(shape) - 1, -1, -1):
        chunk = chunk * shape[dim]
        chunk_ends = dim == 0 or (shape[dim - 1] != 1 and stride[dim - 1] != chunk * chunk_step)
        if not chunk_ends:
            continue
        while target >= 0 and (surely(filled < chunk) or new_shape[target] == 1):
            result[target] = filled * chunk_step
            filled = filled * new_shape[target]
            target -= 1
        if filled != chunk:
            return None
        if dim > 0:
            chunk_step = stride[dim - 1]
            chunk = filled = 1
    return tuple(result) if target == -1 else None
