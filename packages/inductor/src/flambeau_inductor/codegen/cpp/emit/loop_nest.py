"""Emission of the loop nest.

In: a `LoopPlan` and the threads there are. Out: the text of the nest. Invariant: each point of x is
visited once, by one thread, whatever the order and the blocks.
"""

from __future__ import annotations

from functools import partial
from math import prod

from flambeau_inductor.codegen.cpp.analysis.plan import (
    THREAD_WORK,
    blocked_axis,
    segments,
    shared_axis,
)
from flambeau_inductor.codegen.cpp.analysis.streaming import repeated_rows
from flambeau_inductor.codegen.cpp.emit.compute import compute
from flambeau_inductor.codegen.cpp.emit.memory import declare_rows, store
from flambeau_inductor.codegen.cpp.emit.reduction_passes import (
    ReductionPass,
    columns_at_once,
    emit_tile,
)
from flambeau_inductor.codegen.cpp.emit.transpose import emit_squares, emit_transposed_tile, tile_of
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.indexing import is_open
from flambeau_inductor.ir.loops import Load, Reduce, ReducePart, Store, ValueId

# collapse outer loops until threads have this many pieces to share
PIECES = 64
# points of the other axis that a transposing kernel handles at a time
BLOCK = 64
# least number of points of an axis that a thread takes as its part
PART = 64
# elements at a time that are looked at and written where their positions say
UNROLLED = 4


