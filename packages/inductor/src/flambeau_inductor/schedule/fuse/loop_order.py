"""Loop interchange, splitting and merging for the memory traversed.

In: a `Loop`. Out: the same loop over other axes. Invariant: the set of points and the instructions
at each are unchanged; reductions by position (argmax) keep the row-major order of `r`.

1. An axis used as `v // k` and `v % k` becomes two, so that addresses are linear again.
2. `x` axes (and `r` axes) are ordered by the strides of loads and stores, largest outermost.
3. Neighbours over which every address moves as over one become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from flambeau_inductor.indexing import (
    Add,
    Expr,
    FloorDiv,
    IntegerConstant,
    Mod,
    Mul,
    Ranges,
    Var,
    at_least,
    decide_equal,
    hint,
    is_size,
    known,
    plain,
    simplify,
)
from flambeau_inductor.ir.loops import Axis, IndexValue, Instr, Load, Loop, Reduce, Scan, Store
from flambeau_inductor.ir.operands import reindexed


def normalised(loop: Loop) -> Loop:
    """Split, order, merge, rename."""
    return _renamed(_merged(_ordered(_split(_drop_ones(loop)))))


def ranges_of(loop: Loop) -> Ranges:
    """Ranges of the loop's variables."""
    return {a.var: (0, at_least(a.size - 1, 0)) for a in (*loop.x, *loop.r)}  # type: ignore[type-var]


def indices(body: Iterable[Instr]) -> list[Expr]:
    """Index expressions of all instructions."""
    found = [i.index for i in body if isinstance(i, Load | Store | IndexValue)]
    return found + [e for i in body if isinstance(i, Store) for e in i.apart]


def substituted(
    body: Iterable[Instr], mapping: Mapping[str, int | Expr], ranges: Ranges
) -> tuple[Instr, ...]:
    """The body with loop variables replaced in every index."""

    def moved(index: Expr) -> Expr:
        if index.vars.isdisjoint(mapping):
            return index
        return simplify(index.substitute(mapping), ranges)

    return tuple(reindexed(instr, moved) for instr in body)


def _drop_ones(loop: Loop) -> Loop:
    ones = {a.var: 0 for a in (*loop.x, *loop.r) if decide_equal(a.size, 1)}
    if not ones:
        return loop
    x, r = (tuple(a for a in axes if a.var not in ones) for axes in (loop.x, loop.r))
    return replace(loop, x=x, r=r, body=substituted(loop.body, ones, ranges_of(loop)))


def _split(loop: Loop) -> Loop:
    for _ in range(4):
        wanted: dict[str, set[int | Expr]] = {}
        for index in indices(loop.body):
            _divisors(index, wanted)
        mapping: dict[str, Expr] = {}
        x = tuple(new for a in loop.x for new in _pieces(a, wanted.get(a.var), mapping))
        r = tuple(new for a in loop.r for new in _pieces(a, wanted.get(a.var), mapping))
        if not mapping:
            return loop
        loop = replace(loop, x=x, r=r)
        loop = replace(loop, body=substituted(loop.body, mapping, ranges_of(loop)))
    return loop


def _divisors(expr: Expr, wanted: dict[str, set[int | Expr]]) -> None:
    """For `(v + ...) // k` and `% k`: cutting `v` at `k` would help."""
    if isinstance(expr, Add | Mul):
        for arg in expr.args:
            _divisors(arg, wanted)
    elif isinstance(expr, FloorDiv | Mod):
        _divisors(expr.a, wanted)
        if isinstance(expr.a, Var) and is_size(expr.b):
            wanted.setdefault(expr.a.name, set()).add(plain(expr.b))
        elif isinstance(expr.a, FloorDiv) and isinstance(expr.a.a, Var):
            inner, outer = expr.a.b, expr.b
            if is_size(inner) and is_size(outer):
                found = wanted.setdefault(expr.a.a.name, set())
                found.update((plain(inner), plain(inner * outer)))


