"""Emission of stores and accumulating stores.

In: `KernelVariables` and the position of a store. Out: lines that write. Invariant: outside the
lanes in use (`n`) nothing is written.
"""

from __future__ import annotations

from flambeau_inductor.codegen.cpp.dtypes import ROUNDED, spelling_of
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.codegen.cpp.errors import CppUnsupported
from flambeau_inductor.ir.loops import Store, ValueId

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
