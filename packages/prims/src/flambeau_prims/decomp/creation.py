"""Tensors out of numbers.

In: ATen's factory operations. Out: `full` and `iota`.
Invariant: dtype and device are made explicit; `*_like` keeps the layout of its model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, Operand, p
from flambeau_prims.layout import Size, TensorMeta, dense_order, is_dense
from flambeau_prims.promotion import number_dtype, to_float
from flambeau_prims.table import decomposition

aten = torch.ops.aten
Dtype = torch.dtype | None
Device = torch.device | None
Format = torch.memory_format | None


def _strided(layout: torch.layout | None, pin_memory: bool | None) -> bool:
    return layout in (None, torch.strided) and not pin_memory


def _device(device: Device) -> torch.device:
    return torch.get_default_device() if device is None else torch.device(device)


def filled(shape: Sequence[Size], value: Number, dtype: Dtype, device: Device) -> Tensor:
    """A row-major tensor of `value`; dtype and device default as in torch."""
    return p.full(
        list(shape), value, dtype=dtype or torch.get_default_dtype(), device=_device(device)
    )


def _make_plain(value: Number) -> Any:
    def call(
        size: Sequence[Size],
        *,
        names: Any = None,
        dtype: Dtype = None,
        layout: torch.layout | None = None,
        device: Device = None,
        pin_memory: bool | None = None,
        memory_format: Format = None,
    ) -> Any:
        if names is not None or not _strided(layout, pin_memory):
            return NotImplemented
        result = filled(size, value, dtype, device)
        return e.in_format(result, memory_format)

    return call


# What an `empty` holds is undefined, so zeros are as good as anything.
decomposition(aten.zeros.default, aten.empty.memory_format)(_make_plain(0))
decomposition(aten.ones.default)(_make_plain(1))


@decomposition(aten.full.default)
def full(
    size: Sequence[Size],
    fill_value: Number,
    *,
    dtype: Dtype = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> Any:
    if not _strided(layout, pin_memory):
        return NotImplemented
    return filled(size, fill_value, dtype or number_dtype(fill_value), device)


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


def _make_like(value: Number) -> Any:
    def call(
        x: Tensor,
        *,
        dtype: Dtype = None,
        layout: torch.layout | None = None,
        device: Device = None,
        pin_memory: bool | None = None,
        memory_format: Format = None,
    ) -> Any:
        if not _strided(layout, pin_memory):
            return NotImplemented
        return _in_layout(x, value, dtype, device, memory_format)

    return call


decomposition(aten.zeros_like.default, aten.empty_like.default)(_make_like(0))
decomposition(aten.ones_like.default)(_make_like(1))


@decomposition(aten.full_like.default)
def full_like(
    x: Tensor,
    fill_value: Number,
    *,
    dtype: Dtype = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
    memory_format: Format = None,
) -> Any:
    if not _strided(layout, pin_memory):
        return NotImplemented
    return _in_layout(x, fill_value, dtype, device, memory_format)


def _make_new(value: Number) -> Any:
    def call(
        x: Tensor,
        size: Sequence[Size],
        *,
        dtype: Dtype = None,
        layout: torch.layout | None = None,
        device: Device = None,
        pin_memory: bool | None = None,
    ) -> Any:
        if not _strided(layout, pin_memory):
            return NotImplemented
        return filled(size, value, dtype or x.dtype, device or x.device)

    return call


decomposition(aten.new_zeros.default, aten.new_empty.default)(_make_new(0))
decomposition(aten.new_ones.default)(_make_new(1))


def _with_strides(
    size: Sequence[Size], stride: Sequence[Size], dtype: Dtype, device: Device
) -> Any:
    if not is_dense(size, stride):
        return NotImplemented
    device = _device(device)
    dtype = dtype or torch.get_default_dtype()
    order = dense_order(TensorMeta(tuple(size), tuple(stride), dtype, device))
    dense = p.full([size[d] for d in order], 0, dtype=dtype, device=device)
    return p.permute(dense, [order.index(d) for d in range(len(size))])


@decomposition(aten.empty_strided.default)
def empty_strided(
    size: Sequence[Size],
    stride: Sequence[Size],
    *,
    dtype: Dtype = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> Any:
    if not _strided(layout, pin_memory):
        return NotImplemented
    return _with_strides(size, stride, dtype, device)


@decomposition(aten.new_empty_strided.default)
def new_empty_strided(
    x: Tensor,
    size: Sequence[Size],
    stride: Sequence[Size],
    *,
    dtype: Dtype = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> Any:
    if not _strided(layout, pin_memory):
        return NotImplemented
    return _with_strides(size, stride, dtype or x.dtype, device or x.device)


@decomposition(aten.new_full.default)
def new_full(
    x: Tensor,
    size: Sequence[Size],
    fill_value: Number,
    *,
    dtype: Dtype = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> Any:
    if not _strided(layout, pin_memory):
        return NotImplemented
    return filled(size, fill_value, dtype or x.dtype, device or x.device)


@decomposition(aten.fill.Scalar, aten.fill.Tensor)
def fill(x: Tensor, value: Operand) -> Tensor:
    if e.is_number(value):
        return _in_layout(x, value, None, None, None)  # type: ignore[arg-type]
    wide = e.expand(e.cast(value, x.dtype), x.shape)  # type: ignore[arg-type]
    return p.clone(wide) if e.contiguous(x) else p.clone(wide, order=e.layout_order(x))


@decomposition(aten.zero.default)
def zero(x: Tensor) -> Tensor:
    return _in_layout(x, 0, None, None, None)


@decomposition(aten.scalar_tensor.default)
def scalar_tensor(
    s: Number,
    *,
    dtype: Dtype = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> Any:
    if not _strided(layout, pin_memory):
        return NotImplemented
    return filled([], s, dtype or torch.get_default_dtype(), device)


def _range(start: Any, end: Any, step: Any, dtype: Dtype, device: Device) -> Tensor:
    numbers = [start, end, step]
    if dtype is None:
        whole = all(isinstance(n, (int, torch.SymInt)) for n in numbers)
        dtype = torch.int64 if whole else torch.get_default_dtype()
    elif dtype == torch.int64:  # eager counts in the dtype asked for
        numbers = [n if isinstance(n, torch.SymInt) else int(n) for n in numbers]
        start, end, step = numbers
    if all(isinstance(n, (int, torch.SymInt)) for n in numbers):
        length = (end - start + step - (1 if step > 0 else -1)) // step
    else:
        span = (float(end) - float(start)) / float(step)
        length = int(-(-span // 1))  # rounded up
    length = 0 if length < 0 else length
    return p.iota(length, start, step, dtype=dtype, device=_device(device))


@decomposition(aten.arange.default)
def arange(
    end: Any,
    *,
    dtype: Dtype = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> Any:
    return arange_from(0, end, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)


@decomposition(aten.arange.start, aten.arange.start_step)
def arange_from(
    start: Any,
    end: Any,
    step: Any = 1,
    *,
    dtype: Dtype = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> Any:
    if not _strided(layout, pin_memory):
        return NotImplemented
    return _range(start, end, step, dtype, device)


@decomposition(aten.eye.default, aten.eye.m)
def eye(
    n: Size,
    m: Size | None = None,
    *,
    dtype: Dtype = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> Any:
    if not _strided(layout, pin_memory):
        return NotImplemented
    columns = n if m is None else m
    i64: Any = {"dtype": torch.int64, "device": _device(device)}
    row = p.broadcast_in_dim(p.iota(n, 0, 1, **i64), [n, columns], [0])
    column = p.broadcast_in_dim(p.iota(columns, 0, 1, **i64), [n, columns], [1])
    return p.cast(p.eq(row, column), dtype=dtype or to_float(torch.bool))
