"""Expressions of sizes: as nodes call them, as Python computes them, as a message says them.

In: sympy's expressions, and results of operators. Out: callables, text, the symbols of a result.
Invariant: what cannot be said raises `Inexpressible`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.guards import Inexpressible
from flambeau_capture.guards.sizes import OPERATIONS

RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Equality": operator.eq,
    "Unequality": operator.ne,
    "LessThan": operator.le,
    "StrictLessThan": operator.lt,
    "GreaterThan": operator.ge,
    "StrictGreaterThan": operator.gt,
}


def leaves_of(result: Any) -> Iterator[Any]:
    """Tensors and symbolic numbers of a result."""
    if isinstance(result, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
        yield result
    elif isinstance(result, tuple | list):
        for item in result:
            yield from leaves_of(item)


def symbols_of(leaf: Any) -> set[Any]:
    """The unbacked symbols of one of those."""
    parts = (*leaf.shape, *leaf.stride()) if isinstance(leaf, torch.Tensor) else (leaf,)
    return set().union(*(compat.own_data_symbols(part) for part in parts))


def owners(node: fx.Node, result: Any) -> Iterator[tuple[Any, tuple[fx.Node, int | None]]]:
    """The symbols that are a size of a tensor, or a number, of a node's result."""
    if isinstance(result, torch.Tensor):
        parts: Iterable[tuple[Any, int | None]] = ((n, dim) for dim, n in enumerate(result.shape))
    else:
        parts = [(result, None)]
    for number, dim in parts:
        if compat.own_data_symbols(number) and compat.expression(number).is_Symbol:
            yield compat.expression(number), (node, dim)


def said_number(number: Any, place: tuple[fx.Node, int | None] | None) -> str:
    """A number that depends on data in words: what made it, and on which line of the program."""
    if place is None:
        return str(number)
    node, dim = place
    name = getattr(node.target, "__name__", str(node.target))
    what = f"the number that {name}() reads" if dim is None else f"a size that {name}() gives"
    lines = [x.strip() for x in node.meta.get("stack_trace", "").splitlines() if x.strip()]
    line = f" at `{lines[-1]}`" if lines else ""
    exact = compat.expression(number).is_Symbol
    return f"{'' if exact else 'what is computed of '}{what}{line}"


def python_text(expr: Any, names: Mapping[Any, str]) -> str:
    """An integer expression as Python computes it."""
    if expr.is_Integer:
        return f"({int(expr)})"
    if expr.is_Symbol:
        return names[expr]
    if call_of(expr) is operator.pow:
        return f"({python_text(expr.args[0], names)} ** {int(expr.args[1])})"
    return OPERATIONS[type(expr).__name__].text([python_text(part, names) for part in expr.args])


def call_of(expr: Any) -> Callable[[Any, Any], Any]:
    """What a node calls for an expression, one operand after the other."""
    kind = type(expr).__name__
    if kind == "Pow" and expr.args[1].is_Integer and int(expr.args[1]) > 0:
        return operator.pow
    if kind in ("Max", "Min"):  # Python's own would ask which is the larger
        return torch.sym_max if kind == "Max" else torch.sym_min
    call = OPERATIONS[kind].call if kind in OPERATIONS else None
    if call is None:
        raise Inexpressible(f"{kind} in {expr}")
    return call
