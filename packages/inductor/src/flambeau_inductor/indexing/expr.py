"""Index expressions in canonical form.

In: Python ints and variable names. Out: immutable `Expr` nodes, equal exactly when their canonical
forms are. Invariant: a node built through the operators (or `add`, `mul`, `floordiv`, `mod`) is
flat, its like terms are collected, its constants are folded and its products are multiplied out.

Division is Python's: `//` rounds down, `%` has the sign of the divisor, divisors are positive.
Sizes that are left open are `Symbol`s, variables with a range and a value: an expression of these
alone equals a number where its bounds say so. Bounds are never narrower than the truth. sympy is
not needed for any of this.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import gcd, prod
from operator import attrgetter
from typing import TYPE_CHECKING

from flambeau_prims import NotYetSymbolic

LARGEST = 2**48
"""No dimension of a tensor in memory is larger."""

Range = tuple[int, int]


class Expr:
    """Base of all nodes. `key` is the canonical text: it decides equality, hash and order. `vars`
    are the names of the variables that occur, `args` what an operation is of."""

    __slots__ = ("_hash", "key", "vars")

    args: tuple[Expr, ...] = ()

    def __init__(self, key: str, names: frozenset[str]) -> None:
        self.key = key
        self._hash = hash(key)
        self.vars = names

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Whether they are known to be equal; `decide_equal` is for whoever must know."""
        if isinstance(other, Expr):
            return self.key == other.key
        if isinstance(other, int):
            return is_size(self) and known("eq", self, other) is True
        return NotImplemented

    if not TYPE_CHECKING:  # the type checker refuses these; where one is reached, sizes are fixed

        def _compared(self, other: int | Expr) -> bool:
            raise NotYetSymbolic(f"the order of {self} and {other} is asked without deciding it")

        __lt__ = __gt__ = __le__ = __ge__ = _compared

    def __repr__(self) -> str:
        return self.key

    def __add__(self, other: int | Expr) -> Expr:
        return add((self, as_expr(other)))

    __radd__ = __add__

    def __sub__(self, other: int | Expr) -> Expr:
        return add((self, mul(MINUS_ONE, as_expr(other))))

    def __rsub__(self, other: int | Expr) -> Expr:
        return add((as_expr(other), mul(MINUS_ONE, self)))

    def __neg__(self) -> Expr:
        return mul(MINUS_ONE, self)

    def __mul__(self, other: int | Expr) -> Expr:
        return mul(self, as_expr(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: int | Expr) -> Expr:
        return floordiv(self, as_expr(other))

    def __rfloordiv__(self, other: int) -> Expr:
        return floordiv(as_expr(other), self)

    def __mod__(self, other: int | Expr) -> Expr:
        return mod(self, as_expr(other))

    def __rmod__(self, other: int) -> Expr:
        return mod(as_expr(other), self)

    def substitute(self, mapping: Mapping[str, int | Expr]) -> Expr:
        """The expression with variables replaced, all at once."""
        if self.vars.isdisjoint(mapping):
            return self
        return self.of([arg.substitute(mapping) for arg in self.args])

    def of(self, args: Sequence[Expr]) -> Expr:
        """The same operation, of others, in canonical form."""
        raise NotImplementedError

    def coefficient(self, var: str) -> int | None:
        """The factor of `var`, an integer or an expression of symbols (spelled `int` here, as sizes
        are); None where the expression is not affine in it."""
        return None if var in self.vars else 0


def is_size(expr: Expr) -> bool:
    """Whether an expression has a value: it speaks of symbols alone."""
    return not expr.vars or len(symbols_in(expr)) == len(expr.vars)


class IntegerConstant(Expr):
    """An integer."""

    __slots__ = ("value",)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.value == other
        return Expr.__eq__(self, other)

    __hash__ = Expr.__hash__

    def __init__(self, value: int) -> None:
        self.value = int(value)
        super().__init__(str(self.value), NO_VARS)


class Var(Expr):
    """A loop variable, a size, or `%<id>`: the value of a loop instruction."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name, frozenset((name,)))

    def substitute(self, mapping: Mapping[str, int | Expr]) -> Expr:
        found = mapping.get(self.name)
        return self if found is None else as_expr(found)

    def coefficient(self, var: str) -> int | None:
        return 1 if var == self.name else 0


class Add(Expr):
    """A sum of at least two terms, the constant last."""

    __slots__ = ("args",)

    def __init__(self, args: tuple[Expr, ...]) -> None:
        self.args = args
        super().__init__("(" + " + ".join(a.key for a in args) + ")", _names(args))

    def of(self, args: Sequence[Expr]) -> Expr:
        return add(args)

    def coefficient(self, var: str) -> int | None:
        total = 0
        for arg in self.args:
            part = arg.coefficient(var)
            if part is None:
                return None
            total += part
        return total


class Mul(Expr):
    """A product of at least two factors: the constant (if any) first, no factor a sum."""

    __slots__ = ("args",)

    def __init__(self, args: tuple[Expr, ...]) -> None:
        self.args = args
        super().__init__("*".join(a.key for a in args), _names(args))

    def of(self, args: Sequence[Expr]) -> Expr:
        return product(args)

    def coefficient(self, var: str) -> int | None:
        if var not in self.vars:
            return 0
        (moving, *more) = [factor for factor in self.args if var in factor.vars]
        rest = [factor for factor in self.args if var not in factor.vars]
        if more or not isinstance(moving, Var) or not all(map(is_size, rest)):
            return None
        return plain(product(rest))  # type: ignore[return-value]


class Division(Expr):
    """A quotient or a remainder of `a` by `b`, which is positive."""

    __slots__ = ("a", "args", "b")
    sign: str

    def __init__(self, a: Expr, b: Expr) -> None:
        self.args = self.a, self.b = a, b
        super().__init__(f"({a.key} {self.sign} {b.key})", a.vars | b.vars)


class FloorDiv(Division):
    """`a // b`, rounded down."""

    __slots__ = ()
    sign = "//"

    def of(self, args: Sequence[Expr]) -> Expr:
        return floordiv(*args)


class Mod(Division):
    """`a % b`, in `[0, b)`."""

    __slots__ = ()
    sign = "%"

    def of(self, args: Sequence[Expr]) -> Expr:
        return mod(*args)


@dataclass(frozen=True, slots=True)
class Decision:
    """`expr` compared with zero by `relation` (`lt`, `eq`) came out as `truth`."""

    relation: str
    expr: Expr
    truth: bool


SizeDecisions = dict[Decision, None]
"""What was assumed about the sizes of one compile, in order."""


class Symbol(Var):
    """A size that is known when the program runs."""

    __slots__ = ("by_data", "decisions", "high", "hint", "low")

    def __init__(
        self,
        name: str,
        hint: int,
        decisions: SizeDecisions,
        low: int = 2,
        high: int = LARGEST,
        by_data: bool = False,
    ) -> None:
        super().__init__(name)
        self.by_data = by_data
        self.hint = hint
        self.decisions = decisions
        self.low = low
        self.high = high


Size = int | Expr
"""A size, a stride, an offset: a number, or an expression of symbols."""

Ranges = Mapping[str, tuple[int, int | Expr]]
"""Lowest and highest value by variable; the highest may be an expression of symbols."""

LOWEST = -(2**63)
HIGHEST = 2**63 - 1

NO_VARS: frozenset[str] = frozenset()
ZERO = IntegerConstant(0)
ONE: Expr = IntegerConstant(1)
MINUS_ONE = IntegerConstant(-1)


def as_expr(value: int | Expr) -> Expr:
    """An int as a `IntegerConstant`; an expression as it is. Anything else is a TypeError."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, int):
        return IntegerConstant(value)
    raise TypeError(f"expected an int or an index expression, got {type(value).__name__}")


def terms_of(*parts: Expr) -> tuple[dict[Expr, int], int]:
    """The sum of expressions as `sum(factor * coefficient) + constant`, like terms collected."""
    terms: dict[Expr, int] = {}
    constant = 0
    for part in parts:
        for leaf in summands(part):
            if isinstance(leaf, IntegerConstant):
                constant += leaf.value
            else:
                rest, coefficient = _split(leaf)
                terms[rest] = terms.get(rest, 0) + coefficient
    return terms, constant


def from_terms(terms: Mapping[Expr, int], constant: int) -> Expr:
    """The inverse of `terms_of`: drops zero terms, sorts, adds the constant last."""
    parts = sorted((_scaled(rest, c) for rest, c in terms.items() if c), key=_ORDER)
    if constant or not parts:
        parts.append(IntegerConstant(constant))
    return parts[0] if len(parts) == 1 else Add(tuple(parts))


def add(parts: Iterable[Expr]) -> Expr:
    """The canonical sum."""
    return from_terms(*terms_of(*parts))


def _with_coefficients(expr: Expr, of: Callable[[int], int]) -> Expr:
    terms, constant = terms_of(expr)
    return from_terms({term: of(c) for term, c in terms.items()}, of(constant))


def product(factors: Iterable[Expr]) -> Expr:
    """The canonical product of any number of factors."""
    return reduce(mul, factors, ONE)


def mul(a: Expr, b: Expr) -> Expr:
    """The canonical product, multiplied out over sums."""
    if isinstance(b, IntegerConstant):
        a, b = b, a
    if isinstance(a, IntegerConstant):
        return b if a.value == 1 else _with_coefficients(b, a.value.__mul__)
    if isinstance(a, Add):
        return add([mul(part, b) for part in a.args])
    if isinstance(b, Add):
        return add([mul(a, part) for part in b.args])
    (rest_a, ca), (rest_b, cb) = _split(a), _split(b)
    both = sorted((*factors(rest_a), *factors(rest_b)), key=_ORDER)
    return _scaled(Mul(tuple(both)), ca * cb)


def floordiv(a: Expr, b: Expr) -> Expr:
    """The canonical `a // b`, with what holds for every value of the variables."""
    if a == b:
        return ONE
    if not isinstance(b, IntegerConstant):
        whole, rest = divide_by_factors(a, b)
        if isinstance(rest, IntegerConstant) and rest.value == 0:
            return whole
        return add((whole, FloorDiv(rest, b)))
    k = b.value
    if k <= 0:
        raise ValueError(f"division by {k}: divisors of index expressions are positive")
    whole, rest, shared = _divide(a, k)
    if not rest.vars:  # a constant in [0, k)
        return whole
    if shared > 1:
        rest = _with_coefficients(rest, lambda c: c // shared)
        inner = floordiv(rest, IntegerConstant(k // shared))
    elif isinstance(rest, FloorDiv) and isinstance(rest.b, IntegerConstant):
        inner = floordiv(rest.a, IntegerConstant(rest.b.value * k))
    elif isinstance(rest, Mod) and isinstance(rest.b, IntegerConstant) and rest.b.value % k == 0:
        inner = mod(floordiv(rest.a, b), IntegerConstant(rest.b.value // k))
    else:
        inner = FloorDiv(rest, b)
    return add((whole, inner))


def mod(a: Expr, b: Expr) -> Expr:
    """The canonical `a % b`, with what holds for every value of the variables."""
    if a == b:
        return ZERO
    if not isinstance(b, IntegerConstant):
        _, rest = divide_by_factors(a, b)
        return ZERO if isinstance(rest, IntegerConstant) and rest.value == 0 else Mod(rest, b)
    k = b.value
    if k <= 0:
        raise ValueError(f"remainder by {k}: divisors of index expressions are positive")
    _, rest, shared = _divide(a, k)
    if isinstance(rest, IntegerConstant):
        return rest
    if shared > 1:
        low = terms_of(rest)[1] % shared
        rest = _with_coefficients(rest, lambda c: c // shared)
        return mod(rest, IntegerConstant(k // shared)) * shared + low
    if isinstance(rest, Mod) and isinstance(rest.b, IntegerConstant) and rest.b.value % k == 0:
        return mod(rest.a, b)
    return Mod(rest, b)


def _divide(a: Expr, k: int) -> tuple[Expr, Expr, int]:
    """`a = whole * k + rest`, and the gcd of `k` and the coefficients of `rest`."""
    terms, constant = terms_of(a)
    whole: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    shared = k
    for term, c in terms.items():
        if c % k == 0:
            whole[term] = c // k
        else:
            rest[term] = c
            shared = gcd(shared, c)
    quotient, remainder = divmod(constant, k)
    if not rest:
        shared = 1
    return from_terms(whole, quotient), from_terms(rest, remainder), shared


def divide_by_factors(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """`a = whole * b + rest`: the terms of `a` that have all factors of the product `b`, each
    divided by it, and the others."""
    if isinstance(b, Add):
        return ZERO, a
    wanted, scale = (ONE, b.value) if isinstance(b, IntegerConstant) else _split(b)
    needed = () if wanted == ONE else factors(wanted)
    whole: list[Expr] = []
    rest: list[Expr] = []
    for part in summands(a):
        own, coefficient = (ONE, part.value) if isinstance(part, IntegerConstant) else _split(part)
        left = list(factors(own))
        for factor in needed:
            if factor not in left:
                break
            left.remove(factor)
        else:
            if coefficient % scale == 0:
                whole.append(product([IntegerConstant(coefficient // scale), *left]))
                continue
        rest.append(part)
    return add(whole), add(rest)


def _split(term: Expr) -> tuple[Expr, int]:
    if isinstance(term, Mul) and isinstance(term.args[0], IntegerConstant):
        others = term.args[1:]
        return (others[0] if len(others) == 1 else Mul(others)), term.args[0].value
    return term, 1


def _scaled(rest: Expr, coefficient: int) -> Expr:
    if coefficient == 1:
        return rest
    return Mul((IntegerConstant(coefficient), *factors(rest)))


def summands(expr: Expr) -> tuple[Expr, ...]:
    """The terms of a sum; any other expression alone."""
    return expr.args if isinstance(expr, Add) else (expr,)


def factors(expr: Expr) -> tuple[Expr, ...]:
    """The factors of a product; any other expression alone."""
    return expr.args if isinstance(expr, Mul) else (expr,)


_ORDER = attrgetter("key")


def _names(args: Iterable[Expr]) -> frozenset[str]:
    return NO_VARS.union(*(a.vars for a in args))


# --- what holds for every value of the symbols ----------------------------------------------------


def symbols_in(expr: Size) -> list[Symbol]:
    """The symbols of an expression, by name; other variables are left out."""
    found: dict[str, Symbol] = {}
    stack: list[Expr] = [] if isinstance(expr, int) else [expr]
    while stack:
        top = stack.pop()
        if isinstance(top, Symbol):
            found[top.name] = top
        stack.extend(top.args)
    return [found[name] for name in sorted(found)]


def plain(size: Size) -> Size:
    """A constant expression as the number that it is."""
    return size.value if isinstance(size, IntegerConstant) else size


def range_of(expr: Size) -> Range:
    """Lowest and highest value of an expression of symbols, common factors taken out first."""
    if isinstance(expr, Add):
        common = set.intersection(
            *({f for f in factors(part) if isinstance(f, Symbol)} for part in expr.args)
        )
        if common:
            low, high = range_of(divide_by_factors(expr, product(common))[0])
            largest = prod(symbol.high for symbol in common)
            return (low * largest if low < 0 else low), (high * largest if high > 0 else high)
    return bounds(expr, {})


def known(relation: str, a: Size, b: Size) -> bool | None:
    """Whether `a` compares so with `b` for all values of the symbols; None where it depends."""
    low, high = range_of(as_expr(a) - b)
    if relation == "lt":
        return True if high < 0 else False if low >= 0 else None
    if low == high == 0:
        return True
    return False if low > 0 or high < 0 else None


def bounds(expr: int | Expr, ranges: Ranges) -> tuple[int, int]:
    """Lowest and highest value; conservative where a variable occurs more than once."""
    if isinstance(expr, int):
        return expr, expr
    if isinstance(expr, IntegerConstant):
        return expr.value, expr.value
    if isinstance(expr, Symbol):
        return expr.low, expr.high
    if isinstance(expr, Var):
        low, high = ranges.get(expr.name, (LOWEST, HIGHEST))
        return low, high if isinstance(high, int) else range_of(high)[1]
    parts = [bounds(arg, ranges) for arg in expr.args]
    if isinstance(expr, Add):
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    if isinstance(expr, Mul):
        return reduce(partial(_corners, operator.mul), parts)
    if isinstance(expr, FloorDiv):
        (a, b), (c, d) = parts
        return _corners(operator.floordiv, (a, b), (max(1, c), max(1, d)))
    if isinstance(expr, Mod):
        (a, b), (c, d) = parts
        return (a, b) if c > 0 and a >= 0 and b < c else (0, max(0, d - 1))
    raise TypeError(f"not an index expression: {expr!r}")


def _corners(
    operation: Callable[[int, int], int], a: tuple[int, int], b: tuple[int, int]
) -> tuple[int, int]:
    found = [operation(x, y) for x in a for y in b]
    return min(found), max(found)
