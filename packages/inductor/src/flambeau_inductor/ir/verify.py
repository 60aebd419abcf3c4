"""Verifiers of loops and programs.

In: a `Loop` with the layouts of its buffers, or a `Program`. Out: nothing, or `IRError` naming the
instruction and the rule. Invariant: what passes can be run without touching memory that is not
there (addresses are bounded by the sizes of the axes; looked-up ones are bounded by checks).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

import torch
from flambeau_prims.ops.pointwise import POINTWISE

from flambeau_inductor.indexing import Expr, bounds, decide_equal
from flambeau_inductor.ir.loops import (
    RANDOM,
    Check,
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Point,
    Reduce,
    Scan,
    Store,
    spans,
)
from flambeau_inductor.ir.operands import levels, operands
from flambeau_inductor.ir.program import (
    Alloc,
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
from flambeau_inductor.ir.show import show_instr
from flambeau_inductor.ir.steps import Compute


class IRError(AssertionError):
    """The IR breaks a rule of its level: a bug of the compiler, never of the user."""


KINDS = frozenset({"sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "welford"})
SCANS = frozenset({"sum", "prod", "logsumexp"})
RESULTS = {
    **{name: row.result for name, row in POINTWISE.items() if row.result is not None},
    "frexp_exponent": torch.int32,  # half of a primitive with two results
}
"""Results of another dtype than the operand's."""


def elements(layout: Layout) -> int:
    """Elements from the first to the last one that the layout reaches."""
    shape = [_int(n) for n in layout.shape]
    if decide_equal(prod(shape), 0):
        return 0
    return 1 + sum((n - 1) * _int(s) for n, s in zip(shape, layout.stride, strict=True))


def _int(size: int | Expr) -> int:
    if not isinstance(size, int):
        raise IRError(f"a symbolic size: {size}")
    return size


def verify_loop(loop: Loop, layouts: Mapping[str, Layout]) -> None:
    """SSA order, dtypes, known buffers, addresses in range."""
    sizes = [_int(axis.size) for axis in (*loop.x, *loop.r)]
    if loop.points is not None:
        whole = len(loop.x) == 2 and sizes[0] * sizes[1]
        if not 0 < loop.points <= whole or whole - loop.points >= sizes[1]:
            raise IRError(f"{loop.name}: {loop.points} points of {sizes}")
    inner = {
        axis.var: (0, size - 1) for axis, size in zip(loop.r, sizes[len(loop.x) :], strict=True)
    }
    for box in spans(loop):
        outer = {axis.var: (b.start, b.stop - 1) for axis, b in zip(loop.x, box, strict=True)}
        _verify_body(loop, layouts, outer | inner)


def _verify_body(
    loop: Loop, layouts: Mapping[str, Layout], ranges: Mapping[str, tuple[int, int]]
) -> None:
    dtypes: list[torch.dtype | None] = []
    for position, instr in enumerate(loop.body):
        try:
            _verify_instr(instr, dtypes, ranges, layouts)
        except IRError as error:
            raise IRError(f"{loop.name}: {show_instr(position, instr)}: {error}") from None
        dtypes.append(None if isinstance(instr, Store | Check) else instr.dtype)
        if isinstance(instr, Reduce | Scan) and not loop.r:
            raise IRError(f"{loop.name}: v{position} reduces, but nothing is reduced")
        if isinstance(instr, Store) and instr.combines:
            _verify_count(loop, instr)
        if isinstance(instr, Store) and instr.mode == "total":
            _verify_total(loop, instr, dtypes[instr.value])
    reduced, element = {a.var for a in loop.r}, levels(loop)[1]
    for position, instr in enumerate(loop.body):
        row = isinstance(instr, Store) and not instr.index.vars & reduced
        if row and any(element[v] for v in operands(instr)):
            raise IRError(f"{loop.name}: {show_instr(position, instr)}: a row of element values")


def _verify_count(loop: Loop, store: Store) -> None:
    """No pass has lost an axis that neither the address nor the value changes along, nor added one:
    a sum counts the elements that it is of."""
    points = loop.points or prod(_int(axis.size) for axis in loop.x)
    if loop.r:
        raise IRError(f"{loop.name}: elements combined into {store.buffer} in a loop that reduces")
    if store.count != points:
        raise IRError(
            f"{loop.name}: {store.count} elements combined into {store.buffer} by {points} points"
        )


def _verify_total(loop: Loop, store: Store, dtype: torch.dtype | None) -> None:
    if len(loop.x) != 2 or len(loop.r) != 1 or loop.x[-1].var in store.index.vars:
        raise IRError(f"{loop.name}: a total into {store.buffer} that is not one of rows")
    if dtype != torch.float32:
        raise IRError(f"{loop.name}: a total of {dtype}")


