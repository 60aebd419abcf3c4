"""Verifiers of loops and programs.

In: a `Loop` with the layouts of its buffers, or a `Program`. Out: nothing, or `IRError` naming the
instruction and the rule. Invariant: what passes can be run without touching memory that is not
there (addresses are bounded by the sizes of the axes; looked-up ones are bounded by checks).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod

import torch
from flambeau_prims.ops.pointwise import POINTWISE

from flambeau_inductor.indexing import bounds, static_sizes
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
    looked_up,
    spans,
)
from flambeau_inductor.ir.operands import levels, operands
from flambeau_inductor.ir.program import (
    Alloc,
    FreeBuffer,
    Layout,
    Program,
    Ref,
    Reuse,
    RunLoop,
    Step,
)
from flambeau_inductor.ir.show import show_instr
from flambeau_inductor.ir.steps import Compute, results_of, storage_bytes, touched


class IRError(AssertionError):
    """The IR breaks a rule of its level: a bug of the compiler, never of the user."""


KINDS = frozenset({"sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "welford"})
SCANS = frozenset({"sum", "prod", "logsumexp"})
RESULTS = {
    **{name: row.result for name, row in POINTWISE.items() if row.result is not None},
    "frexp_exponent": torch.int32,  # half of a primitive with two results
}
"""Results of another dtype than the operand's."""


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise IRError(otherwise)


def elements(layout: Layout) -> int:
    """Elements from the first to the last one that the layout reaches."""
    size = storage_bytes(layout)
    if not isinstance(size, int):
        raise IRError(f"a symbolic size: {size}")
    return size // layout.dtype.itemsize


def verify_loop(loop: Loop, layouts: Mapping[str, Layout]) -> None:
    """SSA order, dtypes, known buffers, addresses in range."""
    sizes = static_sizes(axis.size for axis in (*loop.x, *loop.r))
    if sizes is None:
        raise IRError(f"{loop.name}: symbolic sizes")
    if loop.points is not None:
        whole = sizes[0] * sizes[1] if len(loop.x) == 2 else 0
        fits = 0 < loop.points <= whole and whole - loop.points < sizes[1]
        _require(fits, f"{loop.name}: {loop.points} points of {sizes}")
    inner = tuple(range(size) for size in sizes[len(loop.x) :])
    for outer in spans(loop):
        box = zip((*loop.x, *loop.r), (*outer, *inner), strict=True)
        _Body(loop, layouts, {a.var: (b.start, b.stop - 1) for a, b in box}).verify()


