"""Decompositions of tensor creation.

In: ATen's factory operations. Out: `full` and `iota`.
Invariant: dtype and device are made explicit; `*_like` keeps the layout of its model.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._torch_compat import OpOverload, fills_uninitialized_memory
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, Operand, p
from flambeau_prims.decomp.linalg.matrices import difference
from flambeau_prims.decomposition_table import TABLE, Decomposition, decomposition
from flambeau_prims.layout import Size, Sizes, TensorMeta, dense_order, is_dense
from flambeau_prims.promotion import number_dtype, to_float

aten = torch.ops.aten
Dtype = torch.dtype | None
Device = torch.device | None
Format = torch.memory_format | None


def factory(
    *ops: OpOverload, table: dict[OpOverload, Decomposition] = TABLE
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a decomposition that need not know of layouts and pinned memory.

    Those that are not strided, or pinned, or have names, stay with ATen.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(
            *args: Any,
            names: Any = None,
            layout: torch.layout | None = None,
            pin_memory: bool | None = None,
            **kwargs: Any,
        ) -> Any:
            if names is not None or pin_memory or layout not in (None, torch.strided):
                return NotImplemented
            return function(*args, **kwargs)

        decomposition(*ops, table=table)(call)
        return function

    return register


def home(device: Device) -> torch.device:
    """The device given, or torch's default one."""
    return torch.get_default_device() if device is None else torch.device(device)


def filled(shape: Sizes, value: Number, dtype: Dtype, device: Device) -> Tensor:
    """A row-major tensor of `value`; dtype and device default as in torch."""
    return p.full(list(shape), value, dtype=dtype or torch.get_default_dtype(), device=home(device))


def _in_layout(
    model: Tensor, value: Number, dtype: Dtype, device: Device, memory_format: Format
) -> Tensor:
    """`value` everywhere, laid out as `model`, or in the memory format if one is given."""
    kwargs = {"dtype": dtype or model.dtype, "device": device or model.device}
    if memory_format not in (None, torch.preserve_format):
        return e.in_format(p.full(list(model.shape), value, **kwargs), memory_format)
    if e.contiguous(model):
        return p.full(list(model.shape), value, **kwargs)
    order = e.layout_order(model)
    dense = p.full([model.shape[d] for d in order], value, **kwargs)
    return p.permute(dense, [order.index(d) for d in range(model.ndim)])


Content = Callable[[torch.dtype], Number]


def _make_plain(value: Content) -> Any:
    def call(
        size: Sizes, *, dtype: Dtype = None, device: Device = None, memory_format: Format = None
    ) -> Any:
        kind = dtype or torch.get_default_dtype()
        return e.in_format(filled(size, value(kind), kind, device), memory_format)

    return call


def _make_like(value: Content) -> Any:
    def call(
        x: Tensor, *, dtype: Dtype = None, device: Device = None, memory_format: Format = None
    ) -> Any:
        return _in_layout(x, value(dtype or x.dtype), dtype, device, memory_format)

    return call


def _make_new(value: Content) -> Any:
    def call(x: Tensor, size: Sizes, *, dtype: Dtype = None, device: Device = None) -> Any:
        kind = dtype or x.dtype
        return filled(size, value(kind), kind, device or x.device)

    return call


def _zero(dtype: torch.dtype) -> Number:
    return 0


def _one(dtype: torch.dtype) -> Number:
    return 1


def _anything(dtype: torch.dtype) -> Number:
    """What an `empty` holds: it is undefined, so zeros are as good as anything, but where torch
    fills what is not initialized: with NaN, or with the largest integer."""
    if not fills_uninitialized_memory():
        return 0
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return True if dtype == torch.bool else torch.iinfo(dtype).max


