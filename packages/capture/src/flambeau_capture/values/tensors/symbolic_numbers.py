"""Symbolic integers and floats as values.

In: symbolic numbers of torch. Out: `SymbolValue`, `symbol_operator`. Invariant: a symbol is a
constant to everything that knows no symbols: reading its `value` fixes it, and a guard says so.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.graph.symbolic_shapes import LARGEST, SymbolicShapes
from flambeau_capture.guards import Term
from flambeau_capture.source import Source, SymbolExprSource
from flambeau_capture.values.base import Tracer, Unreconstructible, Value
from flambeau_capture.values.constant import Constant, is_none

NUMBERS = compat.NUMBERS

#: comparisons; as guards ask them of floats, and whether the sides are swapped then
_COMPARED: dict[str, tuple[Callable[[Any, Any], Any], str, bool]] = {
    "==": (operator.eq, "FEQ", False),
    "!=": (operator.ne, "FNE", False),
    "<": (operator.lt, "FLT", False),
    "<=": (operator.le, "FLE", False),
    ">": (operator.gt, "FLT", True),
    ">=": (operator.ge, "FLE", True),
}
_ZERO = Term.of_float(0.0, 0.0)
_ANY = (-math.inf, math.inf)
_POSITIVE = (5e-324, 1e300)


@dataclass(frozen=True)
class Computation:
    """A function of numbers that Python computes before the graph runs. `within` says for each
    argument from where to where it raises nothing; `op` what guards compute in its place;
    `or_within` where it raises nothing either: one that the numbers are in is guarded."""

    within: tuple[tuple[float, float], ...]
    op: str | None = None
    or_within: tuple[tuple[tuple[float, float], ...], ...] = ()

    def domain(
        self, numbers: Sequence[int | float], are_open: Sequence[bool]
    ) -> tuple[tuple[float, float], ...]:
        """Where numbers are, with the most room for those that are open; the first domain where
        they are in none."""
        fits = [
            domain
            for domain in (self.within, *self.or_within)
            if all(low <= one <= high for one, (low, high) in zip(numbers, domain, strict=True))
        ]

        def room(domain: tuple[tuple[float, float], ...]) -> float:
            return sum(high - low for (low, high), moves in zip(domain, are_open) if moves)

        return max(fits, key=room, default=self.within)


def _one(least: float, most: float, op: str | None = None) -> Computation:
    return Computation(((least, most),), op)


_FINITE = (-1e300, 1e300)
#: powers of which the largest is below 1e300
_POWER = Computation(
    ((1e-30, 1e30), (-8.0, 8.0)),
    or_within=tuple(((1 / b, b), (-e, e)) for b, e in ((10.0, 299.0), (1.25, 3000.0))),
)
_WHOLE = (-float(LARGEST), float(LARGEST))
COMPUTED: dict[Any, Computation] = {
    math.sqrt: _one(0.0, 1e300, "SQRT"),
    math.floor: _one(*_WHOLE, "FLOOR"),
    math.ceil: _one(*_WHOLE, "CEIL"),
    math.trunc: _one(*_WHOLE, "TRUNC"),
    round: _one(*_WHOLE, "ROUND"),
    int: _one(*_WHOLE, "TRUNC"),
    float: _one(*_FINITE, "TOF"),
    **dict.fromkeys((math.log, math.log2, math.log10), _one(*_POSITIVE)),
    **dict.fromkeys((math.exp, math.expm1, math.sinh, math.cosh), _one(-700.0, 700.0)),
    **dict.fromkeys((math.sin, math.cos, math.tan), _one(*_FINITE)),
    **dict.fromkeys((math.asin, math.acos), _one(-1.0, 1.0)),
    **dict.fromkeys((math.atan, math.tanh, math.asinh, math.erf, math.erfc), _one(*_FINITE)),
    **dict.fromkeys((math.fabs, math.degrees, math.radians), _one(-1e290, 1e290)),
    math.log1p: _one(-0.999, 1e300),
    math.pow: _POWER,
    operator.pow: _POWER,
    operator.add: Computation((_ANY, _ANY), "FADD"),
    operator.sub: Computation((_ANY, _ANY), "FSUB"),
    operator.mul: Computation((_ANY, _ANY), "FMUL"),
    operator.truediv: Computation((_ANY, _ANY), "FDIV"),
    operator.floordiv: Computation((_FINITE, _POSITIVE)),
    operator.mod: Computation((_FINITE, _POSITIVE)),
}
#: operators; of integers, torch's symbols follow Python exactly in all but `/` and `**`
BY_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
_LONGEST = 128  # numbers that one is computed of, each as often as it is used


class SymbolValue(Constant):
    """A symbolic integer or float; `node`: where the graph computes it, `term`: where guards d"""

    described = "Symbol({0.number})"
    is_open = True

    def __init__(
        self,
        number: Any,
        shapes: SymbolicShapes,
        node: fx.Node | None = None,
        term: Term | None = None,
    ) -> None:
        super().__init__(None, shapes.source(number))
        self.term = term if term is not None else shapes.term(number)
        self.number = number
        self._shapes = shapes
        self._computed = node
        self._known: list[Any] = []

    @property
    def value(self) -> Any:
        if not self._known:
            self._known.append(self._shapes.value(self.number))
        return self._known[0]

    def is_known_to_be(self, obj: Any) -> bool:
        return False

    @property
    def is_none(self) -> bool:
        return False  # without asking which number it is

    @property
    def cls(self) -> type:
        return _CLASSES[type(self.number)]

    @property
    def by_data(self) -> bool:
        """Whether it depends on a tensor's data: Python cannot know it before the graph has run."""
        return bool(compat.own_data_symbols(self.number))

    def known_truth(self) -> bool | None:
        """Its truth where that is the same for all data."""
        is_bool = isinstance(self.number, torch.SymBool)
        return compat.known_condition(self.number if is_bool else self.number != 0)

    def truth(self, tx: Tracer) -> bool:
        if self.by_data:
            known = self.known_truth()
            if known is None:
                known = tx.tensor_rules.in_general(tx, self)
            if known is None:
                self._shapes.settle(self.number)
                return self.truth(tx)
            return known
        if not isinstance(self.number, torch.SymFloat):
            return bool(self.number != 0)
        if self._known or self.term is None:
            return bool(self.value)
        return self._shapes.compare("FNE", self.term, _ZERO)

    def graph_argument(self) -> Any:
        if self._known:
            return self._known[0]
        if self._computed is not None:
            return self._computed
        if isinstance(self.number, torch.SymFloat) and self.source is None and not self.by_data:
            return self.value
        return self._shapes.node(self.number)

    def reconstruct(self, writer: Any) -> None:
        if self._shapes.returned and isinstance(node := self.graph_argument(), fx.Node):
            writer.numbers.add(node)
            writer.load_graph_output(node)
            return
        if not self._known and self._shapes.is_overwritten(self.number):
            self._reconstruct_by_data(writer)  # what it was read of is another by now
            return
        if self.source is not None:
            writer.load_source(self.source)
            return
        if not self._known and isinstance(self.number, torch.SymInt):
            computed = self._shapes.in_python(self.number)
            if computed is not None:
                writer.call_with_sources(*computed)
                return
        if not self._known and self.by_data:
            self._reconstruct_by_data(writer)
            return
        writer.load_const(self.value)  # none of the graph's results is a number

    def _reconstruct_by_data(self, writer: Any) -> None:
        """The graph gives it as a tensor, which Python reads."""
        if not isinstance(self.number, torch.SymBool):
            writer.load_graph_output(self._shapes.as_tensor(self.number))
            writer.call_method_top("item")
            return
        found = self._shapes.sides(self.number)
        if found is None:
            raise Unreconstructible(self, f"{self.number}, which depends on data")
        fn, sides = found
        values = [
            SymbolValue(side, self._shapes) if isinstance(side, NUMBERS) else Constant(side)
            for side in sides
        ]
        writer.call(fn, values)


