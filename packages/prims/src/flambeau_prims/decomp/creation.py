"""Decompositions of tensor creation.

In: ATen's factory operations. Out: `full` and `iota`.
Invariant: dtype and device are made explicit; `*_like` keeps the layout of its model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._torch_compat import OpOverload, fills_uninitialized_memory
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, Operand, p
from flambeau_prims.decomp.linalg.solve import difference
from flambeau_prims.decomposition_table import (
    TABLE,
    Arguments,
    Decomposition,
    by_name,
    decomposition,
    overloads,
)
from flambeau_prims.ops.pointwise import REAL
from flambeau_prims.promotion import number_dtype, to_float
from flambeau_prims.shape_rules import Size, Sizes, TensorMeta, dense_order, is_dense

aten = torch.ops.aten
Dtype = torch.dtype | None
Device = torch.device | None
Format = torch.memory_format | None


_OPTIONS = ("self", "size", "dtype", "layout", "device", "pin_memory", "names", "memory_format")


def factory(
    *ops: OpOverload, table: dict[OpOverload, Decomposition] = TABLE
) -> Callable[[Callable[[Arguments], Any]], Callable[[Arguments], Any]]:
    """Register a decomposition that need not know of layouts and pinned memory: tensors that are
    not strided, or pinned, or have names, stay with ATen. The device that it finds is the one
    given, its model's, or torch's default one."""

    def register(function: Callable[[Arguments], Any]) -> Callable[[Arguments], Any]:
        @by_name(*ops, absent=_OPTIONS, table=table)
        def call(a: Arguments) -> Any:
            if a.names is not None or a.pin_memory or a.layout not in (None, torch.strided):
                return NotImplemented
            a.device = home(a.device if a.device or a.self is None else a.self.device)
            return function(a)

        return function

    return register


def home(device: Device) -> torch.device:
    """The device given, or torch's default one."""
    return torch.get_default_device() if device is None else torch.device(device)


def kind_of(a: Arguments) -> torch.dtype:
    """The dtype given, the model's, or torch's default one."""
    return a.dtype or (torch.get_default_dtype() if a.self is None else a.self.dtype)  # type: ignore[no-any-return]


def _in_layout(
    model: Tensor, value: Number, dtype: Dtype, device: Device, memory_format: Format
) -> Tensor:
    """`value` everywhere, laid out as `model`, or in the memory format if one is given."""
    kwargs = {"dtype": dtype or model.dtype, "device": device or model.device}
    if memory_format not in (None, torch.preserve_format):
        return e.in_format(p.full(list(model.shape), value, **kwargs), memory_format)
    if e.contiguous(model):
        return e.laid_out_as(model, p.full(list(model.shape), value, **kwargs))
    order = e.layout_order(model)
    dense = p.full([model.shape[d] for d in order], value, **kwargs)
    return e.laid_out_as(model, p.permute(dense, [order.index(d) for d in range(model.ndim)]))


def _anything(dtype: torch.dtype) -> Number:
    """What an `empty` holds: it is undefined, so zeros are as good as anything, but where torch
    fills what is not initialized: with NaN, or with the largest integer."""
    if not fills_uninitialized_memory():
        return 0
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return True if dtype == torch.bool else torch.iinfo(dtype).max


# What tensors hold that are made plain, `_like` a model or `new_` with its dtype and device, by the
# name of ATen's operation: of its arguments and the dtype.
_CONTENTS: dict[str, Callable[[Arguments, torch.dtype], Number]] = {
    "zeros": lambda a, kind: 0,
    "_efficientzerotensor": lambda a, kind: 0,  # no kernel could be given memory that is not there
    "ones": lambda a, kind: 1,
    "empty": lambda a, kind: _anything(kind),
    "full": lambda a, kind: e.fitting(a.fill_value, kind),
}


def _register_filled(name: str, value: Callable[[Arguments, torch.dtype], Number]) -> None:
    names = (name, f"{name}_like", f"new_{name}")

    @factory(*(op for each in names for op in overloads(each, "default", "memory_format")))
    def make(a: Arguments) -> Any:
        plain = name == "full" and a.self is None and a.dtype is None
        kind = number_dtype(a.fill_value) if plain else kind_of(a)
        if a.size is None:
            return _in_layout(a.self, value(a, kind), kind, a.device, a.memory_format)
        whole = p.full(list(a.size), value(a, kind), dtype=kind, device=a.device)
        return e.in_format(whole, a.memory_format)


for _name, _value in _CONTENTS.items():
    _register_filled(_name, _value)


@factory(aten.empty_strided.default, aten.new_empty_strided.default)
def empty_strided(a: Arguments) -> Any:
    size, stride, kind = a.size, a.stride, kind_of(a)
    empty = any(n == 0 for n in size)  # and may have any strides
    if empty or not is_dense(size, stride):  # or elements are shared, or left out between others
        last: Size = 0 if empty else sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        storage = p.full([last + 1], _anything(kind), dtype=kind, device=a.device)
        return p.as_strided(storage, list(size), list(stride), 0)
    order = dense_order(TensorMeta(tuple(size), tuple(stride), kind, a.device))
    return _permuted(size, order, kind, a.device)


