"""Memory planning: lifetimes, in-place updates, buffer reuse.

In: steps that compute, the buffers, what the caller owns or keeps. Out: the same steps with
`Alloc`, `Reuse` and `FreeBuffer` around them. Invariant: memory is never given away while a later
step, an output, or a tensor that may share it needs it; an input is written in place only where
nothing reads the old value later and no later step can fail; reuse never raises the peak of any
device.

On a CPU memory that stays is still in cache and need not be mapped anew. A GPU's allocator keeps
what is freed, but asking it takes time: there a buffer takes over another one in its own layout
alone, a new name for the same tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import Expr, bounds, same, same_sizes, static_sizes, symbols_in
from flambeau_inductor.ir.loops import Load, Loop, Reduce, Scan, Store
from flambeau_inductor.ir.operands import levels
from flambeau_inductor.ir.program import (
    Alloc,
    Buffer,
    BufferOwnership,
    CheckIndex,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Reuse,
    RunLoop,
    Step,
)
from flambeau_inductor.ir.steps import (
    Compute,
    computing,
    known_bytes,
    made_by,
    rescheduled,
    results_of,
    sizes_known,
    storage_bytes,
    touched,
)
from flambeau_inductor.runtime.operators import PACKED_PRODUCT, WIDENED_PRODUCT
from flambeau_inductor.tuning import host_tuning

OUT = frozenset(f"aten.{name}.out" for name in ("addmm", "baddbmm", "bmm", "cat", "mm"))
ATTENTION = {
    "flambeau_prims.attention.default",
    *(
        f"aten._scaled_dot_product_{kind}_attention.default"
        for kind in ("cudnn", "efficient", "flash")
    ),
}
STEADFAST = OUT | ATTENTION | {"aten._to_copy.default", PACKED_PRODUCT, WIDENED_PRODUCT}
"""Library calls that fail for no value of their operands."""


def same_elements(loop: Loop, old: str, new: str) -> bool:
    """Whether `old` is only read at the element at which `new` is stored, before that store and
    unconditionally: instructions run in the order of the body."""
    loads = [(k, i) for k, i in enumerate(loop.body) if isinstance(i, Load) and i.buffer == old]
    stores = [(k, i) for k, i in enumerate(loop.body) if isinstance(i, Store) and i.buffer == new]
    if len(stores) != 1:
        return False
    ((place, store),) = stores
    if store.mode != "set" or any(v.startswith("%") for v in store.index.vars):
        return False
    return all(k < place and i.index == store.index and i.mask is None for k, i in loads)


def disjoint(loop: Loop, old: str, new: str) -> bool:
    """Whether a loop reads one buffer and writes another at places that are known to differ."""
    sizes = static_sizes(axis.size for axis in (*loop.x, *loop.r))
    if sizes is None:
        return False
    axes = zip((*loop.x, *loop.r), sizes, strict=True)
    ranges = {axis.var: (0, size - 1) for axis, size in axes}

    def reached(index: Expr) -> tuple[int, int] | None:
        return bounds(index, ranges) if index.vars <= ranges.keys() else None

    read = [reached(i.index) for i in loop.body if isinstance(i, Load) and i.buffer == old]
    written = [reached(i.index) for i in loop.body if isinstance(i, Store) and i.buffer == new]
    return all(
        a is not None and b is not None and (a[1] < b[0] or b[1] < a[0])
        for a in read
        for b in written
    )


def may_overwrite(step: Compute, old: str, new: str) -> bool:
    """Whether a step may store parts of `new` in the memory of `old`, which it reads: each element
    before it is stored, or others."""
    if not isinstance(step, RunLoop):
        return False
    loop = step.loop
    return (not loop.r and same_elements(loop, old, new)) or disjoint(loop, old, new)


def copies(step: Compute, old: str, new: str) -> bool:
    """Whether a step only copies `old` into `new`, element by element."""
    if not isinstance(step, RunLoop) or len(step.loop.body) != 2:
        return False
    load = step.loop.body[0]
    return isinstance(load, Load) and load.buffer == old and same_elements(step.loop, old, new)


def update_in_place(context: PassContext, program: Program) -> tuple[Program, int]:
    """Write the new values of inputs where the inputs are."""
    owned = program.owned
    updated = in_place(computing(program), owned.updates, program.by_name, owned.outlive)
    return replace(program, owned=replace(owned, updated=updated)), len(updated)


def in_place(
    steps: Sequence[Compute],
    updates: Mapping[str, str],
    buffers: Mapping[str, Buffer],
    alive: frozenset[str],
) -> dict[str, str]:
    """Of `updates`, the input by its new value, those that are written where the input is.

    alive: buffers whose memory is not free at any time: what is returned, or may be shared.
    """
    sure = -1  # the last step that may fail
    written: dict[str, list[int]] = {}
    read: dict[str, int] = {}
    for position, step in enumerate(steps):
        called = isinstance(step, Extern) and step.target not in STEADFAST
        sure = position if called or isinstance(step, CheckIndex) else sure
        reads, writes = touched(step)
        read.update(dict.fromkeys(reads, position))
        for name in writes:
            written.setdefault(name, []).append(position)
    found: dict[str, str] = {}
    for new, old in updates.items():
        if new not in written:
            continue
        at, *later = written[new]
        step = steps[at]
        changes = later[:1] if copies(step, old, new) else [at]
        if any(place <= sure for place in changes) or old in alive or old in written:
            continue
        last = read.get(old, -1)
        in_turn = changes == later[:1] == [last] and may_overwrite(steps[last], old, new)
        if buffers[new].layout != buffers[old].layout or (last > at and not in_turn):
            continue
        if isinstance(step, RunLoop) and (
            read.get(old) != at or (not step.loop.r and same_elements(step.loop, old, new))
        ):
            found[new] = old
    return found


LONG_ROW = 1024
"""Elements of a row that may be written over what is read of it: of a shorter one than a block's
threads, several may read the same element, and one may store before another has read."""


# --- lifetimes --------------------------------------------------------------------------------


def plan_lifetimes(context: PassContext, program: Program) -> tuple[Program, int]:
    """Put allocation and freeing around the steps that compute. What no step writes is there from
    the first one on, or from where its sizes are known."""
    buffers = program.by_name
    steps = with_lifetimes(computing(program), buffers, program.owned)
    for name in reversed(program.owned.empty):
        of = buffers[name].layout
        sizes = {symbol.name for n in (*of.shape, *of.stride) for symbol in symbols_in(n)}
        steps.insert(sizes_known(steps, sizes), Alloc(name))
    return rescheduled(program, steps)


def with_lifetimes(
    steps: Sequence[Compute], buffers: Mapping[str, Buffer], owned: BufferOwnership
) -> list[Step]:
    """Put allocation and freeing around the steps."""
    last: dict[str, int] = {}
    for position, step in enumerate(steps):
        last.update(dict.fromkeys(touched(step)[0] | made_by(step), position))
    result: list[Step] = []
    stay = owned.kept.union(owned.updated.values())
    unused = [n for n in owned.given if n not in last and _may_die(n, stay)]
    result.extend(FreeBuffer(n) for n in sorted(unused) if n.startswith("in"))
    exists = set(owned.given)
    moved = owned.updated.keys()
    for position, step in enumerate(steps):
        reads, writes = touched(step)
        dying = {n for n in reads if last[n] == position and _may_die(n, stay)}
        taken: set[str] = set()
        for name in sorted(writes - exists, key=_natural):
            old = owned.updated.get(name)
            if old is None:
                old = _replaceable(step, name, dying - taken, buffers, owned)
            if old is None:
                result.append(Alloc(name))
            else:
                result.append(Reuse(name, old))
                taken.add(old)
            exists.add(name)
        exists.update(results_of(step))
        if not any(copies(step, owned.updated[name], name) for name in writes & moved):
            result.append(step)
        ended = {n for n in (*reads, *writes, *results_of(step)) if last[n] == position}
        gone = sorted((n for n in ended - taken if _may_die(n, stay)), key=_natural)
        result.extend(FreeBuffer(n) for n in gone)
    return result


def peak_bytes(
    steps: Sequence[Step], buffers: Mapping[str, Buffer], donated: Iterable[str] = ()
) -> int:
    """Bytes that a program's own buffers, and the inputs that it may let go, take at once; open
    sizes count nothing."""
    known = known_bytes(buffers.values())
    return max(_live_bytes(steps, lambda name: known.get(name, 0), donated))


def live_at(
    steps: Sequence[Compute], buffers: Mapping[str, Buffer], owned: BufferOwnership
) -> list[int]:
    """The same bytes while each step runs that is in this order, before it lets anything go."""
    known, planned = known_bytes(buffers.values()), with_lifetimes(steps, buffers, owned)
    live = _live_bytes(planned, lambda name: known.get(name, 0), ())
    after = {id(step): live[place] for place, step in enumerate(planned, 1)}
    found: list[int] = []
    for step in steps:  # one that is left out is a copy of what is there
        found.append(after.get(id(step), found[-1] if found else 0))
    return found


def _live_bytes(
    steps: Sequence[Step], size: Callable[[str], int], donated: Iterable[str]
) -> list[int]:
    """The same bytes before the first step, and after each."""
    own = {name: size(name) for name in donated}
    found = [sum(own.values())]
    for step in steps:
        live = found[-1]
        if isinstance(step, Alloc | Extern):
            made = [step.buffer] if isinstance(step, Alloc) else results_of(step)
            own.update((name, size(name)) for name in made)
            live += sum(own[name] for name in made)
        elif isinstance(step, Reuse):
            own[step.buffer] = own.pop(step.old, 0)
        elif isinstance(step, FreeBuffer):
            live -= own.pop(step.buffer, 0)
        found.append(live)
    return found


def _may_die(name: str, stay: frozenset[str]) -> bool:
    return name not in stay and not name.startswith("const")


def _replaceable(
    step: Compute, name: str, dying: set[str], buffers: Mapping[str, Buffer], owned: BufferOwnership
) -> str | None:
    """A buffer dying in this very loop whose memory `name` can take over element by element."""
    if not isinstance(step, RunLoop) or name in owned.kept:
        return None
    new = buffers[name].layout
    if step.loop.r and not _in_long_rows(step.loop, name, new):
        return None
    for old in sorted(dying, key=_natural):
        if old in owned.shared or (old in owned.given and old not in owned.donated):
            continue
        layout = buffers[old].layout
        if layout.device != new.device or layout.dtype.itemsize != new.dtype.itemsize:
            continue
        fits = same(storage_bytes(layout), storage_bytes(new))
        if fits and same_elements(step.loop, old, name):
            return old
    return None


def _in_long_rows(loop: Loop, new: str, layout: Layout) -> bool:
    """Whether a loop over long rows stores `new` only after the last read of the row."""
    sizes = static_sizes(axis.size for axis in loop.r)
    if layout.device.type != "cuda" or sizes is None:
        return False
    if math.prod(sizes) < LONG_ROW or any(isinstance(i, Scan) for i in loop.body):
        return False
    if any(isinstance(i, Store) and i.mode != "set" for i in loop.body):
        return False
    waits = list(zip(loop.body, levels(loop)[0], strict=True))
    stored = [level for i, level in waits if isinstance(i, Store) and i.buffer == new]
    return stored[-1:] == [max(level for i, level in waits if not isinstance(i, Reduce))]


def _natural(name: str) -> tuple[str, int]:
    head = name.rstrip("0123456789")
    digits = name[len(head) :]
    return head, int(digits) if digits else 0


# --- buffer reuse -----------------------------------------------------------------------------


def reuse_buffers(context: PassContext, program: Program) -> tuple[Program, int]:
    """Let later buffers take over the memory of finished ones."""
    allocated = (s.buffer for s in program.steps if isinstance(s, Alloc))
    steps: Sequence[Step] = program.steps
    buffers = program.by_name  # made anew at each reading
    for device in dict.fromkeys(buffers[name].layout.device for name in allocated):
        steps = _ReusePlan(buffers, program.owned, device, list(steps)).shared()
    return rescheduled(program, steps)


@dataclass(slots=True)
class _ReusePlan:
    """Reuse on one device. `free`: by size, where buffers were freed, and which, the latest last;
    `plain`: buffers whose tensor is no view, which alone may be returned."""

    buffers: Mapping[str, Buffer]
    owned: BufferOwnership
    device: torch.device
    steps: list[Step]
    free: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    plain: set[str] = field(default_factory=set)

    def shared(self) -> list[Step]:
        """The steps, in which buffers take over memory where that does not raise the peak."""
        self.plain = {s.buffer for s in self.steps if isinstance(s, Alloc)}
        live = _live_bytes(self.steps, self._size, self.owned.donated)[1:]
        peak = max(live, default=0)
        dropped: set[int] = set()
        for position, step in enumerate(self.steps):
            if isinstance(step, FreeBuffer):
                size = self._size(step.buffer)
                if size and self._lends(step.buffer):
                    self.free.setdefault(size, []).append((position, step.buffer))
            elif isinstance(step, Reuse):
                self._inherit(step)
            elif isinstance(step, Alloc):
                if (found := self._dead(step.buffer, position, live, peak)) is not None:
                    dropped.add(found[0])
                    taken = self.steps[position] = Reuse(step.buffer, found[1], dead=True)
                    self._inherit(taken)
        return [s for k, s in enumerate(self.steps) if k not in dropped]

    def _size(self, name: str) -> int:
        """Bytes of a buffer on the plan's device; 0 for any other, and for an open size."""
        layout = self.buffers[name].layout
        size = storage_bytes(layout)
        return size if layout.device == self.device and isinstance(size, int) else 0

    def _lends(self, name: str) -> bool:
        owned = self.owned
        return name not in owned.shared and (name not in owned.given or name in owned.donated)

    def _dead(self, name: str, position: int, live: list[int], peak: int) -> tuple[int, str] | None:
        """Where and what to take over: the latest of the same size that may wait so long."""
        size = self._size(name)
        candidates = self.free.get(size, [])
        for number in range(len(candidates) - 1, -1, -1):
            freed, old = candidates[number]
            if not self._fits(name, old):
                continue
            if max(live[freed:position], default=0) + size > peak:
                return None  # those freed earlier would have to wait even longer
            for k in range(freed, position):
                live[k] += size
            del candidates[number]
            return freed, old
        return None

    def _fits(self, name: str, old: str) -> bool:
        new, had = self.buffers[name].layout, self.buffers[old].layout
        if new.dtype.itemsize != had.dtype.itemsize:
            return False
        if _is_same(new, had):
            return name not in self.owned.kept or old in self.plain
        if self.device.type != "cpu" or name in self.owned.kept:
            return False
        return self._size(name) >= host_tuning().viewed_bytes

    def _inherit(self, step: Reuse) -> None:
        """A buffer in another one's memory is as plain as that, in the same layout."""
        old, new = self.buffers[step.old].layout, self.buffers[step.buffer].layout
        self.plain.discard(step.buffer)
        if step.old in self.plain and _is_same(old, new):
            self.plain.add(step.buffer)


def _is_same(a: Layout, b: Layout) -> bool:
    return a.dtype == b.dtype and same_sizes((*a.shape, *a.stride), (*b.shape, *b.stride))
