"""Canonical numbering of a graph's dynamic shapes, the same in every process.

In: a captured graph whose placeholders' fake values hold symbols. Out: their text for a key; what a
compile has assumed about them, as data; and the same assumed again in another process. Invariant:
`assume` brings the graph's shape environment to where the compile left it that `learnt` describes,
so that whoever guards the environment guards the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from flambeau_aot.sizes import OPERATIONS, has_symbols, is_symbolic
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.cache.graph_data import CannotKey
from flambeau.packaging.guard_expressions import Tree, first_broken


class GraphSymbols:
    """The symbols of one graph, in the order of its placeholders' sizes and strides."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.placeholders = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
        numbers = [part for value in self.placeholders for part in _numbers(value)]
        self.environment = compat.environment_of(numbers[0])
        self.symbols: list[Any] = []
        for number in numbers:
            expression = compat.expression_of(number)
            for symbol in sorted(expression.free_symbols, key=str):
                if symbol not in self.symbols:
                    self.symbols.append(symbol)
        self._numbers = {symbol: number for number, symbol in enumerate(self.symbols)}
        self._values = compat.values_of(self.environment)
        unknown = [symbol for symbol in self.symbols if symbol not in self._values]
        if unknown:
            raise CannotKey(f"a size that depends on data ({unknown[0]})")

    def values(self) -> list[int | float]:
        """What the symbols are in this call."""
        return [
            int(value) if value.is_integer else float(value)
            for value in (self._values[symbol] for symbol in self.symbols)
        ]

    def tree(self, expression: Any) -> Tree:
        """An expression as data. Raises CannotKey."""
        if expression.is_Symbol:
            if expression not in self._numbers:
                raise CannotKey(f"a condition on {expression}, no size of the graph's inputs")
            return ["s", self._numbers[expression]]
        if expression.is_Integer:
            return int(expression)
        if expression.is_Float:
            return ["float", repr(float(expression))]
        if expression.is_Rational:
            return ["Rational", int(expression.p), int(expression.q)]
        name = type(expression).__name__
        if name not in OPERATIONS:
            raise CannotKey(f"a size or condition with {name} in {expression}")
        return [name, *map(self.tree, expression.args)]

    def size(self, number: Any) -> Tree:
        """A size as data. Raises CannotKey."""
        return self.tree(compat.expression_of(number)) if is_symbolic(number) else int(number)

    def expression(self, tree: Tree) -> Any:
        """The expression of `tree`'s data over this graph's symbols."""
        if isinstance(tree, int):
            return compat.symbolic("Integer")(tree)
        name, *parts = tree
        if name == "s":
            return self.symbols[parts[0]]
        if name == "float":
            return compat.symbolic("Float")(float(parts[0]))
        return compat.symbolic(name)(*map(self.expression, parts))

    def described(self, value: Any) -> str:
        """A placeholder's sizes, strides and offset, or number, for a key. Raises CannotKey."""
        if isinstance(value, torch.Tensor):
            parts = [value.shape, value.stride(), [value.storage_offset()]]
            return " | ".join(" ".join(map(self.described, part)) for part in parts)
        symbolic = is_symbolic(value)
        return str(self.tree(compat.expression_of(value))) if symbolic else repr(value)

    def text(self) -> str:
        """What is known of the symbols before the compile; not their values. Raises CannotKey."""
        lines = []
        for symbol in self.symbols:
            kind = "integer" if symbol.is_integer else "float"
            sign = "positive" if symbol.is_positive else "any sign"
            lines.append(f"{kind}, {sign}, {compat.range_of(self.environment, symbol)}")
        ours, facts = frozenset(self.symbols), compat.facts_of(self.environment)
        equal = {left: right for relation, left, right in facts if relation == "Equality"}
        for relation, left, _ in facts:
            condition = left.xreplace(equal)  # that two were found equal shows in the inputs
            if not relation and condition.free_symbols & ours:
                lines.append(str(self.tree(condition)))
        return "\n".join(lines)

    def refuse_others(self, gm: fx.GraphModule) -> None:
        """Raises CannotKey where a value in the graph has a size that is not of these symbols. One
        that depends on data is no part of a key, nor of what is assumed: the graph's operators make
        it anew, in the compile too, and its own checks are in its text."""
        ours = frozenset(self.symbols)
        for node in gm.graph.nodes:
            for number in _numbers(node.meta.get("val")):
                other = compat.expression_of(number).free_symbols - ours
                if not all(map(compat.by_data, other)):
                    raise CannotKey(f"a size that is no input's ({next(iter(other))})")

    def learnt(self, before: Sequence[compat.Fact]) -> list[Tree]:
        """What was assumed besides the facts of `before`, as conditions. Raises CannotKey."""
        found: list[Tree] = []
        # the range of a symbol that was another one already is that one's
        gone = {left for relation, left, _ in before if relation == "Equality"} - {*self.symbols}
        for relation, left, right in dict.fromkeys(compat.facts_of(self.environment)):
            if (relation, left, right) not in before and left not in gone:
                own = self.tree(left)  # raises for a symbol that the compile made
                if right is not None:
                    found.append([relation, own, self.tree(right)])
                elif not relation:
                    found.append(own)
        return found

    def conditions(self) -> list[Tree]:
        """All that is assumed about sizes, as it is of the graph's symbols now, short ones first.
        Raises CannotKey."""
        facts = compat.facts_of(self.environment)
        equal = {left: right for relation, left, right in facts if relation == "Equality"}
        found: list[Tree] = []
        for relation, left, right in facts:
            now = left.xreplace(equal)
            if relation in compat.BOUNDS and right is not None and now.free_symbols:
                found.append([relation, self.tree(now), self.tree(right)])
            elif not relation and now is not compat.symbolic("true"):
                found.append(self.tree(now))
        distinct = [tree for number, tree in enumerate(found) if tree not in found[:number]]
        return sorted(distinct, key=lambda tree: len(str(tree)))

    def fit(self, conditions: Sequence[Tree]) -> bool:
        """Whether conditions hold for the sizes of this call."""
        return first_broken(conditions, self.values()) is None

    def assume(self, conditions: Sequence[Tree]) -> None:
        """Assume conditions that hold for the sizes of this call, in their order."""
        for tree in conditions:
            if not compat.assume(self.environment, self.expression(tree)):
                raise ValueError(f"the condition {tree} does not hold")


def open_sizes(gm: fx.GraphModule) -> GraphSymbols | None:
    """The open sizes of a graph; None where its inputs' are numbers. Raises CannotKey."""
    values = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    return GraphSymbols(gm) if any(map(has_symbols, values)) else None


def _numbers(value: Any) -> list[Any]:
    """The symbolic numbers of a value: its sizes, strides and offset, or itself."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            return []
        parts = [*value.shape, *value.stride(), value.storage_offset()]
        return [part for part in parts if is_symbolic(part)]
    if isinstance(value, (tuple, list)):
        return [part for item in value for part in _numbers(item)]
    return [value] if is_symbolic(value) else []
