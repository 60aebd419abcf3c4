"""Vectorisation and parallelisation plan of a C++ loop.

In: a `Loop`. Out: a `LoopPlan`, plain data that `kernel` prints. Invariant: an instruction that
depends on the vectorised axis is a vector, every other one is a scalar; an instruction of level `p`
needs the results of `p` passes over the reduction axes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from flambeau_inductor.codegen.cpp.analysis.instructions import (
    Axes,
    cost,
    dependences,
    result_dtype,
)
from flambeau_inductor.codegen.cpp.analysis.parallel_axes import private_axes
from flambeau_inductor.codegen.cpp.analysis.scratch_rows import kept_values
from flambeau_inductor.codegen.cpp.analysis.variant import RULES, Form
from flambeau_inductor.codegen.cpp.analysis.vector_axis import vector_axis
from flambeau_inductor.codegen.cpp.emit.pointwise import needs_error_flag
from flambeau_inductor.indexing import Expr, Ranges, hint, is_open, symbols_in, to_c
from flambeau_inductor.ir.loops import (
    Axis,
    Check,
    IndexValue,
    Load,
    Loop,
    Point,
    Scan,
    Store,
    ValueId,
)

# below this many operations on elements a second thread costs more than it brings
THREAD_WORK = 65536
# with fewer pieces of x than this the passes over r are split instead
FEW_ROWS = 16
# elements that an axis of an open size is planned for at least
LIKELY = 1024


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """Everything that `kernel` needs to know about the loop.

    `sizes` of axes whose size is open are for estimates; the text has their `bound`, and what must
    hold for every size asks `exact`. `cost` is in operations on
    elements; `private`: axes along which points never meet in
    memory; `serial`: points may meet in memory, so one thread runs
    them all; `split_rows`: threads share a row rather than the rows;
    `form`: what was asked for instead of what the rules say.
    """

    loop: Loop
    sizes: dict[str, int]
    deps: tuple[Axes, ...]
    level: tuple[int, ...]
    vector: str | None
    width: int
    cost: int
    private: Axes
    serial: bool
    errors: bool
    split_rows: bool
    scratch: frozenset[ValueId]
    form: Form = RULES

    def is_vector(self, value: ValueId) -> bool:
        """Whether the value has one number per lane."""
        return self.vector is not None and self.vector in self.deps[value]

    def is_element(self, value: ValueId) -> bool:
        """Whether the value changes along a reduction axis."""
        return any(a.var in self.deps[value] for a in self.loop.r)

    @property
    def ranges(self) -> Ranges:
        """Ranges of the loop variables, for the printers."""
        return {a.var: (0, a.size - 1) for a in self.axes}

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes."""
        return (*self.loop.x, *self.loop.r)

    def size(self, var: str) -> int | Expr:
        """The size of an axis."""
        return next(a.size for a in self.axes if a.var == var)

    def exact(self, var: str) -> int | None:
        """The size of an axis, None where it is open."""
        size = self.size(var)
        return size if isinstance(size, int) else None

    def bound(self, var: str) -> str:
        """The size of an axis as C++."""
        return to_c(self.size(var), {})

    @property
    def looks(self) -> bool:
        """Whether it looks at positions as it goes."""
        return any(isinstance(instr, Check) for instr in self.loop.body)

    @property
    def open(self) -> bool:
        """Whether some axis has an open size."""
        return is_open(a.size for a in self.axes)

    @property
    def length(self) -> int | Expr:
        """Elements of a row."""
        return prod(a.size for a in self.loop.r)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the open sizes that the kernel takes."""
        found: set[str] = set()
        for axis in self.axes:
            found.update(s.name for s in symbols_in(axis.size))
        for instr in self.loop.body:
            if isinstance(instr, Load | Store | IndexValue):
                found.update(s.name for s in symbols_in(instr.index))
        return tuple(sorted(found, key=lambda name: (len(name), name)))


def plan(loop: Loop, vector_bytes: int, form: Form = RULES) -> LoopPlan:
    """Choose levels, vector axis, width and parallel form for `loop`, as far as `form` does not."""
    vector_bytes = form.vector_bytes or vector_bytes
    if form.turned:
        loop = transposed(loop)
    sizes = {a.var: _likely(a) for a in (*loop.x, *loop.r)}
    deps, level = dependences(loop)
    errors = any(
        isinstance(i, Check)
        or (isinstance(i, Point) and needs_error_flag(i.op, result_dtype(loop.body[i.args[-1]])))
        for i in loop.body
    )
    private = private_axes(loop, sizes)
    serial = bool(loop.x) and loop.x[0].var not in private
    vector, width = None, 1
    if not errors:
        vector, width = vector_axis(loop, sizes, deps, vector_bytes, form)
    work = prod(sizes.values()) * sum(cost(i) for i in loop.body)
    rows = prod(sizes[a.var] for a in loop.x)
    if loop.x and vector == loop.x[-1].var:
        rows = -(-rows // width)
    few = rows < FEW_ROWS and not is_open(a.size for a in loop.x)
    scans = any(isinstance(i, Scan) for i in loop.body)
    split = bool(loop.r) and few and not scans and work >= 2 * THREAD_WORK and not serial
    scratch: frozenset[ValueId] = frozenset()
    if loop.r and not split and vector is not None and vector == loop.r[-1].var:
        scratch = kept_values(loop, deps, level)
    return LoopPlan(
        loop, sizes, deps, level, vector, width, work, private, serial, errors, split, scratch, form
    )


def transposed(loop: Loop) -> Loop:
    """The loop with the last two axes of its result in the other order."""
    *outer, one, other = loop.x
    return replace(loop, x=(*outer, other, one))


def _likely(axis: Axis) -> int:
    """What a loop is planned for: an open axis will be long some day, whatever it is now."""
    return axis.size if isinstance(axis.size, int) else max(hint(axis.size), LIKELY)