class Nest:
    """The loops over x and, inside them, row values and passes in the order of their levels."""

    def __init__(self, values: KernelVariables, threads: int | None, by_rows: bool = False) -> None:
        plan = values.plan
        self.plan, self.text, self.values, self.by_rows = plan, values.text, values, by_rows
        self.unread: frozenset[ValueId] = frozenset()
        self.team = max(1, plan.cost // (THREAD_WORK // 2))
        if threads is not None:
            self.team = min(self.team, threads)
        self.shared = shared_axis(plan)
        alone = plan.serial and self.shared is None
        self.parallel = plan.cost >= THREAD_WORK and self.team > 1 and not alone
        self.threads = f"num_threads(team({self.team}))"
        if plan.open and not alone and threads != 1 and not plan.split_rows:
            # as many as the sizes of the call are worth
            self.parallel = True
            points = max(plan.cost // max(prod(plan.sizes.values()), 1), 1)
            work = " * ".join([f"{points}L", *(plan.bound(a.var) for a in plan.axes)])
            self.threads = f"num_threads(crew({work}, {threads or 0}))"
        # a blocked axis is opened twice: in blocks where it stood, point by point innermost
        self.blocked = None if plan.serial else blocked_axis(plan)
        self.order = [a.var for a in plan.loop.x]
        if self.shared is not None:
            # a shared axis too: in parts outermost, point by point where it stood
            self.order.insert(0, self.shared)
        # so is one whose rows are read again for each point of the first
        self.repeated = 0
        if self.shared is None and self.blocked is None and not by_rows:
            self.repeated = repeated_rows(plan, values.dtype_of)
        if self.repeated:
            self.order.insert(0, self.order[1])
        if self.blocked is not None:
            self.order.append(self.blocked)
        self.block = plan.form.block or BLOCK
        self.tile = tile_of(values, self.blocked, self.block)
        self.depth_of = {var: d for d, var in enumerate(self.order)}
        divided = self.shared or self.blocked or self.repeated or (by_rows and len(self.order) == 1)
        self.segments = () if divided else segments(plan)
        self.collapsed = self._collapse()

    def _steps(self, var: str) -> int:
        size = self.plan.sizes[var]
        if var != self.plan.vector:
            return size
        if self.tile is not None:
            return -(-size // self.tile.columns)
        return -(-size // (self.plan.width * columns_at_once(self.plan)))

    def _collapse(self) -> int:
        axes = len(self.plan.loop.x)
        if not axes or not self.parallel or self.plan.split_rows or self.by_rows:
            return 0
        if self.shared is not None:
            return 1
        if self.repeated:
            if not set(self.order[:2]) <= self.plan.private:
                return 0
            return 1 if self.plan.sizes[self.order[0]] >= PIECES * self.repeated else 2
        pieces, count = 1, 0
        while count < axes and (count == 0 or pieces < PIECES):
            if self.order[count] not in self.plan.private:
                break
            if count and self.segments and self.order[count] == self.plan.vector:
                break  # several loops
            steps = self._steps(self.order[count])
            pieces *= -(-steps // self.block) if self.order[count] == self.blocked else steps
            count += 1
        return count

    def emit(self) -> None:
        """The whole nest, with the thread team around it where there is one."""
        self._leave_if_empty()
        if self.shared is not None:
            size, width = self.plan.bound(self.shared), self.plan.width
            self.text(f"const long part = share({size}, {max(PART, width)});")
        if self.collapsed:
            self.text(f"#pragma omp parallel {self.threads}")
            with self.text.block(""):
                declare_rows(self.values)
                self._rows_at(-1)
                if not self._in_segments(0):
                    self._divide()
                self._x_loop(0)
                if self.values.streamed:
                    self.text("fence();")
            return
        with self.text.block(""):
            declare_rows(self.values)
            self._rows_at(-1)
            self._x_loop(0)
            if self.values.streamed and not self.by_rows:
                self.text("fence();")

    def _leave_if_empty(self) -> None:
        """Where an axis counts by data, none of it may be there: nor is then the memory of what all
        its points read, which is read before its loop."""
        body = self.plan.loop.body
        read = [deps for deps, i in zip(self.plan.deps, body, strict=True) if isinstance(i, Load)]
        for axis in self.plan.loop.x:
            if is_open([axis.size]) and any(axis.var not in deps for deps in read):
                self.text(f"if ({self.plan.bound(axis.var)} <= 0) return;")

    def _divide(self) -> None:
        """The directive that divides the loop after it among the team."""
        how = f" collapse({self.collapsed})" if self.collapsed > 1 else ""
        # what went past the caches is to be seen by all before they meet
        wait = " nowait" if self.values.streamed else ""
        self.text(f"#pragma omp for{how} schedule(static){wait}")

    def _in_segments(self, depth: int) -> bool:
        """Whether the axis at `depth` has a loop for each of its segments."""
        return bool(self.segments) and self.order[depth] == self.plan.vector

    def _rows_at(self, depth: int, vectors: bool = True) -> None:
        """Row values of level 0 that can be computed once the loops up to `depth` are open, with or
        without those that are vectors."""
        last = len(self.order) - 1
        for position, instr in enumerate(self.plan.loop.body):
            if isinstance(instr, Reduce | ReducePart | Store) or self.plan.is_element(position):
                continue
            if position in self.unread:
                continue
            if self.plan.level[position] or (self.plan.is_vector(position) and not vectors):
                continue
            own = max((self.depth_of[v] for v in self.plan.deps[position]), default=-1)
            if 0 <= own < self.collapsed - 1:
                own = self.collapsed - 1
            if min(own, last) == depth:
                compute(self.values, position)

    def _x_loop(self, depth: int) -> None:
        if depth == len(self.order):
            self._inside()
            return
        var = self.order[depth]
        size = self.plan.bound(var)
        if var == self.blocked:
            if depth == self.depth_of[var]:
                after = partial(self._after, depth)
                if emit_squares(self.values, var, self.block, after):
                    return
                inside = f"{var} < {size} && {var} < {var}_b + {self.block}"
                head = f"for (long {var} = {var}_b; {inside}; ++{var})"
            else:
                head = f"for (long {var}_b = 0; {var}_b < {size}; {var}_b += {self.block})"
            with self.text.block(head):
                self._after(depth)
            return
        if var == self.shared and depth == 0:
            self._parts(var, size)
            return
        begin = "0"
        if self.repeated and depth == 0:
            head = f"for (long {var}_b = 0; {var}_b < {size}; {var}_b += {self.repeated})"
            with self.text.block(head):
                self._x_loop(1)
            return
        if self.repeated and var == self.order[0]:
            end = f"{var}_b + {self.repeated}"
            begin, size = f"{var}_b", f"({end} < {size} ? {end} : {size})"
        if var == self.shared:
            begin, size = f"{var}_b", f"{var}_e"
        if self.by_rows and depth == 0:
            begin, size = "row_b", "row_e"
        vector = var == self.plan.vector
        if vector and self.tile is not None and self.blocked is not None:

            def point() -> None:
                """What is done for lanes of the axis and a point of the blocked one inside."""
                if depth >= self.collapsed - 1:
                    self._rows_at(depth)
                self._after(depth + 1)

            emit_transposed_tile(self.values, self.blocked, self.tile, point)
            return
        if vector and (tile := columns_at_once(self.plan)) > 1:
            self._column_tiles(depth, size, tile)
            return
        if self._in_segments(depth):
            self._each_segment(depth)
            return
        step = f"{var} += {self.plan.width}" if vector else f"++{var}"
        if self.plan.looks and self.collapsed <= depth == len(self.order) - 1:
            self.text(f"#pragma GCC unroll {UNROLLED}")  # a jump less for each element
        with self.text.block(f"for (long {var} = {begin}; {var} < {size}; {step})"):
            exact = self.plan.exact(var)
            self.values.in_lanes(var if vector else None, size, exact, lambda: self._after(depth))

    def _parts(self, var: str, size: str) -> None:
        """The parts of a shared axis, each a multiple of the width long."""
        with self.text.block(f"for (long {var}_b = 0; {var}_b < {size}; {var}_b += part)"):
            end = f"{var}_b + part"
            self.text(f"const long {var}_e = {end} < {size} ? {end} : {size};")
            self._after(0)

    def _each_segment(self, depth: int) -> None:
        """The vector axis segment by segment, each by the plan that holds there."""
        var, width, whole = self.order[depth], self.plan.width, self.values.plan
        for piece in self.segments:
            self.values.plan, self.unread = piece.plan, piece.unread
            if depth == 0 and self.collapsed:
                self._divide()
            head = f"for (long {var} = {piece.low}; {var} < {piece.high}; {var} += {width})"
            with self.text.block(head):
                after = partial(self._after, depth)
                self.values.in_lanes(var, piece.high, piece.size, after)
        self.values.plan, self.unread = whole, frozenset()

    def _column_tiles(self, depth: int, size: str, tile: int) -> None:
        """Several vectors of columns at once: a row of memory is then read in longer runs."""
        var, width = self.order[depth], self.plan.width
        reach = tile * width
        exact = self.plan.exact(var)

        def one_by_one(start: str) -> None:
            with self.text.block(f"for (long {var} = {start}; {var} < {size}; {var} += {width})"):
                self.values.in_lanes(var, size, exact, lambda: self._after(depth))

        def together() -> None:
            if depth >= self.collapsed - 1:
                self._rows_at(depth, vectors=False)
            emit_tile(self.values, tile)

        with self.text.block(f"for (long t = 0; t < {size}; t += {reach})"):
            if exact is not None and exact % reach == 0:
                together()
                return
            with self.text.block(f"if (t + {reach} <= {size})", "} else {"):
                together()
            one_by_one("t")
            self.text("}")

    def _after(self, depth: int) -> None:
        if depth >= self.collapsed - 1:
            self._rows_at(depth)
        self._x_loop(depth + 1)

    def _inside(self) -> None:
        """Passes and the row values between them, for one point of x."""
        plan = self.plan
        team = 0
        if plan.split_rows and self.parallel:
            team = self.team
        for level in range(max(plan.level, default=0) + 1):
            for position, instr in enumerate(plan.loop.body):
                if plan.level[position] != level or plan.is_element(position):
                    continue
                if isinstance(instr, Store) and not self._stores_elements(instr):
                    store(self.values, position)
                elif level and not isinstance(instr, Reduce | ReducePart | Store):
                    compute(self.values, position)
            ReductionPass(self.values, level).emit(team)

    def _stores_elements(self, instr: Store) -> bool:
        return any(a.var in instr.index.vars for a in self.plan.loop.r) or self.plan.is_element(
            instr.value
        )