def _pieces(axis: Axis, divisors: set[int | Expr] | None, mapping: dict[str, Expr]) -> list[Axis]:
    size = axis.size
    chain: list[int | Expr] = [1]
    for divisor in sorted(divisors or (), key=hint):
        inside = known("lt", 1, divisor) and known("lt", divisor, size)
        if inside and all(known("eq", n, 0) for n in (size % divisor, divisor % chain[-1])):
            chain.append(divisor)
    if len(chain) == 1:
        return [axis]
    pieces: list[Axis] = []
    whole: Expr = IntegerConstant(0)
    outer = size
    for position, step in enumerate(reversed(chain)):
        piece = Axis(f"{axis.var}_{position}", plain(outer // step))
        pieces.append(piece)
        whole = whole + Var(piece.var) * step
        outer = step
    mapping[axis.var] = whole
    return pieces


def _ordered(loop: Loop) -> Loop:
    positional = any(
        isinstance(i, Scan) or (isinstance(i, Reduce) and i.kind in ("argmax", "argmin"))
        for i in loop.body
    )
    # points that meet keep their order
    meet = any(isinstance(i, Store) and i.scattered for i in loop.body)
    x = loop.x if meet else _by_stride(loop, loop.x)
    r = loop.r if positional else _by_stride(loop, loop.r)
    return replace(loop, x=x, r=r)


def _by_stride(loop: Loop, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Axes from largest to smallest stride: each access votes, by the elements it touches."""
    if len(axes) < 2:
        return axes
    accesses: dict[tuple[str, str], tuple[Expr, int]] = {}  # the first by place
    for instr in loop.body:
        if isinstance(instr, Load | Store):
            vote = (instr.index, 3 if isinstance(instr, Store) else 2)
            accesses.setdefault((instr.buffer, instr.index.key), vote)
    votes: dict[str, float] = dict.fromkeys((a.var for a in axes), 0.0)
    sizes = [(hint(a.size), a.var) for a in axes]
    for index, weight in accesses.values():
        steps = {a.var: index.coefficient(a.var) for a in axes}
        moving = [(abs(hint(s)), v) for v, s in steps.items() if s]
        # By the elements touched: a vector that is broadcast must not outvote whole tensors.
        share = float(weight)
        for size, var in sizes:
            share *= size if steps[var] else 1
        for rank, (_, var) in enumerate(sorted(moving)):
            # Innermost in this access: votes for being innermost, and so on outwards.
            votes[var] += share * 4.0**-rank if rank < 6 else 0.0
    order = {a.var: i for i, a in enumerate(axes)}
    return tuple(sorted(axes, key=lambda a: (votes[a.var], order[a.var])))


def _merged(loop: Loop) -> Loop:
    body, merged = loop.body, (list[Axis](), list[Axis]())
    for axes, found in zip((loop.x, loop.r), merged, strict=True):
        for axis in axes:
            if found and _may_collapse(found[-1], axis, body):
                outer = found.pop()
                # Affine in both with matching strides: the outer one's terms just go away.
                body = substituted(body, {outer.var: 0}, {})
                axis = Axis(axis.var, plain(outer.size * axis.size))
            found.append(axis)
    return replace(loop, x=tuple(merged[0]), r=tuple(merged[1]), body=body)


def _may_collapse(outer: Axis, inner: Axis, body: tuple[Instr, ...]) -> bool:
    for index in indices(body):
        a, b = index.coefficient(outer.var), index.coefficient(inner.var)
        if a is None or b is None or known("eq", a, b * inner.size) is not True:
            return False
    return True


def _renamed(loop: Loop) -> Loop:
    x = tuple(Axis(f"x{i}", a.size) for i, a in enumerate(loop.x))
    r = tuple(Axis(f"r{i}", a.size) for i, a in enumerate(loop.r))
    pairs = zip((*loop.x, *loop.r), (*x, *r), strict=True)
    mapping = {old.var: Var(new.var) for old, new in pairs if old.var != new.var}
    if not mapping:
        return loop
    return replace(loop, x=x, r=r, body=substituted(loop.body, mapping, {}))
