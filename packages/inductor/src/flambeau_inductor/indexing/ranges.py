"""Range analysis of index expressions.

In: an expression and `{variable: (lowest, highest)}`, both ends included. Out: bounds, or a simpler
expression with the same value everywhere in the ranges. Invariant: a variable without a range may
be any 64-bit integer; bounds are never narrower than the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from flambeau_inductor.indexing.expr import (
    Add,
    Expr,
    FloorDiv,
    IntegerConstant,
    Mod,
    Mul,
    Var,
    add,
    divide_by_factors,
    floordiv,
    from_terms,
    mod,
    mul,
    terms_of,
)
from flambeau_inductor.indexing.symbols import Symbol, at_most, known, range_of, symbols_in

Ranges = Mapping[str, tuple[int, int | Expr]]
"""Lowest and highest value by variable; the highest may be an expression of symbols."""

LOWEST = -(2**63)
HIGHEST = 2**63 - 1


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
    if isinstance(expr, Add):
        pairs = [bounds(a, ranges) for a in expr.args]
        return sum(p[0] for p in pairs), sum(p[1] for p in pairs)
    if isinstance(expr, Mul):
        low, high = 1, 1
        for arg in expr.args:
            a, b = bounds(arg, ranges)
            corners = (low * a, low * b, high * a, high * b)
            low, high = min(corners), max(corners)
        return low, high
    if isinstance(expr, FloorDiv):
        a, b = bounds(expr.a, ranges)
        c, d = (max(1, e) for e in bounds(expr.b, ranges))
        corners = (a // c, a // d, b // c, b // d)
        return min(corners), max(corners)
    if isinstance(expr, Mod):
        a, b = bounds(expr.a, ranges)
        c, d = bounds(expr.b, ranges)
        if c > 0 and a >= 0 and b < c:
            return a, b
        return 0, max(0, d - 1)
    raise TypeError(f"not an index expression: {expr!r}")


def simplify(expr: Expr, ranges: Ranges) -> Expr:
    """The same value for all variables in their ranges, with fewer divisions."""
    if isinstance(expr, IntegerConstant | Var) or not _divides(expr):
        return expr
    if isinstance(expr, Add):
        return _recombine(add([simplify(a, ranges) for a in expr.args]), ranges)
    if isinstance(expr, Mul):
        result = simplify(expr.args[0], ranges)
        for arg in expr.args[1:]:
            result = mul(result, simplify(arg, ranges))
        return result
    if isinstance(expr, FloorDiv):
        return _floordiv(simplify(expr.a, ranges), simplify(expr.b, ranges), ranges)
    if isinstance(expr, Mod):
        return _mod(simplify(expr.a, ranges), simplify(expr.b, ranges), ranges)
    raise TypeError(f"not an index expression: {expr!r}")


def _divides(expr: Expr) -> bool:
    if isinstance(expr, FloorDiv | Mod):
        return True
    return isinstance(expr, Add | Mul) and any(_divides(a) for a in expr.args)


def _floordiv(a: Expr, b: Expr, ranges: Ranges) -> Expr:
    if not isinstance(b, IntegerConstant):
        whole, rest = _without_multiples(a, b)
        if _within(rest, b, ranges):
            return whole
        coarse = _in_units(rest, b, ranges)
        if coarse is not None:
            return add((whole, _floordiv(coarse[0], coarse[1], ranges)))
        return floordiv(a, b)
    if symbols_in(a):
        whole, rest = _without_multiples(a, b)
        if _within(rest, b, ranges):
            return whole
    low, high = bounds(a, ranges)
    if low // b.value == high // b.value:
        return IntegerConstant(low // b.value)
    cut = _digits(a, b.value, ranges)
    if cut is not None:
        upper, _, scale = cut
        return _floordiv(upper, IntegerConstant(b.value // scale), ranges)
    result = floordiv(a, b)
    if isinstance(result, FloorDiv) and isinstance(result.b, IntegerConstant):
        if result.a != a or result.b != b:
            return _floordiv(result.a, result.b, ranges)
    elif isinstance(result, Add | Mul):
        return simplify_parts(result, ranges, (a, b))
    return result


def _mod(a: Expr, b: Expr, ranges: Ranges) -> Expr:
    if not isinstance(b, IntegerConstant):
        _, rest = _without_multiples(a, b)
        if _within(rest, b, ranges):
            return rest
        coarse = _in_units(rest, b, ranges)
        if coarse is not None:
            upper, divisor, unit, lower = coarse
            return add((mul(_mod(upper, divisor, ranges), IntegerConstant(unit)), lower))
        return mod(rest, b)
    if symbols_in(a):
        _, rest = _without_multiples(a, b)
        if _within(rest, b, ranges):
            return rest
    low, high = bounds(a, ranges)
    quotient = low // b.value
    if quotient == high // b.value:
        return a - quotient * b.value
    cut = _digits(a, b.value, ranges)
    if cut is not None:
        upper, lower, scale = cut
        inner = _mod(upper, IntegerConstant(b.value // scale), ranges)
        return add((mul(IntegerConstant(scale), inner), lower))
    result = mod(a, b)
    if isinstance(result, Mod) and (result.a != a or result.b != b):
        return _mod(result.a, result.b, ranges)
    if isinstance(result, Add | Mul):
        return simplify_parts(result, ranges, (a, b))
    return result


def _without_multiples(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """`a = whole * b + rest`, term by term."""
    quotient = floordiv(a, b)
    whole: list[Expr] = []
    for part in quotient.args if isinstance(quotient, Add) else (quotient,):
        if not any(
            isinstance(f, FloorDiv) for f in (part.args if isinstance(part, Mul) else (part,))
        ):
            whole.append(part)
    total = add(whole)
    return total, a - mul(total, b)


def _in_units(a: Expr, b: Expr, ranges: Ranges) -> tuple[Expr, Expr, int, Expr] | None:
    """`a = unit * upper + lower`, `b = unit * divisor`, `0 <= lower < unit`; None if it has no such
    form. Then `a // b` is `upper // divisor`."""
    if not (isinstance(b, Mul) and isinstance(b.args[0], IntegerConstant) and b.args[0].value > 1):
        return None
    unit = b.args[0].value
    upper = _floordiv(a, IntegerConstant(unit), ranges)
    lower = _mod(a, IntegerConstant(unit), ranges)
    if _divides(upper) and not _divides(a):
        return None
    divisor, rest = divide_by_factors(b, IntegerConstant(unit))
    return (upper, divisor, unit, lower) if rest == 0 else None


def _within(a: Expr, b: Expr, ranges: Ranges) -> bool:
    """Whether `0 <= a < b` wherever the variables are in their ranges."""
    low, high = bounds(a, ranges)
    if low < 0:
        return False
    if high < bounds(b, ranges)[0]:
        return True
    most = at_most(a, {name: top for name, (least, top) in ranges.items() if least >= 0})
    return most is not None and known("lt", most, b) is True


def simplify_parts(expr: Expr, ranges: Ranges, before: tuple[Expr, Expr]) -> Expr:
    """Simplify the divisions that a rewrite of `before` produced (they are smaller than it)."""
    parts: list[Expr] = []
    for term, coefficient in terms_of(expr)[0].items():
        if isinstance(term, FloorDiv) and (term.a, term.b) != before:
            term = _floordiv(term.a, term.b, ranges)
        elif isinstance(term, Mod) and (term.a, term.b) != before:
            term = _mod(term.a, term.b, ranges)
        parts.append(mul(IntegerConstant(coefficient), term))
    return add((*parts, IntegerConstant(terms_of(expr)[1])))


def _digits(a: Expr, k: int, ranges: Ranges) -> tuple[Expr, Expr, int] | None:
    """`a = scale * upper + lower` with `0 <= lower < scale`, `scale > 1` dividing `k`, or None.

    Then `a // k == upper // (k // scale)` and `a % k == scale * (upper % (k // scale)) + lower`.
    """
    terms, constant = terms_of(a)
    ordered = sorted(terms.items(), key=lambda t: (-abs(t[1]), t[0].key))
    scale = k
    best: tuple[Expr, Expr, int] | None = None
    for position, (_, coefficient) in enumerate(ordered):
        scale = gcd(scale, coefficient)
        if scale == 1:
            break
        lower = from_terms(dict(ordered[position + 1 :]), constant % scale)
        low, high = bounds(lower, ranges)
        if low >= 0 and high < scale:
            upper = {t: c // scale for t, c in ordered[: position + 1]}
            best = from_terms(upper, constant // scale), lower, scale
    return best


def _recombine(expr: Expr, ranges: Ranges) -> Expr:
    """`k*(a // k) + a % k` is `a`; `k*((a // k) % n) + a % k` is `a % (k*n)`."""
    while isinstance(expr, Add):
        terms, constant = terms_of(expr)
        found = _recombined(terms, ranges)
        if found is None:
            return expr
        expr = add((from_terms(found[0], constant), found[1]))
    return expr


def _recombined(terms: dict[Expr, int], ranges: Ranges) -> tuple[dict[Expr, int], Expr] | None:
    for low, c in terms.items():
        if isinstance(low, Mod) and not isinstance(low.b, IntegerConstant):
            product = mul(_floordiv(low.a, low.b, ranges), low.b)
            wholes, extra = terms_of(mul(product, IntegerConstant(c)))
            if extra == 0 and len(wholes) == 1 and wholes.items() <= terms.items():
                left = {t: n for t, n in terms.items() if t != low and t not in wholes}
                return left, mul(IntegerConstant(c), low.a)
        if not (isinstance(low, Mod) and isinstance(low.b, IntegerConstant)):
            continue
        upper = _floordiv(low.a, low.b, ranges)
        wanted = c * low.b.value
        if terms.get(upper) == wanted:
            left = {t: n for t, n in terms.items() if t not in (low, upper)}
            return left, mul(IntegerConstant(c), low.a)
        for high, other in terms.items():
            if (
                other == wanted
                and isinstance(high, Mod)
                and isinstance(high.b, IntegerConstant)
                and high.a == upper
            ):
                left = {t: n for t, n in terms.items() if t not in (low, high)}
                whole = _mod(low.a, IntegerConstant(low.b.value * high.b.value), ranges)
                return left, mul(IntegerConstant(c), whole)
    return None