def _permuted(
    size: Sizes, order: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Tensor:
    dense = p.full([size[d] for d in order], _anything(dtype), dtype=dtype, device=device)
    return p.permute(dense, [list(order).index(d) for d in range(len(size))])


@factory(aten.empty_permuted.default)
def empty_permuted(a: Arguments) -> Any:
    return _permuted(a.size, a.physical_layout, kind_of(a), a.device)


@decomposition(aten.fill.Scalar, aten.fill.Tensor)
def fill(x: Tensor, value: Operand) -> Any:
    if e.is_number(value):
        return _in_layout(x, e.fitting(value, x.dtype), None, None, None)  # type: ignore[arg-type]
    if value.ndim:  # type: ignore[union-attr]
        return NotImplemented  # eager has the message
    if value.device != x.device:  # type: ignore[union-attr]
        value = p.device_put(value, device=x.device)  # a 0-d CPU tensor, as eager allows
    wide = e.expand(e.cast(value, x.dtype), x.shape)  # type: ignore[arg-type]
    return e.laid_out_as(x, p.clone(wide, order=e.layout_order(x)))


@decomposition(aten.zero.default)
def zero(x: Tensor) -> Tensor:
    return _in_layout(x, 0, None, None, None)


@factory(aten.scalar_tensor.default)
def scalar_tensor(a: Arguments) -> Any:
    return p.full([], a.s, dtype=kind_of(a), device=a.device)


def _runs_forward(start: Any, end: Any, step: Any) -> bool:
    """Whether a range counts up. One whose end lies the other way is refused as eager refuses it;
    a graph of open numbers is for the direction found here."""
    if step == 0:
        raise RuntimeError("step must be nonzero")
    forward = bool(step > 0)
    if not (end >= start if forward else end <= start):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    return forward


@factory(aten.arange.default, aten.arange.start, aten.arange.start_step)
def arange(a: Arguments) -> Any:
    if a.dtype is not None and a.dtype not in REAL:
        return NotImplemented  # eager has the message
    start, end, dtype = 0 if a.start is None else a.start, a.end, a.dtype
    step = 1 if a.step is None else a.step
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
    return p.iota(length, start, step, dtype=dtype, device=a.device)


@factory(aten.range.default, aten.range.step)
def range_(a: Arguments) -> Any:
    """The old form of `arange`, which includes the end."""
    start, end, step = a.start, a.end, 1 if a.step is None else a.step
    _runs_forward(start, end, step)
    length = int((float(end) - float(start)) / float(step) // 1) + 1
    return p.iota(length, start, step, dtype=kind_of(a), device=a.device)


@factory(aten.eye.default, aten.eye.m)
def eye(a: Arguments) -> Any:
    place = difference(a.n, a.n if a.m is None else a.m, a.device)
    return p.cast(e.eq(place, 0), dtype=a.dtype or to_float(torch.bool))


def _triangle(a: Arguments, lower: bool) -> Tensor:
    """Positions (2, n) of a triangle's elements, row by row, without looking at any matrix."""
    rows, columns, offset, dtype = a.row, a.col, a.offset, a.dtype or torch.int64
    # the columns of row i are below `stop` (lower) or from `begin` on (upper)
    edge = e.counted(rows, a.device, offset + (1 if lower else 0))
    edge = e.minimum(e.maximum(edge, 0), columns)
    length = edge if lower else e.sub(columns, edge)
    steps = range(offset + (1 if lower else 0), offset + (1 if lower else 0) + rows)
    inside = [min(max(s, 0), columns) for s in steps]
    count = sum(inside) if lower else rows * columns - sum(inside)
    if count == 0:
        return p.full([2, 0], 0, dtype=dtype, device=a.device)
    ends = p.cumsum(length, 0)
    number = e.counted(count, a.device)
    row = p.searchsorted(ends, number, True)
    starts = p.sub(ends, length)
    column = p.sub(number, p.index_select(starts, 0, row))
    if not lower:
        column = p.add(column, p.index_select(edge, 0, row))
    both = p.cat([p.reshape(row, [1, count]), p.reshape(column, [1, count])], 0)
    return e.cast(both, dtype)


def _refused_for_positions(a: Arguments) -> bool:
    """Whether eager's kernel for a CPU takes no numbers of this dtype for positions."""
    return torch.device(a.device or "cpu").type == "cpu" and a.dtype not in (
        None,
        torch.int32,
        torch.int64,
    )


@factory(aten.tril_indices.default)
def tril_indices(a: Arguments) -> Any:
    return NotImplemented if _refused_for_positions(a) else _triangle(a, lower=True)


@factory(aten.triu_indices.default)
def triu_indices(a: Arguments) -> Any:
    if _refused_for_positions(a):
        return NotImplemented
    return _triangle(a, lower=False)