def symbol_value(
    tx: Tracer, number: Any, node: fx.Node | None = None, term: Term | None = None
) -> Value:
    """The value of a number that torch or Python answered."""
    if not isinstance(number, NUMBERS):
        return Constant(number)
    if isinstance(number, torch.SymBool):
        if not compat.own_data_symbols(number):
            return Constant(bool(number))
        known = compat.known_condition(number)
        return Constant(known) if known is not None else SymbolValue(number, tx.shapes)
    plain = number.node.maybe_as_int() if isinstance(number, torch.SymInt) else None
    return Constant(plain) if plain is not None else SymbolValue(number, tx.shapes, node, term)


def is_known(condition: Value) -> bool:
    """Whether a condition does not depend on data, or is the same whatever that is."""
    if not isinstance(condition, SymbolValue) or not condition.by_data:
        return True
    return compat.known_condition(condition.number) is not None


def symbol_operator(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    """An operation on numbers of which one is symbolic; None: on their values, then."""
    if symbol in ("==", "!=") and (is_none(left) or is_none(right)):
        return Constant(symbol == "!=")
    numbers = [_number(value) for value in (left, right)]
    if any(number is None for number in numbers):
        return None
    floats = any(isinstance(number, float | torch.SymFloat) for number in numbers)
    if any(map(compat.own_data_symbols, numbers)):
        fn = _COMPARED[symbol][0] if symbol in _COMPARED else BY_PYTHON.get(symbol)
        compares = symbol in _COMPARED
        return None if fn is None or (floats and not compares) else _by_data(tx, fn, numbers)
    if symbol in _COMPARED:
        if not floats:
            return Constant(bool(_COMPARED[symbol][0](*numbers)))
        return _compared(tx, symbol, left, right)
    small = type(numbers[1]) is int and 1 <= numbers[1] <= 8
    if not floats and (symbol in _INTEGER or (symbol == "**" and small)):
        if symbol in ("//", "%") and not numbers[1]:
            return None
        return symbol_value(tx, BY_PYTHON[symbol](*numbers))
    if symbol in BITS and not floats and type(numbers[1]) is int:
        return _bits(tx, symbol, *numbers)
    if symbol in BY_PYTHON:
        made = symbol_call(tx, BY_PYTHON[symbol], [left, right])
        if made is not None:
            return made
    if symbol in _IN_GRAPH:
        return _float_operator(tx, symbol, numbers, [left, right])
    return None


def _by_data(tx: Tracer, fn: Callable[[Any, Any], Any], numbers: list[Any]) -> Value | None:
    """An operation on integers of which one depends on data: the graph computes it."""
    if fn not in _OF_SIZES and fn not in (row[0] for row in _COMPARED.values()):
        return None
    try:
        return symbol_value(tx, fn(*numbers))
    except Exception as error:
        if not compat.is_undecided(error):
            raise
        raise Break("FB0002", f"{fn.__name__} of {numbers[0]} and {numbers[1]}") from None


_OF_SIZES = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
_CLASSES = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_INTEGER = frozenset({"+", "-", "*", "//", "%"})
#: what the graph computes with Python's own floats, in the program's order, and guards do
_IN_GRAPH = frozenset({"+", "-", "*", "/"})
BITS: dict[str, Callable[[Any, Any], Any]] = {
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
}


def _bits(tx: Tracer, symbol: str, number: Any, bits: int) -> Value | None:
    """Shifts by a constant, and the lowest bits, as arithmetic: Python's integers have no end."""
    if symbol == "&":
        lowest = bits > 0 and bits & (bits + 1) == 0
        return symbol_value(tx, number % (bits + 1)) if lowest else None
    if not 0 <= bits <= 16:
        return None
    return symbol_value(tx, number * 2**bits if symbol == "<<" else number // 2**bits)


def symbol_call(tx: Tracer, fn: Any, args: Sequence[Value]) -> Value | None:
    """A function of numbers, computed in Python before the graph; None: the numbers are fixed."""
    if fn is divmod and len(args) == 2:
        return _divided(tx, args[0], args[1])
    computation = COMPUTED.get(fn) if isinstance(fn, Hashable) else None
    numbers = [_number(value) for value in args]
    if computation is None or len(numbers) != len(computation.within) or None in numbers:
        return None
    if fn in (int, float) and args[0].cls is fn:
        return args[0]
    if fn in _TO_INTEGER and args[0].cls is int:
        return args[0]
    origins = [found for number in numbers if (found := tx.shapes.origin(number)) is not None]
    terms = [_term(tx, value) for value in args]
    if len(origins) < len(args):
        return None
    source = SymbolExprSource(fn, tuple(origins))
    if source.count() > _LONGEST:
        return None
    are_open = [isinstance(number, NUMBERS) for number in numbers]
    domain = computation.domain([tx.shapes.present(number) for number in numbers], are_open)
    for one, (least, most) in zip(terms, domain, strict=True):
        if (least, most) != _ANY and (one is None or not _is_within(tx, one, least, most)):
            return None
    if fn is operator.truediv and not _is_divisor(tx, numbers[1], terms[1]):
        return None
    try:
        value = fn(*(tx.shapes.present(number) for number in numbers))
    except (ArithmeticError, ValueError):
        return None  # the program raises it, where it is
    if type(value) not in (int, float) or (type(value) is int and fn not in _TO_INTEGER):
        return None
    made = tx.shapes.computed(source, value, _term_of(fn, computation.op, terms))
    return symbol_value(tx, made) if isinstance(made, NUMBERS) else None


_TO_INTEGER = (int, round, math.floor, math.ceil, math.trunc)


def _divided(tx: Tracer, left: Value, right: Value) -> Value | None:
    parts = [symbol_operator(tx, symbol, left, right) for symbol in ("//", "%")]
    return None if None in parts else tx.new_tuple([part for part in parts if part is not None])


def _is_within(tx: Tracer, term: Term, least: float, most: float) -> bool:
    return (least == -math.inf or tx.shapes.compare("FLE", Term.of_float(least, least), term)) and (
        most == math.inf or tx.shapes.compare("FLE", term, Term.of_float(most, most))
    )


def open_numbers(values: Iterable[Value]) -> list[SymbolValue]:
    """Numbers that are left open among these, those in lists too."""
    found: list[SymbolValue] = []
    for value in values:
        if isinstance(value, SymbolValue):
            found.append(value)
        elif hasattr(value, "parts"):
            found += open_numbers(value.parts())
    return found


def open_floats(values: Iterable[Value]) -> list[SymbolValue]:
    """The floats among them."""
    return [each for each in open_numbers(values) if isinstance(each.number, torch.SymFloat)]


def are_within(tx: Tracer, numbers: Iterable[SymbolValue], least: float, most: float) -> bool:
    """Whether guards can say that floats are in a range, and do."""
    terms = [number.term for number in numbers]
    return all(term is not None and _is_within(tx, term, least, most) for term in terms)


def _term_of(fn: Any, op: str | None, terms: Sequence[Term | None]) -> Term | None:
    known = [term for term in terms if term is not None]
    if len(known) < len(terms):
        return None
    if op is None:
        return Term.called(fn, known)
    if len(known) == 2:
        return known[0].combine(op, known[1])
    return known[0] if op == "TOF" else known[0].apply(op, fn.__name__)


def _number(value: Value) -> Any:
    if isinstance(value, SymbolValue):
        return None if value.cls is bool else value.number
    if isinstance(value, Constant) and value.cls in (int, float):
        return value.value
    return int(value.value) if isinstance(value, Constant) and value.cls is bool else None


def _term(tx: Tracer, value: Value) -> Term | None:
    return value.term if isinstance(value, SymbolValue) else tx.shapes.term(_number(value))


def _compared(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    """A comparison of which one side at least is a float: Python's own, not torch's, answers."""
    one, other = _term(tx, left), _term(tx, right)
    if one is None or other is None:
        return None
    _, op, swapped = _COMPARED[symbol]
    return Constant(tx.shapes.compare(op, *((other, one) if swapped else (one, other))))


def _float_operator(
    tx: Tracer, symbol: str, numbers: list[Any], values: list[Value]
) -> Value | None:
    terms = [_term(tx, value) for value in values]
    if symbol == "/" and not _is_divisor(tx, numbers[1], terms[1]):
        return None
    arguments = [
        value.graph_argument() if isinstance(value, SymbolValue) else number
        for value, number in zip(values, numbers, strict=True)
    ]
    if not any(isinstance(argument, fx.Node) for argument in arguments):
        return None
    fn = BY_PYTHON[symbol]
    node = tx.graph.outermost.number_call(fn, tuple(arguments))
    return symbol_value(tx, node.meta["val"], node, _term_of(fn, COMPUTED[fn].op, terms))


def _is_divisor(tx: Tracer, number: Any, term: Term | None) -> bool:
    """Whether a number is not zero, which a guard then says: the program's error is its own."""
    if isinstance(number, torch.SymInt):
        return bool(number != 0)
    if not isinstance(number, torch.SymFloat):
        return bool(number)
    return term is not None and tx.shapes.compare("FNE", term, _ZERO)


def needs_constant(tx: Tracer, name: str, numbers: list[SymbolValue]) -> None:
    """Break at an operator that has needed another number as a constant here: what comes before
    and after is general in it, and eager's operator takes it as it is."""
    for value in numbers:
        for source, number in tx.shapes.leaves(value.number).items():
            before = tx.needed_by(name, source, number)
            if before is not None:
                said = source.short()
                said = "a number computed before" if said.startswith("___") else said
                what = f"{name} needs {said} as a constant, which was {before}"
                raise Break("FB0028", f"{what} and is {number}")


def note_constants(
    tx: Tracer, name: str, numbers: list[SymbolValue], before: frozenset[Source]
) -> None:
    """Note which open numbers an operator was recorded, or tried, without."""
    fixed = tx.shapes.constants() - before
    for value in numbers if fixed else ():
        for source, number in tx.shapes.leaves(value.number).items():
            if source in fixed:
                tx.note_need(name, source, number)
    try:
        needs_constant(tx, name, numbers if fixed else [])
    except Break:
        tx.heap.changed()  # so that capture starts again, with nothing assumed of the number
        raise