@dataclass
class _Body:
    """A loop's body over a box: `ranges` of the axes. `dtypes`: of its values so far."""

    loop: Loop
    layouts: Mapping[str, Layout]
    ranges: Mapping[str, tuple[int, int]]
    dtypes: list[torch.dtype | None] = field(default_factory=list)

    def verify(self) -> None:
        loop = self.loop
        for position, instr in enumerate(loop.body):
            try:
                self._instr(instr)
            except IRError as error:
                raise IRError(f"{loop.name}: {show_instr(position, instr)}: {error}") from None
            self.dtypes.append(None if isinstance(instr, Store | Check) else instr.dtype)
        reduced, element = {a.var for a in loop.r}, levels(loop)[1]
        for position, instr in enumerate(loop.body):
            row = isinstance(instr, Store) and not instr.index.vars & reduced
            if row and any(element[v] for v in operands(instr)):
                shown = show_instr(position, instr)
                raise IRError(f"{loop.name}: {shown}: a row of element values")

    def _instr(self, instr: Instr) -> None:
        args, dtypes = operands(instr), self.dtypes
        for arg in args:
            earlier = 0 <= arg < len(dtypes) and dtypes[arg] is not None
            _require(earlier, f"v{arg} is not an earlier value")
        if isinstance(instr, Load | Store | IndexValue):
            for value in looked_up(instr.index):
                whole = dtypes[value] == torch.int64
                _require(whole, f"address from v{value}, which is {dtypes[value]}")
            for name in instr.index.vars:
                known = name.startswith("%") or name in self.ranges
                _require(known, f"{name} is not an axis of this loop")
        if isinstance(instr, Reduce | Scan):
            _require(bool(self.loop.r), "it reduces, but nothing is reduced")
        match instr:
            case Load() | Store():
                self._access(instr)
            case Point():
                _verify_point(instr, [dtypes[a] for a in args])
            case Reduce(kind, arg, dtype):
                _require(kind in KINDS, f"no reduction is called {kind}")
                made = torch.int64 if kind in ("argmax", "argmin") else dtypes[arg]
                _require(dtype == made, f"reduces {dtypes[arg]} to {dtype}")
            case Scan(kind, arg, dtype):
                fits = kind in SCANS and dtype == dtypes[arg]
                _require(fits, f"a scan {kind} of {dtypes[arg]} into {dtype}")
            case Check():
                _require(dtypes[instr.arg] == torch.bool, f"checks a value of {dtypes[instr.arg]}")
            case Const():
                _require(not isinstance(instr.value, complex), "a complex constant")

    def _access(self, instr: Load | Store) -> None:
        layout = self.layouts.get(instr.buffer)
        if layout is None:
            raise IRError(f"{instr.buffer} is no buffer")
        dtype = instr.dtype if isinstance(instr, Load) else self.dtypes[instr.value]
        _require(dtype == layout.dtype, f"{instr.buffer} holds {layout.dtype}, not {dtype}")
        if isinstance(instr, Store):
            self._store(instr, dtype)
        if isinstance(instr, Load) and instr.mask is not None:
            _require(self.dtypes[instr.mask] == torch.bool, "a mask that is not bool")
        elif not looked_up(instr.index):
            low, high = bounds(instr.index, self.ranges)
            most = elements(layout)
            _require(low >= 0 and high < most, f"elements {low} to {high} of {most}")

    def _store(self, store: Store, dtype: torch.dtype | None) -> None:
        """No pass has lost an axis that neither the address nor the value changes along, nor added
        one: a sum counts the elements that it is of."""
        loop = self.loop
        if store.combines:
            points = loop.points or prod(static_sizes(axis.size for axis in loop.x) or ())
            done = f"elements combined into {store.buffer}"
            _require(not loop.r, f"{done} in a loop that reduces")
            _require(store.count == points, f"{store.count} {done} by {points} points")
        if store.mode == "total":
            rows = len(loop.x) == 2 and len(loop.r) == 1 and loop.x[-1].var not in store.index.vars
            _require(rows, f"a total into {store.buffer} that is not one of rows")
            _require(dtype == torch.float32, f"a total of {dtype}")


def _verify_point(instr: Point, args: list[torch.dtype | None]) -> None:
    if instr.op == "where":
        _require(args == [torch.bool, instr.dtype, instr.dtype], f"where of {args}")
    elif instr.op in RANDOM:
        drawn = args == [torch.int64, torch.int64]
        _require(drawn, f"{instr.op} of {args}: a seed and a position are needed")
    elif instr.op != "cast":
        _require(len(set(args)) < 2, f"operands of different dtypes {args}")
        fits = instr.dtype == RESULTS.get(instr.op, args[0])
        _require(fits, f"{instr.op} of {args[0]} is not {instr.dtype}")


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
    returned = {output.buffer for output in program.outputs if isinstance(output, Ref)}
    for name in returned:
        _need(name, live, "returned")
    left = live - returned - {name for name, _ in program.constants}
    _require(not left, f"never freed: {sorted(left)}")


def _verify_step(step: Step, live: set[str], layouts: Mapping[str, Layout]) -> None:
    if isinstance(step, Alloc | Reuse):
        new = step.buffer not in live and step.buffer in layouts
        _require(new, f"{step.buffer} is allocated twice or unknown")
        live.add(step.buffer)
        if isinstance(step, Reuse):
            _need(step.old, live, "taken over")
            fits = _fits(layouts[step.old], layouts[step.buffer])
            _require(fits, f"{step.buffer} does not fit into {step.old}")
            live.add(f"{step.old} dying")
        return
    if isinstance(step, FreeBuffer):
        _need(step.buffer, live, "freed")
        live.remove(step.buffer)
    else:
        user = step.loop.name if isinstance(step, RunLoop) else getattr(step, "target", "a check")
        for name in frozenset.union(*touched(step)):
            _need(name, live, f"used in {user}")
        live.update(results_of(step))
    _end_dying(live)


def _fits(old: Layout, new: Layout) -> bool:
    """Whether two layouts reach as many elements; a size that is open is not looked at."""
    sizes = (*old.shape, *old.stride, *new.shape, *new.stride)
    return static_sizes(sizes) is None or elements(old) == elements(new)


def _end_dying(live: set[str]) -> None:
    """What was taken over is gone after the step that reads it for the last time."""
    for name in [n for n in live if n.endswith(" dying")]:
        live -= {name, name.removesuffix(" dying")}


def _need(name: str, live: set[str], what: str) -> None:
    _require(name in live, f"{name} is {what}, but not there")
