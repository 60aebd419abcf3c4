"""SIZES: the guard on symbolic sizes, strides and numbers.

In: a symbolic condition, or one on floats put together by `Term`s, and where the numbers are found.
Out: a `SizeProgram`, which answers in plain Python and is the row of numbers that the native
machine runs (csrc/size_program.c). Invariant: a condition that the machine's operations cannot say
is refused, never approximated.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flambeau_capture.guards.kinds import Params, register
from flambeau_capture.source import Source

_LARGEST = 2**63 - 1
_EXACT = 2**53  # up to here every integer is a float


@dataclass(frozen=True)
class SizeSource:
    """Where a number is found: a dimension of a tensor, or the number itself."""

    source: Source
    what: Literal["SIZE", "STRIDE", "VALUE", "FLOAT"]
    dim: int = 0

    def name(self) -> str:
        text = self.source.name()
        return text if self.what in _NUMBERS else f"{text}.{self.what.lower()}({self.dim})"

    def read(self, value: Any) -> int | float:
        if self.what not in _NUMBERS:
            return int(getattr(value, self.what.lower())(self.dim))
        if type(value) is not _NUMBERS[self.what]:
            raise TypeError(type(value).__name__)
        return value  # type: ignore[no-any-return]


_NUMBERS: dict[str, Any] = {"VALUE": int, "FLOAT": float}


@dataclass(frozen=True)
class Relation:
    """`left op right`, of symbolic expressions, places and integers."""

    op: Literal["EQ", "LE"]
    left: Any
    right: Any

    @property
    def free_symbols(self) -> frozenset[Any]:
        sides = (getattr(side, "free_symbols", ()) for side in (self.left, self.right))
        return frozenset(symbol for side in sides for symbol in side)


class Inexpressible(Exception):
    """A condition that the operations of size programs cannot say."""


def _remainder(left: int, right: int) -> int:
    """Of numbers that are not negative, the only ones it is made for."""
    if left < 0 or right <= 0:
        raise ArithmeticError(f"{left} % {right}")
    return left % right


def _of_floats(function: Callable[[float, float], Any]) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        if type(left) is not float or type(right) is not float:
            raise TypeError(f"{left!r} and {right!r} are not two floats")
        return function(left, right)

    return apply


def _to_float(value: int) -> float:
    if not -_EXACT <= value <= _EXACT:
        raise ArithmeticError(f"{value} may be no float")
    return float(value)


def _to_integer(function: Callable[[float], int]) -> Callable[[float], int]:
    def apply(value: float) -> int:
        if type(value) is not float or not -_EXACT <= value <= _EXACT:
            raise ArithmeticError(f"{value} is too large")
        return function(value)

    return apply


#: operations on one number
_UNARY: dict[str, Callable[[Any], Any]] = {
    "NOT": lambda value: int(not value),
    "TOF": _to_float,
    "SQRT": math.sqrt,
    "FLOOR": _to_integer(math.floor),
    "CEIL": _to_integer(math.ceil),
    "TRUNC": _to_integer(math.trunc),
    "ROUND": _to_integer(round),
}
#: operations on two numbers: what the machine does, and how they read
_BINARY: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "ADD": (operator.add, "+"),
    "MUL": (operator.mul, "*"),
    "FLOORDIV": (operator.floordiv, "//"),
    "MOD": (operator.mod, "%"),
    "REM": (_remainder, "%"),
    "MAX": (max, "max"),
    "MIN": (min, "min"),
    "EQ": (lambda a, b: int(a == b), "=="),
    "NE": (lambda a, b: int(a != b), "!="),
    "LT": (lambda a, b: int(a < b), "<"),
    "LE": (lambda a, b: int(a <= b), "<="),
    "AND": (lambda a, b: int(bool(a) and bool(b)), "and"),
    "OR": (lambda a, b: int(bool(a) or bool(b)), "or"),
    "FADD": (_of_floats(operator.add), "+"),
    "FSUB": (_of_floats(operator.sub), "-"),
    "FMUL": (_of_floats(operator.mul), "*"),
    "FDIV": (_of_floats(operator.truediv), "/"),
    "FEQ": (_of_floats(lambda a, b: int(a == b)), "=="),
    "FNE": (_of_floats(lambda a, b: int(a != b)), "!="),
    "FLT": (_of_floats(lambda a, b: int(a < b)), "<"),
    "FLE": (_of_floats(lambda a, b: int(a <= b)), "<="),
}

#: what Python itself computes of floats, for conditions on what comes out
FUNCTIONS: tuple[Callable[..., float], ...] = (
    operator.pow, operator.floordiv, operator.mod, math.pow, math.log, math.log2, math.log10,
    math.log1p, math.exp, math.expm1, math.sinh, math.cosh, math.tanh, math.asinh, math.sin,
    math.cos, math.tan, math.asin, math.acos, math.atan, math.erf, math.erfc, math.fabs,
    math.degrees, math.radians,
)  # fmt: skip


@dataclass(frozen=True)
class Calling:
    """One of `FUNCTIONS` of the last one or two floats."""

    place: int
    count: int

    def apply(self, stack: list[Any]) -> float:
        given = [stack.pop() for _ in range(self.count)][::-1]
        if any(type(value) is not float for value in given):
            raise TypeError(f"{given} are not floats")
        found = FUNCTIONS[self.place](*given)
        if type(found) is not float:
            raise TypeError(f"{found!r} is no float")
        return found


@dataclass(frozen=True, slots=True)
class SizeOperation:
    """What a class of symbolic expressions computes.

    opcode: in a size program; swapped: on its operands in the other order.
    call: what a graph's node calls, of two operands; None: a condition, which no node computes.
    """

    opcode: str
    call: Callable[[Any, Any], Any] | None = None
    swapped: bool = False

    def text(self, parts: Sequence[str]) -> str:
        """As Python spells it, of two operands or more."""
        sign = _BINARY[self.opcode][1]
        if self.call in (max, min):
            return f"{sign}({', '.join(parts)})"
        return "(" + f" {sign} ".join(parts) + ")"


OPERATIONS: dict[str, SizeOperation] = {
    "Add": SizeOperation("ADD", operator.add),
    "Mul": SizeOperation("MUL", operator.mul),
    "FloorDiv": SizeOperation("FLOORDIV", operator.floordiv),
    "CleanDiv": SizeOperation("FLOORDIV", operator.floordiv),
    "PythonMod": SizeOperation("MOD", operator.mod),
    "Mod": SizeOperation("REM", operator.mod),
    "Max": SizeOperation("MAX", max),
    "Min": SizeOperation("MIN", min),
    "Equality": SizeOperation("EQ"),
    "Unequality": SizeOperation("NE"),
    "StrictLessThan": SizeOperation("LT"),
    "LessThan": SizeOperation("LE"),
    "StrictGreaterThan": SizeOperation("LT", swapped=True),
    "GreaterThan": SizeOperation("LE", swapped=True),
    "And": SizeOperation("AND"),
    "Or": SizeOperation("OR"),
}
"""Symbolic operations by the name of their class, in sympy or torch: the one table of this package.
A power by a positive integer is repeated multiplication, `Not` has one operand."""


@dataclass(frozen=True)
class SizeProgram:
    """`code` is in reverse Polish notation: an operation's name, then its operands; a place stands
    for itself."""

    code: tuple[Any, ...]
    text: str

    def sources(self) -> tuple[Source, ...]:
        found = (item.source for item in self.code if isinstance(item, SizeSource))
        return tuple(dict.fromkeys(found))

    def holds(self, values: Sequence[Any]) -> bool:
        """The plain-Python answer; `values` are in the order of `sources()`."""
        where = dict(zip(self.sources(), values, strict=True))
        stack: list[Any] = []
        for item in self.code:
            if isinstance(item, SizeSource):
                stack.append(item.read(where[item.source]))
            elif isinstance(item, int | float):
                stack.append(item)
            elif isinstance(item, Calling):
                stack.append(item.apply(stack))
            elif item in _UNARY:
                stack.append(_UNARY[item](stack.pop()))
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(_BINARY[item][0](left, right))
            if type(stack[-1]) is int and not -_LARGEST - 1 <= stack[-1] <= _LARGEST:
                return False
        return stack == [stack[0]] and stack[0] != 0

    def numbers(self, slots: Mapping[Source, int], ops: Mapping[str, int]) -> tuple[int, ...]:
        """For the native machine; `slots` says where the tree leaves the values."""
        found: list[int] = []
        for item in self.code:
            if isinstance(item, SizeSource):
                found += [ops[item.what], slots[item.source]]
                if item.what not in _NUMBERS:
                    found.append(item.dim)
            elif isinstance(item, Calling):
                found += [ops[f"CALL{item.count}"], item.place]
            elif isinstance(item, float):
                found += [ops["CONST"], *struct.unpack("=q", struct.pack("=d", item))]
            elif isinstance(item, int):
                found += [ops["CONST"], item]
            else:
                found.append(ops[item])
        return tuple(found)


@dataclass(frozen=True)
class Term:
    """A number computed from places, as a part of a program: `value` is what it is now."""

    code: tuple[Any, ...]
    text: str
    value: int | float

    @classmethod
    def of_float(cls, place: SizeSource | float, value: float) -> Term:
        text = repr(place) if isinstance(place, float) else place.name()
        return cls((place,), text, value)

    @classmethod
    def of_integer(cls, expr: Any, places: Mapping[Any, SizeSource | Term], value: int) -> Term:
        """A symbolic integer, or a plain one, as a float. Raises `Inexpressible`."""
        code: list[Any] = []
        text = _compile(expr, places, code)
        if not -_EXACT <= value <= _EXACT:
            raise Inexpressible(f"{value} may be no float")
        return cls((*code, "TOF"), text, float(value))

    def apply(self, op: str, name: str) -> Term:
        """By one of `TOF`, `SQRT`, `FLOOR`, `CEIL`, `TRUNC`; `name` is Python's."""
        return Term((*self.code, op), f"{name}({self.text})", _UNARY[op](self.value))

    def combine(self, op: str, other: Term) -> Term:
        """With another by one of `FADD`, `FSUB`, `FMUL`, `FDIV`: as Python computes it."""
        fn, sign = _BINARY[op]
        text = f"({self.text} {sign} {other.text})"
        return Term((*self.code, *other.code, op), text, fn(self.value, other.value))

    @classmethod
    def called(cls, function: Callable[..., float], terms: Sequence[Term]) -> Term:
        """One of `FUNCTIONS` of one or two floats."""
        code = [item for term in terms for item in term.code]
        text = f"{function.__name__}({', '.join(term.text for term in terms)})"
        value = function(*(term.value for term in terms))
        return cls((*code, Calling(FUNCTIONS.index(function), len(terms))), text, value)

    def compare(self, op: str, other: Term) -> tuple[bool, SizeProgram]:
        """What a comparison (`FEQ`, `FNE`, `FLT`, `FLE`) comes to, and the condition for it."""
        fn, sign = _BINARY[op]
        answer = bool(fn(self.value, other.value))
        text = f"({self.text} {sign} {other.text})"
        code = (*self.code, *other.code, op)
        return answer, SizeProgram(code if answer else (*code, "NOT"),
                                   text if answer else f"not {text}")  # fmt: skip