# Zeros that have no memory are zeros: no kernel could be given the memory that is not there.
factory(aten.zeros.default, aten._efficientzerotensor.default)(_make_plain(_zero))
factory(aten.empty.memory_format)(_make_plain(_anything))
factory(aten.empty_like.default)(_make_like(_anything))
factory(aten.new_empty.default)(_make_new(_anything))
factory(aten.ones.default)(_make_plain(_one))
factory(aten.zeros_like.default)(_make_like(_zero))
factory(aten.ones_like.default)(_make_like(_one))
factory(aten.new_zeros.default)(_make_new(_zero))
factory(aten.new_ones.default)(_make_new(_one))


@factory(aten.full.default)
def full(size: Sizes, fill_value: Number, *, dtype: Dtype = None, device: Device = None) -> Any:
    kind = dtype or number_dtype(fill_value)
    return filled(size, e.fitting(fill_value, kind), kind, device)


@factory(aten.full_like.default)
def full_like(
    x: Tensor,
    fill_value: Number,
    *,
    dtype: Dtype = None,
    device: Device = None,
    memory_format: Format = None,
) -> Any:
    return _in_layout(x, e.fitting(fill_value, dtype or x.dtype), dtype, device, memory_format)


@factory(aten.new_full.default)
def new_full(
    x: Tensor, size: Sizes, fill_value: Number, *, dtype: Dtype = None, device: Device = None
) -> Any:
    kind = dtype or x.dtype
    return filled(size, e.fitting(fill_value, kind), kind, device or x.device)


def _with_strides(size: Sizes, stride: Sizes, dtype: Dtype, device: Device) -> Tensor:
    at, kind = home(device), dtype or torch.get_default_dtype()
    if not is_dense(size, stride):  # elements are shared, or left out between others
        empty = any(n == 0 for n in size)
        last: Size = 0 if empty else sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        storage = p.full([last + 1], _anything(kind), dtype=kind, device=at)
        return p.as_strided(storage, list(size), list(stride), 0)
    order = dense_order(TensorMeta(tuple(size), tuple(stride), kind, at))
    return _permuted(size, order, kind, at)


