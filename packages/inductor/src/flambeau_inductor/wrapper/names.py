"""Spelling of a program's values in the wrapper.

In: literals, layouts, arguments of library calls. Out: Python expressions. Invariant: an expression
evaluates to an equal value in the namespace that `load` makes; a symbol is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from flambeau_inductor.indexing import Expr, Size, depends_on_data, to_python
from flambeau_inductor.indexing.expr import factors, floordiv, from_terms, terms_of
from flambeau_inductor.ir.program import Argument, ComputedNumber, Layout, Ref


def sizes(values: Iterable[Size]) -> str:
    """`(8, 32)`."""
    return _tuple([size(value) for value in values])


def strides(shape: Iterable[Size], values: Iterable[Size]) -> str:
    """`(32, 1)`; a size of `shape` that is 0 when it runs counts as 1 in them, as in torch."""
    by_data = [s for s in shape if isinstance(s, Expr) and depends_on_data((s,))]
    return _tuple([_step(value, by_data) for value in values])


def _tuple(numbers: list[str]) -> str:
    return f"({', '.join(numbers)}{',' if len(numbers) == 1 else ''})"


def _step(value: Size, by_data: Iterable[Expr]) -> str:
    if not isinstance(value, Expr) or not depends_on_data((value,)):
        return size(value)
    parts: list[Expr] = []
    for each in by_data:
        while (whole := floordiv(value, each)) * each == value:
            parts.append(each)
            value = whole
    terms, constant = terms_of(value)
    unit = math.gcd(constant, *terms.values())
    rest = from_terms({term: count // unit for term, count in terms.items()}, constant // unit)
    parts += factors(rest)
    return "*".join([str(unit), *(f"({size(part)} or 1)" for part in parts)])


def size(value: Size) -> str:
    """A number, or arithmetic on the names of open sizes."""
    return to_python(value)


def literal(value: object) -> str:
    """A number, string, dtype, device, layout or memory format."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, complex):  # as Python writes them they are sums, which lose signs
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if isinstance(value, torch.device):
        return f"device({str(value)!r})"
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value)
    if isinstance(value, Expr):
        return to_python(value)
    if isinstance(value, ComputedNumber):
        return value.text
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    raise TypeError(f"a {type(value).__name__} cannot be an argument of a library call: {value!r}")


def argument(value: Argument | list[Any]) -> str:
    """An argument of a library call."""
    if isinstance(value, Ref):
        return reference(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(argument(v) for v in value) + "]"
    return literal(value)


def reference(ref: Ref) -> str:
    """A buffer, seen through the reference's layout if it has one."""
    if ref.layout is None:
        return ref.buffer
    shape, stride, offset = (
        sizes(ref.layout.shape),
        strides(ref.layout.shape, ref.layout.stride),
        ref.layout.offset,
    )
    if offset == 0:  # `as_strided` without an offset starts where the tensor does
        return f"{ref.buffer}.as_strided({shape}, {stride})"
    return f"seen_as({ref.buffer}, {shape}, {stride}, {size(offset)})"


def layout(of: Layout) -> str:
    """Shape, strides and dtype as three arguments."""
    return f"{sizes(of.shape)}, {strides(of.shape, of.stride)}, {of.dtype}"