def _verify_instr(
    instr: Instr,
    dtypes: list[torch.dtype | None],
    ranges: Mapping[str, tuple[int, int]],
    layouts: Mapping[str, Layout],
) -> None:
    args = operands(instr)
    for arg in args:
        if not 0 <= arg < len(dtypes) or dtypes[arg] is None:
            raise IRError(f"v{arg} is not an earlier value")
    if isinstance(instr, Load | Store | IndexValue):
        for name in instr.index.vars:
            if name.startswith("%"):
                if dtypes[int(name[1:])] != torch.int64:
                    raise IRError(f"address from v{name[1:]}, which is {dtypes[int(name[1:])]}")
            elif name not in ranges:
                raise IRError(f"{name} is not an axis of this loop")
    if isinstance(instr, Load | Store):
        _verify_access(instr, dtypes, ranges, layouts)
    elif isinstance(instr, Point):
        _verify_point(instr, [dtypes[a] for a in args])
    elif isinstance(instr, Reduce):
        if instr.kind not in KINDS:
            raise IRError(f"no reduction is called {instr.kind}")
        position = instr.kind in ("argmax", "argmin")
        if instr.dtype != (torch.int64 if position else dtypes[instr.arg]):
            raise IRError(f"reduces {dtypes[instr.arg]} to {instr.dtype}")
    elif isinstance(instr, Scan):
        if instr.kind not in SCANS or instr.dtype != dtypes[instr.arg]:
            raise IRError(f"a scan {instr.kind} of {dtypes[instr.arg]} into {instr.dtype}")
    elif isinstance(instr, Check) and dtypes[instr.arg] != torch.bool:
        raise IRError(f"checks a value of {dtypes[instr.arg]}")
    elif isinstance(instr, Const) and isinstance(instr.value, complex):
        raise IRError("a complex constant")


def _verify_access(
    instr: Load | Store,
    dtypes: list[torch.dtype | None],
    ranges: Mapping[str, tuple[int, int]],
    layouts: Mapping[str, Layout],
) -> None:
    layout = layouts.get(instr.buffer)
    if layout is None:
        raise IRError(f"{instr.buffer} is no buffer")
    dtype = instr.dtype if isinstance(instr, Load) else dtypes[instr.value]
    if dtype != layout.dtype:
        raise IRError(f"{instr.buffer} holds {layout.dtype}, not {dtype}")
    if isinstance(instr, Load) and instr.mask is not None:
        if dtypes[instr.mask] != torch.bool:
            raise IRError("a mask that is not bool")
        return
    if any(v.startswith("%") for v in instr.index.vars):
        return
    low, high = bounds(instr.index, ranges)
    if low < 0 or high >= elements(layout):
        raise IRError(f"elements {low} to {high} of {elements(layout)}")


def _verify_point(instr: Point, args: list[torch.dtype | None]) -> None:
    if instr.op == "cast":
        return
    if instr.op == "where":
        if args[0] != torch.bool or args[1] != args[2] or args[1] != instr.dtype:
            raise IRError(f"where of {args}")
        return
    if instr.op in RANDOM:
        if args != [torch.int64, torch.int64]:
            raise IRError(f"{instr.op} of {args}: a seed and a position are needed")
        return
    if len(set(args)) > 1:
        raise IRError(f"operands of different dtypes {args}")
    if instr.dtype != RESULTS.get(instr.op, args[0]):
        raise IRError(f"{instr.op} of {args[0]} is not {instr.dtype}")


def verify_program(program: Program, templates: Collection[str] = ()) -> None:
    """Every loop, and every buffer's life: made once, used while it lives, freed once.

    Until lifetimes are planned, buffers are there from the start. Loops that stand for kernels of
    `templates`, and all those of a program with open sizes, are not looked into.
    """
    layouts = {b.name: b.layout for b in program.buffers}
    computed = all(isinstance(step, Compute) for step in program.steps)
    live = {b.name for b in (program.buffers if computed else program.inputs)}
    live |= {n for n, _ in (*program.constants, *program.scalars)}
    for step in program.steps:
        if isinstance(step, RunLoop) and not program.symbols and step.loop.name not in templates:
            verify_loop(step.loop, layouts)
        _verify_step(step, live, layouts)
    if computed:
        return
    _end_dying(live)  # a step that would only have copied it to where it is, is left out
    for output in program.outputs:
        if isinstance(output, Ref) and output.buffer not in live:
            raise IRError(f"{output.buffer} is returned, but not there")
    left = live - {o.buffer for o in program.outputs if isinstance(o, Ref)}
    left -= {n for n, _ in program.constants}
    if left:
        raise IRError(f"never freed: {sorted(left)}")


def _verify_step(step: Step, live: set[str], layouts: Mapping[str, Layout]) -> None:
    if isinstance(step, Alloc | Reuse):
        if step.buffer in live or step.buffer not in layouts:
            raise IRError(f"{step.buffer} is allocated twice or unknown")
        live.add(step.buffer)
        if isinstance(step, Reuse):
            _need(step.old, live, "taken over")
            if not _fits(layouts[step.old], layouts[step.buffer]):
                raise IRError(f"{step.buffer} does not fit into {step.old}")
            live.add(f"{step.old} dying")
    elif isinstance(step, FreeBuffer):
        _need(step.buffer, live, "freed")
        live.remove(step.buffer)
    elif isinstance(step, RunLoop):
        for instr in step.loop.body:
            if isinstance(instr, Load | Store):
                _need(instr.buffer, live, f"used in {step.loop.name}")
    elif isinstance(step, CheckIndex):
        _need(step.ref.buffer, live, "checked")
    elif isinstance(step, Extern):
        for ref in (*step.reads, *step.into):
            _need(ref.buffer, live, f"used in {step.target}")
        live.update(r for r in step.results if r is not None)
    if not isinstance(step, Alloc | Reuse):
        _end_dying(live)


def _fits(old: Layout, new: Layout) -> bool:
    """Whether two layouts reach as many elements; a size that is open is not looked at."""
    sizes = (*old.shape, *old.stride, *new.shape, *new.stride)
    return not all(isinstance(n, int) for n in sizes) or elements(old) == elements(new)


def _end_dying(live: set[str]) -> None:
    """What was taken over is gone after the step that reads it for the last time."""
    for name in [n for n in live if n.endswith(" dying")]:
        live -= {name, name.removesuffix(" dying")}


def _need(name: str, live: set[str], what: str) -> None:
    if name not in live:
        raise IRError(f"{name} is {what}, but not there")
