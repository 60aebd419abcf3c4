"""Printers of loops and programs.

In: a `Loop` or a `Program`. Out: lines that read like Python. Invariant: the same IR gives the same
text, so that golden files can hold it.
"""

from __future__ import annotations

import torch

from flambeau_inductor.indexing import Add, Expr, to_python
from flambeau_inductor.indexing.expr import Division
from flambeau_inductor.ir.loops import (
    Axis,
    Check,
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Point,
    Reduce,
    ReducePart,
    Scan,
    Store,
)
from flambeau_inductor.ir.program import (
    Alloc,
    Argument,
    CheckIndex,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Ref,
    Reuse,
    RunLoop,
    Step,
)


def short(dtype: torch.dtype) -> str:
    """`float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def _index(expr: Expr) -> str:
    text = to_python(expr, lambda n: f"v{n[1:]}" if n.startswith("%") else n)
    return text[1:-1] if isinstance(expr, Add | Division) else text


def _axes(axes: tuple[Axis, ...]) -> str:
    return ", ".join(f"{a.var}: {a.size}" for a in axes)


def show_instr(position: int, instr: Instr) -> str:
    """One line; values are called `v<position>`."""
    if isinstance(instr, Store):
        sign = {"set": "=", "add": "+=", "mul": "*="}.get(instr.mode, f"{instr.mode}=")
        return f"{instr.buffer}[{_index(instr.index)}] {sign} v{instr.value}"
    if isinstance(instr, Check):
        return f"check v{instr.arg} else {instr.message!r}"
    return f"v{position} = {_value(instr)}"


def _value(instr: Instr) -> str:
    if isinstance(instr, Load):
        masked = "" if instr.mask is None else f" if v{instr.mask} else {instr.other}"
        return f"{instr.buffer}[{_index(instr.index)}]{masked}"
    if isinstance(instr, Const):
        return f"{short(instr.dtype)}({instr.value})"
    if isinstance(instr, IndexValue):
        return f"{short(instr.dtype)}({_index(instr.index)})"
    if isinstance(instr, Point):
        args = ", ".join(f"v{a}" for a in instr.args)
        return f"{instr.op}({args})" + (f" -> {short(instr.dtype)}" if instr.op == "cast" else "")
    if isinstance(instr, Reduce):
        return f"reduce.{instr.kind}(v{instr.arg})"
    if isinstance(instr, Scan):
        return f"scan.{instr.kind}(v{instr.arg})"
    if isinstance(instr, ReducePart):
        return f"v{instr.arg}[{instr.position}]"
    raise TypeError(f"not a loop instruction: {instr!r}")


def show_loop(loop: Loop) -> str:
    """The whole loop."""
    space = f"x({_axes(loop.x)})" + (f" r({_axes(loop.r)})" if loop.r else "")
    space += "" if loop.points is None else f" of {loop.points} points"
    lines = [f"loop {loop.name} over {space}:"]
    if loop.origins:
        lines.append(f"    # {', '.join(loop.origins)}")
    lines.extend("    " + show_instr(p, i) for p, i in enumerate(loop.body))
    return "\n".join(lines)


def _layout(layout: Layout) -> str:
    offset = f" + {layout.offset}" if layout.offset != 0 else ""
    return f"{short(layout.dtype)}{list(layout.shape)} strides {list(layout.stride)}{offset}"


def _argument(argument: Argument) -> str:
    if isinstance(argument, Ref):
        if argument.layout is None:
            return argument.buffer
        return f"{argument.buffer}<{_layout(argument.layout)}>"
    if isinstance(argument, tuple):
        return "[" + ", ".join(_argument(a) for a in argument) + "]"
    return repr(argument)


def show_step(step: Step) -> str:
    """One step; a loop takes several lines."""
    if isinstance(step, Alloc):
        return f"alloc {step.buffer}"
    if isinstance(step, Reuse):
        return f"reuse {step.old} as {step.buffer}"
    if isinstance(step, FreeBuffer):
        return f"free {step.buffer}"
    if isinstance(step, RunLoop):
        return show_loop(step.loop)
    if isinstance(step, CheckIndex):
        low = -step.size if step.wrap else 0
        return f"check {low} <= {_argument(step.ref)} < {step.size} else {step.error}"
    if isinstance(step, Extern):
        given = [_argument(a) for a in step.args]
        given += [f"{k}={_argument(v)}" for k, v in step.kwargs]
        given += [f"out={_argument(r)}" for r in step.into]
        names = ", ".join("_" if r is None else r for r in step.results)
        return (f"{names} = " if names else "") + f"{step.target}({', '.join(given)})"
    raise TypeError(f"not a step: {step!r}")


def show_program(program: Program) -> str:
    """Inputs, buffers, steps, outputs."""
    lines = [f"program {program.name}({', '.join(b.name for b in program.inputs)}):"]
    lines.extend(f"    {b.name}: {_layout(b.layout)}" for b in program.buffers)
    for step in program.steps:
        lines.extend("    " + line for line in show_step(step).split("\n"))
    outputs = ", ".join(_argument(o) for o in program.outputs)
    lines.append(f"    return {outputs}")
    return "\n".join(lines) + "\n"