def within(place: SizeSource, largest: int) -> SizeProgram:
    """A number is in `[-largest, largest]`."""
    code = (-largest, place, "LE", place, largest, "LE", "AND")
    return SizeProgram(code, f"{-largest} <= {place.name()} <= {largest}")


def size_program(condition: Any, places: Mapping[Any, SizeSource | Term]) -> SizeProgram:
    """Compile a symbolic condition; `places` says where each of its symbols is found."""
    code: list[Any] = []
    text = _compile(condition, places, code)
    return SizeProgram(tuple(code), text)


#: comparisons of floats, whose bits are on the stack
_OF_FLOATS = {"EQ": "FEQ", "NE": "FNE", "LT": "FLT", "LE": "FLE"}


def _compile(expr: Any, places: Mapping[Any, SizeSource | Term], code: list[Any]) -> str:
    kind = type(expr).__name__
    compared = OPERATIONS.get(kind)
    if compared is not None and compared.opcode in _OF_FLOATS:
        left, right = reversed(expr.args) if compared.swapped else expr.args
        if _is_float(left, places) or _is_float(right, places):
            if compared.opcode == "EQ":  # zero has two signs: what is decided is one of them
                raise Inexpressible(f"the float in {expr} is a constant")
            sides = _float_term(left, places), _float_term(right, places)
            code += [*sides[0].code, *sides[1].code, _OF_FLOATS[compared.opcode]]
            return f"({sides[0].text} {_BINARY[compared.opcode][1]} {sides[1].text})"
    if isinstance(expr, int) or getattr(expr, "is_Integer", False):
        return _constant(int(expr), code)
    if kind in ("BooleanTrue", "BooleanFalse"):
        return _constant(int(bool(expr)), code)
    if isinstance(expr, SizeSource):
        code.append(expr)
        return expr.name()
    if isinstance(expr, Relation):
        left = _compile(expr.left, places, code)
        right = _compile(expr.right, places, code)
        code.append(expr.op)
        return f"({left} {_BINARY[expr.op][1]} {right})"
    if expr in places:
        found = places[expr]
        if _is_float(expr, places):
            raise Inexpressible(f"the float {expr} among integers")
        code += found.code if isinstance(found, Term) else [found]
        return found.text if isinstance(found, Term) else found.name()
    if kind == "Not":
        text = _compile(expr.args[0], places, code)
        code.append("NOT")
        return f"not {text}"
    if kind == "Pow":
        return _power(expr, places, code)
    if kind not in OPERATIONS:
        raise Inexpressible(f"{kind} in {expr}")
    operation = OPERATIONS[kind]
    args = tuple(reversed(expr.args)) if operation.swapped else tuple(expr.args)
    parts = [_compile(args[0], places, code)]
    for arg in args[1:]:
        parts.append(_compile(arg, places, code))
        code.append(operation.opcode)
    return operation.text(parts)


