"""Scratch rows kept between passes over a row.

In: `KernelVariables` and the position of an element value. Out: lines that declare `s<position>`,
write a vector to it and read it back. Invariant: an element is where its place in the row says,
whatever the pass.
"""

from __future__ import annotations

from math import prod

from flambeau_inductor.codegen.cpp.dtypes import spelling_of
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.indexing import to_c
from flambeau_inductor.ir.loops import ValueId


def declare(values: KernelVariables) -> None:
    """Local arrays for the element values that are kept from one pass to the next."""
    length = to_c(values.plan.length, {})
    for value in sorted(values.plan.scratch):
        lane = spelling_of(values.dtype(value)).value
        values.text(f"{lane} row{value}[{length}];")
        values.text(f"{lane}* const s{value} = row{value};")


def _position(values: KernelVariables) -> str:
    """Where an element is in its row."""
    axes = values.plan.loop.r
    steps = [prod(b.size for b in axes[k + 1 :]) for k in range(len(axes))]
    return " + ".join(
        axis.var if isinstance(step, int) and step == 1 else f"{axis.var}*{to_c(step, {})}"
        for axis, step in zip(axes, steps)
    )


def keep(values: KernelVariables, value: ValueId) -> None:
    """Write an element value to its row."""
    what = values.operand(value, True)
    values.text(f"store(s{value} + {_position(values)}, {what}, n);")


def recall(values: KernelVariables, value: ValueId) -> None:
    """Read an element value back from its row."""
    read = f"load{values.width}(s{value} + {_position(values)}, n)"
    kind = values.type_of(values.dtype(value), True)
    values.text(f"const {kind} v{value} = {read};")


def position(values: KernelVariables, vector: bool) -> str:
    """Position in the row as i32, in the flavour of an accumulator."""
    first = f"(i32)({_position(values)})"
    if not vector:
        return first
    moves = bool(values.plan.loop.r) and values.plan.vector == values.plan.loop.r[-1].var
    return f"splat{values.width}({first})" + (f" + lanes{values.width}()" if moves else "")
