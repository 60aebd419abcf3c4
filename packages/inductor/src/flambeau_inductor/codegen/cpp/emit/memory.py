"""Memory accesses: loads, masked loads, in-register transposes, prefetches, stores, scratch rows.

In: `KernelVariables` and the position of an instruction. Out: lines that read, fetch or write.
Invariant: outside the lanes in use (`n`), and where a mask is false, nothing is read or written.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from flambeau_inductor.codegen.cpp.analysis.streaming import Ahead
from flambeau_inductor.codegen.cpp.analysis.vectorization import whole_blocks
from flambeau_inductor.codegen.cpp.dtypes import ROUNDED, literal, spelling_of
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.errors import CppUnsupported
from flambeau_inductor.indexing import Expr, Var, to_c
from flambeau_inductor.ir.loops import Const, IndexValue, Load, Point, Store, ValueId


def load(values: KernelVariables, value: ValueId, instr: Load) -> None:
    """Declare what a load reads."""
    memory, width = values.dtype_of(instr.buffer), values.width
    if memory is not instr.dtype:
        raise CppUnsupported(f"a load of {memory} as {instr.dtype}")
    if value in values.transposed:
        values.declare(value, f"load{width}({values.transposed[value]}, width<{width}>{{}})")
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
    elif step == -1:
        whole = f"backwards{width}({base} + {values.address(instr.index)}, n)"
    elif step == 0:
        whole = f"splat{width}(load1({base} + {values.address(instr.index)}))"
    each = f"load1({base} + {values.address(instr.index, 'l')})"
    if instr.mask is not None:
        _masked(values, value, instr, whole, each)
    elif whole is not None:
        values.declare(value, whole)
    else:
        values.by_lanes(value, each, literal(0, instr.dtype), None)


def _masked(
    values: KernelVariables, value: ValueId, instr: Load, whole: str | None, each: str
) -> None:
    """Read the lanes of a mask: all at once by `whole` after one branch, or lane by lane."""
    asked = instr.mask
    assert asked is not None
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


def transpose(values: KernelVariables, value: ValueId, var: str, columns: int | None) -> None:
    """Read a load's numbers for the points of `var` from `{var}_t` on, a vector for each: into an
    array of their own, or into a square of the tile q, whose rows hold `columns` lanes and which
    begins at `{var}_b` and, for the lanes, likewise."""
    instr, lanes, apart = values.plan.loop.body[value], values.plan.vector, columns or values.width
    if not isinstance(instr, Load):
        raise CppUnsupported(f"{type(instr).__name__} reads no memory")
    if columns is None:
        lane = spelling_of(instr.dtype).value
        values.text(f"alignas(64) {lane} q{value}[{apart * apart}];")
        into, values.transposed[value] = f"q{value}", f"q{value} + {apart} * ({var} - {var}_t)"
    else:
        row, lane = f"q{value} + {apart} * (%s - {var}_b)", f" + ({lanes} - {lanes}_b)"
        into, values.transposed[value] = row % f"{var}_t" + lane, row % var + lane
    # the first point's variable is not declared yet
    ranges = {**values.plan.ranges, f"{var}_t": values.plan.ranges[var]}
    first = to_c(instr.index.substitute({var: Var(f"{var}_t")}), ranges)
    where = f"{values.pointer(instr.buffer)} + {first}, {values.step(instr.index)}"
    values.text(f"transpose{values.width}({where}, {into}, {apart}, count, n);")


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
        ranges = {v: (0, 2**40) for m in moved.values() for v in m.vars}
        index = to_c(instr.index.substitute(moved), {**values.plan.ranges, **ranges})
        place = f"{values.pointer(instr.buffer)} + {index}"
        values.text(f"__builtin_prefetch({place}, 0, {3 if near else 2});")


COMBINE = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}
"""What a store does with the element that is there."""


def store(values: KernelVariables, position: ValueId) -> None:
    """Write a value to its buffer."""
    instr = values.plan.loop.body[position]
    if not isinstance(instr, Store):
        raise CppUnsupported(f"{type(instr).__name__} does not store")
    base = values.pointer(instr.buffer)
    values.stored.add(instr.buffer)
    value_dtype = values.dtype(instr.value)
    memory = values.dtype_of(instr.buffer)
    if memory is not value_dtype:
        raise CppUnsupported(f"a store of {value_dtype} into {memory}")
    if instr.mode == "total":
        raise CppUnsupported("a loop over rows that also sums their columns (`total` stores)")
    combine = COMBINE.get(instr.mode)

    def combined(there: str, value: str) -> str:
        text = value if combine is None else f"{combine}({there}, {value})"
        rounds = instr.mode in ("add", "mul") and memory in ROUNDED
        return f"{ROUNDED[memory]}({text})" if rounds else text

    if not values.plan.is_vector(position):
        to, what = f"{base} + {values.address(instr.index)}", values.name(instr.value)
        values.text(f"store1({to}, {combined(f'load1({to})', what)});")
        return
    if values.step(instr.index) == 1:
        # neighbours never meet
        to, what = f"{base} + {values.address(instr.index)}", values.operand(instr.value, True)
        if position in values.streamed:
            values.text(f"stream({to}, {what}, n);")
            return
        values.text(f"store({to}, {combined(f'load{values.width}({to}, n)', what)}, n);")
        return
    what = values.name(instr.value)
    if values.plan.is_vector(instr.value):
        what += "[l]"
    to = f"{base} + {values.address(instr.index, 'l')}"
    what = f"({spelling_of(value_dtype).value}){what}"
    values.text(
        f"for (long l = 0; l < (long)n; ++l) store1({to}, {combined(f'load1({to})', what)});"
    )


def declare_rows(values: KernelVariables) -> None:
    """Local arrays for the element values that are kept from one pass to the next."""
    length = to_c(values.plan.length, {})
    for value in sorted(values.plan.scratch):
        lane = spelling_of(values.dtype(value)).value
        values.text(f"{lane} row{value}[{length}];")
        values.text(f"{lane}* const s{value} = row{value};")


def _row_index(values: KernelVariables) -> str:
    """Where an element is in its row."""
    axes = values.plan.loop.r
    steps = [prod(b.size for b in axes[k + 1 :]) for k in range(len(axes))]
    return " + ".join(
        axis.var if isinstance(step, int) and step == 1 else f"{axis.var}*{to_c(step, {})}"
        for axis, step in zip(axes, steps)
    )


def keep_row(values: KernelVariables, value: ValueId) -> None:
    """Write an element value to its row."""
    what = values.operand(value, True)
    values.text(f"store(s{value} + {_row_index(values)}, {what}, n);")


def recall_row(values: KernelVariables, value: ValueId) -> None:
    """Read an element value back from its row."""
    read = f"load{values.width}(s{value} + {_row_index(values)}, n)"
    kind = values.type_of(values.dtype(value), True)
    values.text(f"const {kind} v{value} = {read};")


def row_position(values: KernelVariables, vector: bool) -> str:
    """Position in the row as i32, in the flavour of an accumulator."""
    first = f"(i32)({_row_index(values)})"
    if not vector:
        return first
    moves = bool(values.plan.loop.r) and values.plan.vector == values.plan.loop.r[-1].var
    return f"splat{values.width}({first})" + (f" + lanes{values.width}()" if moves else "")