def _is_float(expr: Any, places: Mapping[Any, SizeSource | Term]) -> bool:
    """Whether a side of a comparison is computed of floats: by their bits on the stack."""
    atoms = [expr, *getattr(expr, "args", ())]
    known = [places[atom] for atom in atoms if atom in places]
    return any(getattr(atom, "is_Float", False) for atom in atoms) or any(
        isinstance(place, Term) and type(place.value) is float for place in known
    )


def _float_term(expr: Any, places: Mapping[Any, SizeSource | Term]) -> Term:
    """A float of the program, a constant, or what comes of one in a single operation that rounds as
    Python does, however torch has put the expression down. Raises `Inexpressible`."""
    kind = type(expr).__name__
    if expr in places:
        found = places[expr]
        if isinstance(found, Term) and type(found.value) is float:
            return found
    elif getattr(expr, "is_Float", False) or getattr(expr, "is_Integer", False):
        value = float(expr)
        if getattr(expr, "is_Float", False) or abs(value) <= _EXACT:
            return Term.of_float(value, value)
    elif kind == "Mul" and len(expr.args) == 2 and expr.args[0] in (-1, -1.0):
        return Term.of_float(-1.0, -1.0).combine("FMUL", _float_term(expr.args[1], places))
    elif kind == "PythonMod" and getattr(expr.args[1], "is_number", False):
        return Term.called(operator.mod, [_float_term(part, places) for part in expr.args])
    raise Inexpressible(f"{kind} of floats in {expr}")


def _constant(value: int, code: list[Any]) -> str:
    if not -_LARGEST <= value <= _LARGEST:
        raise Inexpressible(f"{value} is beyond 64 bits")
    code.append(value)
    return str(value)


def _power(expr: Any, places: Mapping[Any, SizeSource | Term], code: list[Any]) -> str:
    base, exponent = expr.args
    if not getattr(exponent, "is_Integer", False) or not 1 <= int(exponent) <= 8:
        raise Inexpressible(f"{expr}")
    text = _compile(base, places, code)
    for _ in range(int(exponent) - 1):
        _compile(base, places, code)
        code.append("MUL")
    return f"{text} ** {exponent}"


def _got(values: Any, params: Params) -> str:
    program: SizeProgram = params[0]
    where = dict(zip(program.sources(), values, strict=True))
    places = dict.fromkeys(item for item in program.code if isinstance(item, SizeSource))
    return ", ".join(f"{place.name()} = {place.read(where[place.source])!r}" for place in places)


SIZES = register(
    "SIZES",
    lambda values, params: params[0].holds(values),
    expected=lambda params: params[0].text,
    got=_got,
    relation="sizes",
)
