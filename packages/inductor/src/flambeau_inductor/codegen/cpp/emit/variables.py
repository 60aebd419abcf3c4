"""Source lines and variables of a kernel: names, types, addresses.

In: a `LoopPlan`. Out: the text of an operand, a type, an address; lines that declare `v<position>`.
Invariant: a value is a scalar or a vector as the plan says, and one variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod

import torch

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.analysis.streaming import streamed
from flambeau_inductor.codegen.cpp.analysis.vectorization import lane_step, result_dtype
from flambeau_inductor.codegen.cpp.dtypes import spelling_of
from flambeau_inductor.codegen.cpp.emit.pointwise import called_functions
from flambeau_inductor.errors import CppUnsupported
from flambeau_inductor.indexing import Expr, Var, to_c
from flambeau_inductor.ir.loops import ReducePart, Store, ValueId, looked_up
from flambeau_inductor.ir.operands import operands


class SourceLines:
    """A growing list of lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def __call__(self, line: str) -> None:
        """Add a line; preprocessor lines start in the first column."""
        self.lines.append(line if line.startswith("#") else "  " * self._depth + line)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """`head {`, the lines added inside, `tail`."""
        self(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self(tail)

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


class KernelVariables:
    """Names values; remembers which buffers the kernel takes."""

    def __init__(
        self, plan: LoopPlan, text: SourceLines, dtype_of: Callable[[str], torch.dtype]
    ) -> None:
        self.plan = plan
        self.text = text
        self.dtype_of = dtype_of
        self.buffers: dict[str, int] = {}
        self.stored: set[str] = set()
        self.kept: set[ValueId] = set()
        self.transposed: dict[ValueId, str] = {}
        self.streamed = streamed(plan, dtype_of)
        self.width = plan.width
        body = plan.loop.body
        stored = {i.value for i in body if isinstance(i, Store) and i.mode == "set"}
        read = {v for i in body for v in operands(i) if not isinstance(i, Store)}
        read |= {v for i in body if isinstance(i, Store) for v in looked_up(i.index)}
        read |= {i.value for i in body if isinstance(i, Store) and i.mode != "set"}
        self.called = called_functions(body, prod(plan.sizes.values()))
        self.only_stored = stored - read - plan.scratch

    def dtype(self, value: ValueId) -> torch.dtype:
        """Result dtype of an instruction."""
        return result_dtype(self.plan.loop.body[value])

    def type_of(self, dtype: torch.dtype, vector: bool) -> str:
        """C++ type of a variable."""
        lane = spelling_of(dtype).value
        return f"{lane}x{self.width}" if vector else lane

    def name(self, value: ValueId) -> str:
        """The variable that holds the value."""
        instr = self.plan.loop.body[value]
        if isinstance(instr, ReducePart):
            return f"v{instr.arg}_{instr.position}"
        return f"v{value}"

    def operand(self, value: ValueId, vector: bool) -> str:
        """The value in the flavour that is wanted."""
        name = self.name(value)
        if vector and not self.plan.is_vector(value):
            return f"splat{self.width}({name})"
        return name

    def constant(self, vector: bool) -> Callable[[str, torch.dtype], str]:
        """Renders a number in that flavour."""

        def render(text: str, dtype: torch.dtype) -> str:
            number = f"({spelling_of(dtype).value})({text})"
            return f"splat{self.width}({number})" if vector else number

        return render

    def pointer(self, buffer: str) -> str:
        """Parameter that a buffer is bound to."""
        return f"p{self.buffers.setdefault(buffer, len(self.buffers))}"

    def address(self, index: Expr, lane: str | None = None) -> str:
        """`index` at the first lane, or at lane number `lane`."""
        ranges = dict(self.plan.ranges)
        if lane is not None and self.plan.vector is not None:
            index = index.substitute({self.plan.vector: Var(self.plan.vector) + Var(lane)})
            ranges[lane] = (0, self.width - 1)

        def rename(var: str) -> str:
            if not var.startswith("%"):
                return var
            value = int(var[1:])
            name = self.name(value)
            if self.plan.is_vector(value):
                if lane is None:
                    raise CppUnsupported("a vector of addresses where one is needed")
                name = f"{name}[{lane}]"
            return f"(long){name}"

        return to_c(index, ranges, rename)

    def step(self, index: Expr) -> int | None:
        """Distance between neighbouring lanes, None when it varies."""
        if self.plan.vector is None:
            return 0
        for var in index.vars:
            if var.startswith("%") and self.plan.is_vector(int(var[1:])):
                return None
        return lane_step(index, self.plan.vector, self.width)

    def declare(self, value: ValueId, expression: str) -> None:
        """Declare the variable of an instruction."""
        kind = self.type_of(self.dtype(value), self.plan.is_vector(value))
        self.text(f"const {kind} v{value} = {expression};")

    def by_lanes(self, value: ValueId, each: str, other: str, mask: str | None) -> None:
        """The same from a text for each lane, number `l`; `other` where a lane is not in use or not
        in the mask."""
        lane = spelling_of(self.dtype(value)).value
        self.text(f"{lane} t{value}[{self.width}];")
        chosen = "l < (long)n" if mask is None else f"l < (long)n && {mask}[l]"
        self.text(
            f"for (long l = 0; l < {self.width}; ++l) "
            f"t{value}[l] = {chosen} ? {each} : ({lane}){other};"
        )
        self.declare(value, f"load{self.width}(t{value}, width<{self.width}>{{}})")

    def in_lanes(
        self, var: str | None, end: str, size: int | None, inside: Callable[[], None]
    ) -> None:
        """Run `inside` with `n`, the lanes in use, defined when `var` is vectorised.

        `end` is the text of the loop's bound, `size` the axis' size, None where it is open: no
        partial step when the width divides it.
        """
        if var is None:
            inside()
            return
        if size is not None and size % self.width == 0:
            self.text(f"const width<{self.width}> n{{}};")
            inside()
            return
        if size is not None and size < self.width:
            self.text(f"const long n = {end} - {var};")
            inside()
            return
        with self.text.block("auto body = [=](auto n) __attribute__((always_inline))", "};"):
            inside()
        rest = f"(long)({end} - {var})" if size is None else f"width<{size % self.width}>{{}}"
        self.text(
            f"if ({var} + {self.width} <= {end}) body(width<{self.width}>{{}}); else body({rest});"
        )
