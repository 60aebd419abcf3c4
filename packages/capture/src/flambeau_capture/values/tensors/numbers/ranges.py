"""Ranges of floats that depend on data.

In: a number, and how the program has computed it. Out: the least and the greatest finite number
that it can be; it may be infinite, or no number, besides. Invariant: arithmetic on floats is
monotone with its rounding, so what comes of the ends of ranges bounds what comes of all between;
open numbers are in the range that a guard gives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.tensors.symbolic_numbers import BY_PYTHON, SymbolValue, are_within

Range = tuple[float, float]
_ANY: Range = (-math.inf, math.inf)
_STEPS = 16
"""Operations that are followed back."""
_GUARDED = (1e30, 1e20, 1e6, 1.0)
"""The size of an open number that a guard sees to: the first of these that is enough."""


def note_computation(tx: Tracer, made: Value | None, symbol: str, *operands: Value) -> Value | None:
    """Note how a number that depends on data was computed; the number."""
    if isinstance(made, SymbolValue):
        tx.shapes.computations[compat.expression(made.number)] = symbol, operands
    return made


def is_certain(tx: Tracer, value: Value, holds: Callable[[float, float], bool]) -> bool:
    """Whether something holds of the finite numbers from the least to the largest that a number can
    be, of which a guard on open numbers of the program may be a condition."""
    for most in _GUARDED:
        opened: list[SymbolValue] = []
        if holds(*_range_of(tx, value, most, opened)) and are_within(tx, opened, -most, most):
            return True
        if not opened:
            return False
    return False


def _range_of(
    tx: Tracer, value: Value, most: float, opened: list[SymbolValue], steps: int = _STEPS
) -> Range:
    """The finite numbers that a number can be, where open ones of the program, which are noted, are
    no larger than `most`."""
    if not isinstance(value, SymbolValue):
        known = value.as_python() if isinstance(value, Constant) else math.nan
        return (float(known), float(known)) if _is_number(known) else _ANY
    if not value.by_data:
        return _within(tx, value, most, opened)
    symbol, operands = tx.shapes.computations.get(compat.expression(value.number), ("", ()))
    if not operands or not steps:
        return _of_dtype(value)
    ranges = [_range_of(tx, each, most, opened, steps - 1) for each in operands]
    if symbol == "abs":
        return 0.0, max(map(abs, ranges[0]))
    if symbol == "/":
        divisor = _with_infinite(ranges[1], operands[1])
        if divisor[0] <= 0.0 <= divisor[1]:
            return _ANY
        ranges[1] = divisor
    if symbol in ("max", "min"):
        extreme = max if symbol == "max" else min
        return extreme(ranges[0][0], ranges[1][0]), extreme(ranges[0][1], ranges[1][1])
    ends = [BY_PYTHON[symbol](*pair) for pair in product(*ranges)]
    return _ANY if any(map(math.isnan, ends)) else (min(ends), max(ends))


def _is_number(known: Any) -> bool:
    return type(known) in (int, float) and abs(known) < 1e300  # not what is no number


def _within(tx: Tracer, value: SymbolValue, most: float, opened: list[SymbolValue]) -> Range:
    """Of an open number of the program, what a guard can say."""
    if not isinstance(value.number, torch.SymFloat) or value.source is None:
        return _ANY
    if abs(tx.shapes.present(value.number)) > most:
        return _ANY
    opened.append(value)
    return -most, most


def _with_infinite(of: Range, value: Value) -> Range:
    """A range with the infinite numbers at the ends that data may reach."""
    if not isinstance(value, SymbolValue) or not value.by_data:
        return of
    return (of[0] if of[0] > 0 else -math.inf), (of[1] if of[1] < 0 else math.inf)


def _of_dtype(value: SymbolValue) -> Range:
    """Of a number that is read off a tensor, what its dtype can hold."""
    node = value.graph_argument()
    if not isinstance(node, fx.Node) or node.target != "item":
        return _ANY
    (read_off,) = node.all_input_nodes
    return limits(read_off.meta["val"].dtype) or _ANY


def limits(dtype: torch.dtype) -> Range | None:
    """The least and the largest number of a dtype; None where these are all that Python has."""
    if dtype in (torch.bool, torch.float64) or dtype.is_complex:
        return None
    found = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return float(found.min), float(found.max)
