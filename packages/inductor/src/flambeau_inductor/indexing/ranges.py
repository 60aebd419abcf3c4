"""Simplification of index expressions by ranges.

In: an expression and `{variable: (lowest, highest)}`, both ends included. Out: a simpler expression
with the same value everywhere in the ranges. Invariant: a variable without a range may be any
64-bit integer.
"""

from __future__ import annotations

from math import gcd

from flambeau_inductor.indexing.expr import (
    Add,
    Division,
    Expr,
    FloorDiv,
    IntegerConstant,
    Mod,
    Mul,
    Ranges,
    add,
    bounds,
    divide_by_factors,
    factors,
    floordiv,
    from_terms,
    known,
    mod,
    mul,
    summands,
    symbols_in,
    terms_of,
)
from flambeau_inductor.indexing.symbols import at_most


def simplify(expr: Expr, ranges: Ranges) -> Expr:
    """The same value for all variables in their ranges, with fewer divisions."""
    if not _divides(expr):
        return expr
    args = [simplify(arg, ranges) for arg in expr.args]
    if isinstance(expr, Division):
        return _divided(type(expr), args[0], args[1], ranges)
    made = expr.of(args)
    return _recombine(made, ranges) if isinstance(expr, Add) else made


def _divides(expr: Expr) -> bool:
    return isinstance(expr, Division) or any(map(_divides, expr.args))


def _divided(kind: type[Division], a: Expr, b: Expr, ranges: Ranges) -> Expr:
    """`a // b` or `a % b`."""
    quotient, rest = kind is FloorDiv, a
    if not isinstance(b, IntegerConstant) or symbols_in(a):
        whole, rest = _without_multiples(a, b)
        if _within(rest, b, ranges):
            return whole if quotient else rest
        if not isinstance(b, IntegerConstant):
            coarse = _in_units(rest, b, ranges)
            if coarse is None:
                return floordiv(a, b) if quotient else mod(rest, b)
            upper, divisor, unit, lower = coarse
            part = _divided(kind, upper, divisor, ranges)
            return add((whole, part) if quotient else (mul(part, IntegerConstant(unit)), lower))
    low, high = bounds(a, ranges)
    least = low // b.value
    if least == high // b.value:
        return IntegerConstant(least) if quotient else a - least * b.value
    if (cut := _digits(a, b.value, ranges)) is not None:
        upper, lower, scale = cut
        part = _divided(kind, upper, IntegerConstant(b.value // scale), ranges)
        return part if quotient else add((mul(IntegerConstant(scale), part), lower))
    result = floordiv(a, b) if quotient else mod(a, b)
    if isinstance(result, kind) and (result.a != a or result.b != b):
        return _divided(kind, result.a, result.b, ranges)
    return simplify_parts(result, ranges, (a, b)) if isinstance(result, Add | Mul) else result


def _without_multiples(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """`a = whole * b + rest`, term by term."""
    quotient = floordiv(a, b)
    parts = summands(quotient)
    total = add(p for p in parts if not any(isinstance(f, FloorDiv) for f in factors(p)))
    return total, a - mul(total, b)


def _in_units(a: Expr, b: Expr, ranges: Ranges) -> tuple[Expr, Expr, int, Expr] | None:
    """`a = unit * upper + lower`, `b = unit * divisor`, `0 <= lower < unit`; None if it has no such
    form. Then `a // b` is `upper // divisor`."""
    if not (isinstance(b, Mul) and isinstance(b.args[0], IntegerConstant) and b.args[0].value > 1):
        return None
    unit = b.args[0].value
    upper = _divided(FloorDiv, a, IntegerConstant(unit), ranges)
    lower = _divided(Mod, a, IntegerConstant(unit), ranges)
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
        if isinstance(term, Division) and (term.a, term.b) != before:
            term = _divided(type(term), term.a, term.b, ranges)
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
            product = mul(_divided(FloorDiv, low.a, low.b, ranges), low.b)
            wholes, extra = terms_of(mul(product, IntegerConstant(c)))
            if extra == 0 and len(wholes) == 1 and wholes.items() <= terms.items():
                left = {t: n for t, n in terms.items() if t != low and t not in wholes}
                return left, mul(IntegerConstant(c), low.a)
        if not (isinstance(low, Mod) and isinstance(low.b, IntegerConstant)):
            continue
        upper = _divided(FloorDiv, low.a, low.b, ranges)
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
                whole = _divided(Mod, low.a, IntegerConstant(low.b.value * high.b.value), ranges)
                return left, mul(IntegerConstant(c), whole)
    return None
