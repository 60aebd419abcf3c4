"""Emission of loads: vectors, in-register transposes, prefetches.

In: `KernelVariables` and the position of a load. Out: lines that declare `v<position>`, fill an
array, or fetch. Invariant: outside the lanes in use (`n`), and where its mask is false, nothing is
read.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau_inductor.codegen.cpp.analysis.lanes import whole_blocks
from flambeau_inductor.codegen.cpp.analysis.streaming import Ahead
from flambeau_inductor.codegen.cpp.dtypes import literal, spelling_of
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.codegen.cpp.errors import CppUnsupported
from flambeau_inductor.indexing import Expr, Var, to_c
from flambeau_inductor.ir.loops import Const, IndexValue, Load, Point, ValueId


def load(values: KernelVariables, value: ValueId, instr: Load) -> None:
    """Declare what a load reads."""
    memory, width = values.dtype_of(instr.buffer), values.width
    if memory is not instr.dtype:
        raise CppUnsupported(f"a load of {memory} as {instr.dtype}")
    if value in values.turned:
        values.declare(value, f"load{width}({values.turned[value]}, width<{width}>{{}})")
        return
    base = values.pointer(instr.buffer)
    if not values.plan.is_vector(value):
        read = f"load1({base} + {values.address(instr.index)})"
        if instr.mask is not None:
            other = literal(instr.other, instr.dtype)
            read = f"{values.name(instr.mask)} ? {read} : {other}"
        values.declare(value, read)
        return
    step = values.step(instr.index)
    whole = None
    if step == 1:
        whole = f"load{width}({base} + {values.address(instr.index)}, n)"
    elif step == 0:
        whole = f"splat{width}(load1({base} + {values.address(instr.index)}))"
    each = f"load1({base} + {values.address(instr.index, 'l')})"
    if instr.mask is not None:
        _masked(values, value, instr, instr.mask, whole, each)
    elif whole is not None:
        values.declare(value, whole)
    else:
        values.by_lanes(value, each, literal(0, instr.dtype), None)


def _masked(
    values: KernelVariables,
    value: ValueId,
    instr: Load,
    asked: ValueId,
    whole: str | None,
    each: str,
) -> None:
    """Read the lanes of a mask: all at once by `whole` where one branch tells that all are in it,
    or lane by lane."""
    other, mask = literal(instr.other, instr.dtype), values.name(asked)
    vector = values.plan.is_vector(asked)
    if vector and whole is None:
        values.by_lanes(value, each, other, mask)
        return
    kind, lane = values.type_of(instr.dtype, True), spelling_of(instr.dtype).value
    values.text(f"{kind} v{value} = splat{values.width}(({lane}){other});")
    if not vector:
        with values.text.block(f"if ({mask})"):
            if whole is not None:
                values.text(f"v{value} = {whole};")
            else:
                values.text(f"for (long l = 0; l < (long)n; ++l) v{value}[l] = {each};")
        return
    if (test := _same_for_all(values, asked)) is not None:
        values.text(f"if ({test}) v{value} = {whole};")
        return
    values.text(f"if (every({mask}, n)) v{value} = {whole};")
    values.text(
        f"else if (some({mask}, n)) for (long l = 0; l < (long)n; ++l) "
        f"if ({mask}[l]) v{value}[l] = {each};"
    )


def _same_for_all(values: KernelVariables, mask: ValueId) -> str | None:
    """A mask that no vector is cut by, as a condition on its first lane."""
    instr = values.plan.loop.body[mask]
    if not isinstance(instr, Point) or instr.op not in ("lt", "ge") or not values.plan.vector:
        return None
    place, bound = (values.plan.loop.body[a] for a in instr.args)
    if not isinstance(place, IndexValue) or not isinstance(bound, Const):
        return None
    if any(v.startswith("%") for v in place.index.vars) or not isinstance(bound.value, int):
        return None
    if not whole_blocks(place.index - bound.value, values.plan.vector, values.width):
        return None
    return f"{values.address(place.index)} {'<' if instr.op == 'lt' else '>='} {bound.value}L"


def turn(values: KernelVariables, value: ValueId, var: str) -> None:
    """Read a load's numbers for the points of `var` from `{var}_t` on, a vector for each."""
    values.text(f"alignas(64) f32 q{value}[{values.width * values.width}];")
    _turn(values, value, var, f"q{value}", values.width)
    values.turned[value] = f"q{value} + {values.width} * ({var} - {var}_t)"


def turn_tile(values: KernelVariables, value: ValueId, var: str, columns: int) -> None:
    """The same into a square of the tile q, whose rows hold `columns` lanes and which begins at
    `{var}_b` and, for the lanes, likewise."""
    lanes = values.plan.vector
    into = f"q{value} + {columns} * ({var}_t - {var}_b) + ({lanes} - {lanes}_b)"
    _turn(values, value, var, into, columns)
    into = f"q{value} + {columns} * ({var} - {var}_b) + ({lanes} - {lanes}_b)"
    values.turned[value] = into


def _turn(values: KernelVariables, value: ValueId, var: str, into: str, apart: int) -> None:
    instr = values.plan.loop.body[value]
    if not isinstance(instr, Load):
        raise CppUnsupported(f"{type(instr).__name__} reads no memory")
    # the first point's variable is not declared yet
    ranges = {**values.plan.ranges, f"{var}_t": values.plan.ranges[var]}
    first = to_c(instr.index.substitute({var: Var(f"{var}_t")}), ranges)
    where = f"{values.pointer(instr.buffer)} + {first}, {values.step(instr.index)}"
    values.text(f"turn{values.width}({where}, {into}, {apart}, count, n);")


def fetch(values: KernelVariables, ahead: Ahead) -> None:
    """Bring into a cache what the same lanes of a row to come will read."""
    fetch_at(values, ahead.loads, {ahead.axis: Var(ahead.axis) + ahead.rows}, ahead.near)


def fetch_at(
    values: KernelVariables, loads: Sequence[ValueId], moved: dict[str, Expr], near: bool = False
) -> None:
    """Bring into the second cache, or the first, what loads read where some variables are
    others."""
    for value in loads:
        instr = values.plan.loop.body[value]
        if not isinstance(instr, Load):
            raise CppUnsupported(f"{type(instr).__name__} reads no memory")
        _fetch(values, instr, moved, near)


def _fetch(values: KernelVariables, instr: Load, moved: dict[str, Expr], near: bool) -> None:
    """Ask for the line that a load would read with some variables changed."""
    ranges = {v: (0, 2**40) for m in moved.values() for v in m.vars}
    index = to_c(instr.index.substitute(moved), {**values.plan.ranges, **ranges})
    values.text(
        f"__builtin_prefetch({values.pointer(instr.buffer)} + {index}, 0, {3 if near else 2});"
    )
