"""Symbolic sizes: the operations that they are made of, and the nodes of a graph for them.

In: sizes that are symbols, as shape rules compute them. Out: nodes that compute the same number
when the graph runs: `aten.sym_size` of a tensor that has the symbol, and arithmetic on those.
Invariant: a symbol is only read from a tensor that is in the graph already; an expression that has
no node is `NotYetSymbolic`, never a number.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau_prims._op import NotYetSymbolic
from flambeau_prims._torch_compat import expression_of, symbol_from
from flambeau_prims.shape_rules import TensorMeta

SIZE_OF = torch.ops.aten.sym_size.int


@dataclass(frozen=True, slots=True)
class SizeOperation:
    """What a class of symbolic expressions computes.

    call: of two numbers (of more, from the left): integers, symbols, or expressions of a backend
    that has these operators; `float` is of one. sign: Python's; empty where it has none.
    """

    call: Callable[..., Any]
    sign: str = ""
    of_integers: bool = True


OPERATIONS: Mapping[str, SizeOperation] = {
    "Add": SizeOperation(operator.add, "+"),
    "Mul": SizeOperation(operator.mul, "*"),
    "FloorDiv": SizeOperation(operator.floordiv, "//"),
    "CleanDiv": SizeOperation(operator.floordiv, "//"),
    "Mod": SizeOperation(operator.mod, "%"),
    "PythonMod": SizeOperation(operator.mod, "%"),
    "Max": SizeOperation(torch.sym_max),
    "Min": SizeOperation(torch.sym_min),
    "Pow": SizeOperation(operator.pow, "**", of_integers=False),
    "FloatPow": SizeOperation(operator.pow, "**", of_integers=False),
    "PowByNatural": SizeOperation(operator.pow, "**", of_integers=False),
    "FloatTrueDiv": SizeOperation(operator.truediv, "/", of_integers=False),
    "IntTrueDiv": SizeOperation(operator.truediv, "/", of_integers=False),
    "ToFloat": SizeOperation(float, of_integers=False),
}
"""Symbolic operations by the name of their class, in sympy or torch: the one table of the
primitives and of what compiles them."""

ARITHMETIC = frozenset(each.call for each in OPERATIONS.values() if each.of_integers)
"""Calls that a graph may hold besides operators: they compute sizes."""


def parts_of(expression: Any) -> tuple[SizeOperation, list[Any]]:
    """How a size is computed of other sizes; a power is a product. Raises NotYetSymbolic."""
    name = type(expression).__name__
    if name == "Pow" and expression.args[1].is_Integer and int(expression.args[1]) > 0:
        return OPERATIONS["Mul"], [expression.args[0]] * int(expression.args[1])
    operation = OPERATIONS.get(name)
    if operation is None or not operation.of_integers:
        raise NotYetSymbolic(f"the size {expression} cannot be computed from sizes of the inputs")
    return operation, list(expression.args)


class SizeNodes:
    """Nodes for symbolic sizes, made in `graph` when they are first needed."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._known: dict[Any, fx.Node | tuple[fx.Node, int]] = {}

    def seen(self, node: fx.Node, meta: TensorMeta) -> None:
        """Note that the sizes of a tensor can be read from `node`."""
        for dim, size in enumerate(meta.shape):
            if isinstance(size, torch.SymInt):
                self._known.setdefault(expression_of(size), (node, dim))

    def given(self, node: fx.Node, size: torch.SymInt) -> None:
        """Note that `node` is itself a size."""
        self._known[expression_of(size)] = node

    def node_of(self, size: torch.SymInt) -> fx.Node | int:
        """The node that computes `size`, or the number that it is."""
        expression = expression_of(size)
        return int(expression) if expression.is_number else self._node(expression, size)

    def _node(self, expression: Any, like: torch.SymInt) -> fx.Node:
        known = self._known.get(expression)
        if isinstance(known, fx.Node):
            return known
        if known is not None:
            node = self._call(SIZE_OF, known, expression, like)
        else:
            node = self._computed(expression, like)
        self._known[expression] = node
        return node

    def _computed(self, expression: Any, like: torch.SymInt) -> fx.Node:
        operation, parts = parts_of(expression)

        def operand(part: Any) -> Any:
            return int(part) if part.is_Integer else self._node(part, like)

        def step(left: tuple[Any, Any], part: Any) -> tuple[Any, Any]:
            whole = expression if part is parts[-1] else expression.func(left[0], part)
            return whole, self._call(operation.call, (left[1], operand(part)), whole, like)

        first = parts[0]
        result: fx.Node = functools.reduce(step, parts[1:], (first, operand(first)))[1]
        return result

    def _call(self, target: Any, args: Any, expression: Any, like: torch.SymInt) -> fx.Node:
        node = self._graph.call_function(target, tuple(args))
        node.meta["val"] = symbol_from(expression, like)
        return node
