"""Symbolic sizes as index expressions, and back.

In: `torch.SymInt`s of one shape environment. Out: `int | Expr` over symbols `size0, size1, ...`, in
order of first use, so that equal graphs give equal text. Invariant: what the compile assumed about
them is recorded in their environment at the end, which checks it at each call.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from flambeau_prims import NotYetSymbolic
from flambeau_prims.sizes import OPERATIONS, parts_of

from flambeau_inductor import _torch_compat as compat
from flambeau_inductor.indexing import (
    Expr,
    IntegerConstant,
    Size,
    SizeDecisions,
    Symbol,
    depends_on_data,
    hint,
    plain,
    range_of,
    rebuilt,
    symbols_in,
    to_python,
)
from flambeau_inductor.indexing.expr import LARGEST
from flambeau_inductor.ir.program import SymbolSource

ESTIMATE = 256
"""What a size that depends on data is taken for where it decides nothing but speed."""

_EXTREMES: dict[Any, Any] = {torch.sym_max: max, torch.sym_min: min}
_NAMES = re.compile(r"\bsize\d+\b")


def _is_linear(expression: Any) -> bool:
    """Whether an expression is a multiple of its one symbol, and a number more."""
    symbols = list(expression.free_symbols)
    factor = expression.coeff(symbols[0]) if len(symbols) == 1 else None
    return bool(factor) and bool((expression - factor * symbols[0]).is_Integer)


def _refuse(text: str, name: str) -> None:
    raise NotYetSymbolic(f"the size {text}")


class GraphSizes:
    """The symbols of one graph."""

    def __init__(self) -> None:
        self.decisions: SizeDecisions = {}
        #: makes a size by this name of what Python computes by this text
        self.compute: Callable[[str, str], None] = _refuse
        self._symbols: dict[Any, Symbol] = {}
        self._numbers: dict[str, torch.SymInt] = {}
        self._known: dict[Any, Size] = {}
        self._sources: dict[str, SymbolSource] = {}
        self._floats: dict[Any, str] = {}
        self._within: dict[str, SymbolSource] = {}
        self._made: set[str] = set()
        self._floats_by_data: set[str] = set()

    def size(self, number: Any) -> Size:
        """A size. Raises NotYetSymbolic for numbers that are not integers and for expressions of
        another kind."""
        if isinstance(number, int):
            return number
        if not isinstance(number, torch.SymInt):
            raise NotYetSymbolic(f"the symbolic number {number} is not an integer")
        expression = compat.expression_of(number)
        found = self._known.get(expression)
        if found is None:
            found = self._known[expression] = plain(self._translated(expression, number))
        return found

    def _translated(self, expression: Any, number: torch.SymInt | torch.SymBool) -> Expr:
        if expression.is_Integer:
            return IntegerConstant(int(expression))
        if expression.is_Symbol:
            return self._symbol(expression, number)
        operation, parts = parts_of(expression)
        sizes = [self._translated(part, number) for part in parts]
        if operation.call in (operator.floordiv, operator.mod):
            divides = not (isinstance(sizes[1], IntegerConstant) and sizes[1].value <= 0)
        else:
            divides = operation.call in (operator.add, operator.mul)
        if operation.call in _EXTREMES:
            return self._extreme(expression, _EXTREMES[operation.call], sizes, number)
        if not divides:
            raise NotYetSymbolic(f"the symbolic size {expression}")
        return functools.reduce(operation.call, sizes)

    def _extreme(
        self,
        expression: Any,
        call: Any,
        sizes: Sequence[Expr],
        number: torch.SymInt | torch.SymBool,
    ) -> Symbol:
        """The largest or the smallest of open sizes: a size of its own, which the program computes
        once they are known."""
        found = self._symbols.get(expression)
        if found is None:
            low, high = (call(ends) for ends in zip(*map(range_of, sizes), strict=True))
            name, by_data = self._new_name(), depends_on_data(sizes)
            value = min(ESTIMATE, high) if by_data else call(map(hint, sizes))
            found = Symbol(name, value, self.decisions, low, high, by_data)
            self._symbols[expression] = found
            text = f"{call.__name__}({', '.join(map(to_python, sizes))})"
            if by_data:
                self._made.add(name)
                self.compute(text, name)
            else:
                self._sources[name] = SymbolSource(-1, text=text)
                self._numbers[name] = compat.symbolic_integer(expression, value, number)
        return found

    def _symbol(self, expression: Any, number: torch.SymInt | torch.SymBool) -> Symbol:
        found = self._symbols.get(expression)
        if found is None:
            value, low, high = compat.known_of_symbol(expression, number)
            name = self._new_name()
            low = -LARGEST if low is None else low  # a number that is no size has either sign
            high = LARGEST if high is None else min(high, LARGEST)
            by_data = value is None
            estimate = min(ESTIMATE, high) if value is None else value
            made = Symbol(name, estimate, self.decisions, low, high, by_data)
            found = self._symbols[expression] = made
            self._numbers[name] = compat.symbolic_integer(expression, value, number)
        return found

    def _new_name(self) -> str:
        return f"size{len(self._symbols) + len(self._floats_by_data)}"

    def read(self, number: torch.SymFloat) -> str:
        """The name of a float that is read off a tensor when the program runs; empty where it has
        been."""
        expression = compat.own_expression(number)
        if expression in self._floats:
            return ""
        self._floats[expression] = name = self._new_name()
        self._floats_by_data.add(name)
        return name

    def depend_on_data(self, text: str) -> bool:
        """Whether floats of a text that has been written do."""
        names = set(_NAMES.findall(text))
        return not names.isdisjoint(self._floats_by_data)

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
        operation = OPERATIONS.get(type(expression).__name__)
        if operation is None or not (operation.sign or operation.call is float):
            raise NotYetSymbolic(f"the symbolic number {expression}")
        texts = [self._text(arg, number) for arg in expression.args]
        if operation.call is float:
            return f"float({texts[0]})"
        return f"({f' {operation.sign} '.join(texts)})"

    def given(self, size: object, source: SymbolSource) -> None:
        """Note where a symbol's value is found when the program runs: the first place counts, but
        an input of its own is preferred. A size that depends on data may be found in one that is a
        multiple of it, and a number more."""
        if isinstance(size, Expr) and not isinstance(size, Symbol):
            self._given_within(size, source)
        if isinstance(size, Symbol):
            known = self._sources.get(size.name)
            if known is None or (source.dim is None and known.dim is not None):
                self._sources[size.name] = source

    def expect(self, numbers: Sequence[Any]) -> None:
        """Sizes of the inputs. One that depends on data and is computed of what no input says is a
        size of its own here."""
        given = [each for each in numbers if compat.depends_on_data(each)]
        expressions = [compat.expression_of(each) for each in given]
        said = set().union(*(each.free_symbols for each in expressions if _is_linear(each)))
        for number, expression in zip(given, expressions, strict=True):
            if expression.free_symbols - said and expression not in self._known:
                name = self._new_name()
                made = Symbol(name, ESTIMATE, self.decisions, 0, LARGEST, True)
                self._symbols[expression] = self._known[expression] = made
                self._numbers[name] = number

    def _given_within(self, size: Expr, source: SymbolSource) -> None:
        symbols = symbols_in(size)
        if len(symbols) != 1 or not symbols[0].by_data:
            return
        (symbol,) = symbols
        factor, offset = size.coefficient(symbol.name), plain(size.substitute({symbol.name: 0}))
        if isinstance(factor, int) and factor > 0 and isinstance(offset, int):
            found = replace(source, factor=factor, offset=offset)
            self._within.setdefault(symbol.name, found)

    def made(self, sizes: Sequence[object]) -> list[tuple[str, int]]:
        """The symbols among these sizes that depend on data and are nowhere yet, and their places:
        from here on they are known."""
        found: list[tuple[str, int]] = []
        for place, size in enumerate(sizes):
            if isinstance(size, Symbol) and size.by_data and size.name not in self._sources:
                if size.name not in self._made:
                    self._made.add(size.name)
                    found.append((size.name, place))
        return found

    def own(self, number: Any) -> Size:
        """A size that an operator counts, by its own name, whatever is assumed of it later: that is
        checked by this name."""
        expression = compat.own_expression(number) if isinstance(number, torch.SymInt) else None
        is_symbol = getattr(expression, "is_Symbol", False)
        if is_symbol and compat.known_of_symbol(expression, number)[0] is None:
            return self._symbol(expression, number)
        return self.size(number)

    def sources(self) -> tuple[tuple[str, SymbolSource], ...]:
        """Where each symbol is found; NotYetSymbolic if one is nowhere."""
        self._sources = {**self._within, **self._sources}
        known = self._sources.keys() | self._made
        if missing := [s for s in self._symbols.values() if s.name not in known]:
            raise NotYetSymbolic(f"no input has exactly the size {missing[0]}")
        return tuple(
            (s.name, self._sources[s.name])
            for s in self._symbols.values()
            if s.name in self._sources
        )

    def record(self) -> None:
        """Record in the environment what was assumed."""
        for decision in self.decisions:
            value: Any = rebuilt(decision.expr, lambda var: self._numbers[var.name], int)
            truth = bool(value < 0) if decision.relation == "lt" else bool(value == 0)
            if truth != decision.truth:
                raise AssertionError(f"{decision} is not so at {hint(decision.expr)}")