def _permuted(
    size: Sizes, order: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Tensor:
    dense = p.full([size[d] for d in order], _anything(dtype), dtype=dtype, device=device)
    return p.permute(dense, [list(order).index(d) for d in range(len(size))])


@factory(aten.empty_strided.default)
def empty_strided(size: Sizes, stride: Sizes, *, dtype: Dtype = None, device: Device = None) -> Any:
    return _with_strides(size, stride, dtype, device)


@factory(aten.new_empty_strided.default)
def new_empty_strided(
    x: Tensor, size: Sizes, stride: Sizes, *, dtype: Dtype = None, device: Device = None
) -> Any:
    return _with_strides(size, stride, dtype or x.dtype, device or x.device)


@factory(aten.empty_permuted.default)
def empty_permuted(
    size: Sizes, physical_layout: Sequence[int], *, dtype: Dtype = None, device: Device = None
) -> Any:
    return _permuted(size, physical_layout, dtype or torch.get_default_dtype(), home(device))


@decomposition(aten.fill.Scalar, aten.fill.Tensor)
def fill(x: Tensor, value: Operand) -> Tensor:
    if e.is_number(value):
        return _in_layout(x, e.fitting(value, x.dtype), None, None, None)  # type: ignore[arg-type]
    if value.device != x.device:  # type: ignore[union-attr]
        value = p.device_put(value, device=x.device)  # a 0-d CPU tensor, as eager allows
    wide = e.expand(e.cast(value, x.dtype), x.shape)  # type: ignore[arg-type]
    return p.clone(wide) if e.contiguous(x) else p.clone(wide, order=e.layout_order(x))


@decomposition(aten.zero.default)
def zero(x: Tensor) -> Tensor:
    return _in_layout(x, 0, None, None, None)


@factory(aten.scalar_tensor.default)
def scalar_tensor(s: Number, *, dtype: Dtype = None, device: Device = None) -> Any:
    return filled([], s, dtype or torch.get_default_dtype(), device)


def _runs_forward(start: Any, end: Any, step: Any) -> bool:
    """Whether a range counts up. One whose end lies the other way is refused as eager refuses it;
    a graph of open numbers is for the direction found here."""
    if step == 0:
        raise RuntimeError("step must be nonzero")
    forward = bool(step > 0)
    if not (end >= start if forward else end <= start):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    return forward


def _range(start: Any, end: Any, step: Any, dtype: Dtype, device: Device) -> Tensor:
    numbers = [start, end, step]
    if dtype is None:
        whole = all(isinstance(n, (int, torch.SymInt)) for n in numbers)
        dtype = torch.int64 if whole else torch.get_default_dtype()
    elif dtype == torch.int64:  # eager counts in the result's dtype
        numbers = [n if isinstance(n, torch.SymInt) else int(n) for n in numbers]
        start, end, step = numbers
    forward = _runs_forward(start, end, step)
    if all(isinstance(n, (int, torch.SymInt)) for n in numbers):
        # of distances that are not negative, as sizes are known to be wherever a kernel divides
        length = (end - start + step - 1) // step if forward else (start - end - step - 1) // -step
    else:
        span = (float(end) - float(start)) / float(step)
        length = int(-(-span // 1))  # rounded up
    return p.iota(length, start, step, dtype=dtype, device=home(device))


@factory(aten.arange.default)
def arange(end: Any, *, dtype: Dtype = None, device: Device = None) -> Any:
    return _range(0, end, 1, dtype, device)


@factory(aten.arange.start, aten.arange.start_step)
def arange_from(
    start: Any, end: Any, step: Any = 1, *, dtype: Dtype = None, device: Device = None
) -> Any:
    return _range(start, end, step, dtype, device)


@factory(aten.range.default, aten.range.step)
def range_(
    start: Any, end: Any, step: Any = 1, *, dtype: Dtype = None, device: Device = None
) -> Any:
    """The old form of `arange`, which includes the end."""
    _runs_forward(start, end, step)
    length = int((float(end) - float(start)) / float(step) // 1) + 1
    return p.iota(
        length, start, step, dtype=dtype or torch.get_default_dtype(), device=home(device)
    )


@factory(aten.eye.default, aten.eye.m)
def eye(n: Size, m: Size | None = None, *, dtype: Dtype = None, device: Device = None) -> Any:
    place = difference(n, n if m is None else m, home(device))
    return p.cast(e.eq(place, 0), dtype=dtype or to_float(torch.bool))


def _triangle(
    rows: int, columns: int, offset: int, lower: bool, dtype: Dtype, device: Device
) -> Tensor:
    """Positions (2, n) of a triangle's elements, row by row, without looking at any matrix."""
    i64: Any = {"dtype": torch.int64, "device": home(device)}
    # the columns of row i are below `stop` (lower) or from `begin` on (upper)
    edge = p.iota(rows, offset + (1 if lower else 0), 1, **i64)
    edge = e.minimum(e.maximum(edge, 0), columns)
    length = edge if lower else e.sub(columns, edge)
    steps = range(offset + (1 if lower else 0), offset + (1 if lower else 0) + rows)
    inside = [min(max(s, 0), columns) for s in steps]
    count = sum(inside) if lower else rows * columns - sum(inside)
    if count == 0:
        return p.full([2, 0], 0, dtype=dtype or torch.int64, device=home(device))
    ends = p.cumsum(length, 0)
    number = p.iota(count, 0, 1, **i64)
    row = p.searchsorted(ends, number, True)
    starts = p.sub(ends, length)
    column = p.sub(number, p.index_select(starts, 0, row))
    if not lower:
        column = p.add(column, p.index_select(edge, 0, row))
    both = p.cat([p.reshape(row, [1, count]), p.reshape(column, [1, count])], 0)
    return e.cast(both, dtype or torch.int64)


@factory(aten.tril_indices.default)
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Dtype = torch.int64, device: Device = None
) -> Any:
    return _triangle(row, col, offset, True, dtype, device)


@factory(aten.triu_indices.default)
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Dtype = torch.int64, device: Device = None
) -> Any:
    return _triangle(row, col, offset, False, dtype, device)
