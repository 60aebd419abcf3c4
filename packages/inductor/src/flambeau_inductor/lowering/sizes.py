"""Symbolic sizes of an FX graph as index expressions, and back.

In: `torch.SymInt`s of one shape environment. Out: `int | Expr` over symbols `size0, size1, ...`,
named in the order in which they are met, so that equal graphs give equal text. Invariant: what the
compile assumed about them is told to their environment at the end, and to nobody else: it is what
checks it at each call.
"""

from __future__ import annotations

from typing import Any

import torch
from flambeau_prims import NotYetSymbolic

from flambeau_inductor import _torch_compat as compat
from flambeau_inductor.indexing import (
    Expr,
    IntegerConstant,
    SizeDecisions,
    Symbol,
    add,
    floordiv,
    hint,
    mod,
    mul,
    plain,
    rebuilt,
)
from flambeau_inductor.indexing.symbols import LARGEST
from flambeau_inductor.ir.program import SymbolSource

_OPERATORS = {
    "Add": " + ",
    "Mul": " * ",
    "Pow": " ** ",
    "FloatPow": " ** ",
    "PowByNatural": " ** ",
    "FloatTrueDiv": " / ",
    "IntTrueDiv": " / ",
    "FloorDiv": " // ",
    "PythonMod": " % ",
}
"""How Python spells what floats are made of."""

_FUNCTIONS = {"FloorDiv": floordiv, "CleanDiv": floordiv, "Mod": mod, "PythonMod": mod}


class GraphSizes:
    """The symbols of one graph."""

    def __init__(self) -> None:
        self.decisions = SizeDecisions()
        self._symbols: dict[Any, Symbol] = {}
        self._numbers: dict[str, torch.SymInt] = {}
        self._known: dict[Any, int | Expr] = {}
        self._sources: dict[str, SymbolSource] = {}
        self._floats: dict[Any, str] = {}

    def size(self, number: Any) -> Any:
        """A size as `int | Expr`, spelled Any since shapes are spelled as tuples of int.

        Raises NotYetSymbolic for numbers that are not integers and for expressions of another kind.
        """
        if isinstance(number, int):
            return number
        if not isinstance(number, torch.SymInt):
            raise NotYetSymbolic(f"the symbolic number {number} is not an integer")
        expression = compat.expression_of(number)
        found = self._known.get(expression)
        if found is None:
            found = self._known[expression] = plain(self._translated(expression, number))
        return found

    def _translated(self, expression: Any, number: torch.SymInt) -> Expr:
        if expression.is_Integer:
            return IntegerConstant(int(expression))
        if expression.is_Symbol:
            return self._symbol(expression, number)
        parts = [self._translated(arg, number) for arg in expression.args]
        kind = type(expression).__name__
        if kind == "Add":
            return add(parts)
        if kind == "Mul":
            product = parts[0]
            for part in parts[1:]:
                product = mul(product, part)
            return product
        if kind == "Pow" and isinstance(parts[1], IntegerConstant) and parts[1].value > 0:
            power = parts[0]
            for _ in range(parts[1].value - 1):
                power = mul(power, parts[0])
            return power
        if kind in _FUNCTIONS and not (
            isinstance(parts[1], IntegerConstant) and parts[1].value <= 0
        ):
            return _FUNCTIONS[kind](parts[0], parts[1])
        raise NotYetSymbolic(f"the symbolic size {expression}")

    def _symbol(self, expression: Any, number: torch.SymInt) -> Symbol:
        found = self._symbols.get(expression)
        if found is None:
            value, low, high = compat.known_of_symbol(expression, number)
            name = f"size{len(self._symbols)}"
            low = -LARGEST if low is None else low  # a number that is no size has either sign
            high = LARGEST if high is None else high
            found = self._symbols[expression] = Symbol(name, value, self.decisions, low, high)
            self._numbers[name] = compat.symbolic_integer(expression, value, number)
        return found

    def named(self, number: torch.SymFloat, name: str) -> None:
        """Note the name that a float has when the program runs."""
        self._floats[compat.expression_of(number)] = name

    def text(self, number: torch.SymFloat) -> str:
        """A float as Python, over the names of floats and of open sizes."""
        return self._text(compat.expression_of(number), number)

    def _text(self, expression: Any, number: Any) -> str:
        if expression in self._floats:
            return self._floats[expression]
        if expression.is_Integer:
            return str(int(expression))
        if expression.is_Float:
            return repr(float(expression))
        if expression.is_Symbol:
            return self._symbol(expression, number).name
        sign = _OPERATORS.get(type(expression).__name__)
        if sign is None:
            raise NotYetSymbolic(f"the symbolic number {expression}")
        return f"({sign.join(self._text(arg, number) for arg in expression.args)})"

    def given(self, size: object, source: SymbolSource) -> None:
        """Note where a symbol's value is found when the program runs: the first place counts, but
        an input of its own is preferred."""
        if isinstance(size, Symbol):
            known = self._sources.get(size.name)
            if known is None or (source.dim is None and known.dim is not None):
                self._sources[size.name] = source

    def sources(self) -> tuple[tuple[str, SymbolSource], ...]:
        """Where each symbol is found; NotYetSymbolic if one is nowhere."""
        missing = [s for s in self._symbols.values() if s.name not in self._sources]
        if missing:
            raise NotYetSymbolic(f"no input has exactly the size {missing[0]}")
        return tuple((s.name, self._sources[s.name]) for s in self._symbols.values())

    def tell(self) -> None:
        """Tell the environment what was assumed."""
        for decision in self.decisions.made:
            value: Any = rebuilt(decision.expr, lambda var: self._numbers[var.name], int)
            truth = bool(value < 0) if decision.relation == "lt" else bool(value == 0)
            if truth != decision.truth:
                raise AssertionError(f"{decision} is not so at {hint(decision.expr)}")
