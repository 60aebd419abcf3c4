"""Instructions as C++ variables, in the flavour (scalar or vector) that the plan gives them.

In: a `Plan` and the position of an instruction. Out: lines that declare `v<position>` or store it.
Invariant: outside the lanes in use (`n`) nothing is read from or written to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch

from flambeau_inductor.codegen.cpp.dtypes import ROUNDED, held, literal
from flambeau_inductor.codegen.cpp.errors import CppUnsupported
from flambeau_inductor.codegen.cpp.lanes import lane_step, whole_blocks
from flambeau_inductor.codegen.cpp.plan import Plan
from flambeau_inductor.codegen.cpp.points import NEIGHBOURS, point, random_name
from flambeau_inductor.codegen.cpp.rewrite import short_ranges
from flambeau_inductor.codegen.cpp.text import Text
from flambeau_inductor.codegen.cpp.traffic import Ahead, streamed
from flambeau_inductor.indexing import Expr, Var, bounds, to_c
from flambeau_inductor.ir.loops import (
    RANDOM,
    Check,
    Const,
    IndexValue,
    Load,
    Part,
    Point,
    Store,
    ValueId,
)

COMBINE = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}
"""What a store does with the element that is there."""


class Values:
    """Declares values; remembers which buffers the kernel takes."""

    def __init__(self, plan: Plan, text: Text, dtype_of: Callable[[str], torch.dtype]) -> None:
        self.plan = plan
        self.text = text
        self.dtype_of = dtype_of
        self.buffers: dict[str, int] = {}
        self.stored: set[str] = set()
        self.kept: set[ValueId] = set()
        self.turned: dict[ValueId, str] = {}
        self.streamed = streamed(plan, dtype_of)
        self.width = plan.width
        self.row = {
            a.var: prod(b.size for b in plan.loop.r[k + 1 :]) for k, a in enumerate(plan.loop.r)
        }

    # -- types and operands -------------------------------------------------------------------

    def dtype(self, value: ValueId) -> torch.dtype:
        """Result dtype of an instruction."""
        instr = self.plan.loop.body[value]
        if isinstance(instr, Store):
            raise CppUnsupported("a store has no value")
        return instr.dtype

    def type_of(self, dtype: torch.dtype, vector: bool) -> str:
        """C++ type of a variable."""
        lane = held(dtype).value
        return f"{lane}x{self.width}" if vector else lane

    def name(self, value: ValueId) -> str:
        """The variable that holds the value."""
        instr = self.plan.loop.body[value]
        if isinstance(instr, Part):
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
            number = f"({held(dtype).value})({text})"
            return f"splat{self.width}({number})" if vector else number

        return render

    def pointer(self, buffer: str) -> str:
        """Parameter that a buffer is bound to."""
        return f"p{self.buffers.setdefault(buffer, len(self.buffers))}"

    # -- addresses ----------------------------------------------------------------------------

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

    # -- instructions -------------------------------------------------------------------------

    def compute(self, value: ValueId) -> None:
        """Declare the variable of a pure instruction."""
        instr = self.plan.loop.body[value]
        vector = self.plan.is_vector(value)
        match instr:
            case Load():
                self._load(value, instr, vector)
            case Const(value=number, dtype=dtype):
                self._declare(value, literal(number, dtype))
            case IndexValue():
                self._index_value(value, instr, vector)
            case Point(op=op) if vector and op in RANDOM:
                self._random(value, instr)
            case Point(op=op, args=args, dtype=dtype):
                kinds = [self.dtype(a) for a in args]
                operands = [self.operand(a, vector) for a in args]
                self._declare(value, point(op, kinds, dtype, operands, self.constant(vector)))
            case Check(arg=arg):
                self._check(arg)
            case _:
                raise CppUnsupported(f"cannot compute {type(instr).__name__} here")

    def _check(self, asked: ValueId) -> None:
        """One comparison, and a point that is left out where it fails: masks would be computed for
        every element."""
        both = self.plan.loop.body[asked]
        parts = [self.plan.loop.body[a] for a in both.args] if isinstance(both, Point) else []
        match parts:
            case [Point(op="ge", args=(place, low)), Point(op="lt", args=(same, end))]:
                if place != same or self.plan.is_vector(asked) or self.plan.loop.r:
                    raise CppUnsupported("a check of vectors, of two values, or of rows")
            case _:
                raise CppUnsupported("a check of something else than a range")
        found, first, last = (f"(unsigned long){self.name(v)}" for v in (place, low, end))
        beyond = f"{found} - {first} >= {last} - {first}"
        self.text(f"if (__builtin_expect({beyond}, 0)) {{ outside = 1; continue; }}")

    def _random(self, value: ValueId, instr: Point) -> None:
        """Neighbours by blocks where positions are known to be; any others one by one."""
        seed, position = instr.args
        counted = self.plan.loop.body[position]
        name = random_name(instr.op, instr.dtype)
        rounds = instr.op == "philox_normal" and instr.dtype in ROUNDED
        whole = (
            isinstance(counted, IndexValue)
            and self.step(counted.index) == 1
            and self.width >= 4
            and name in NEIGHBOURS
            and not self.plan.is_vector(seed)
        )
        if whole and isinstance(counted, IndexValue):
            first = f"(i64)({self.address(counted.index)})"
            numbers = f"{name}_{self.width}({self.name(seed)}, {first})"
            self._declare(value, f"{ROUNDED[instr.dtype]}({numbers})" if rounds else numbers)
            return
        each = f"{name}({self._lane(seed)}, {self._lane(position)})"
        self._by_lanes(value, f"{ROUNDED[instr.dtype]}({each})" if rounds else each, "0", None)

    def _lane(self, value: ValueId) -> str:
        """One lane, number `l`, of a value."""
        instr = self.plan.loop.body[value]
        if isinstance(instr, IndexValue):
            return f"(i64)({self.address(instr.index, 'l')})"
        return f"{self.name(value)}[l]" if self.plan.is_vector(value) else self.name(value)

    def _declare(self, value: ValueId, expression: str) -> None:
        kind = self.type_of(self.dtype(value), self.plan.is_vector(value))
        self.text(f"const {kind} v{value} = {expression};")

    def _load(self, value: ValueId, instr: Load, vector: bool) -> None:
        memory = self.dtype_of(instr.buffer)
        if memory is not instr.dtype:
            raise CppUnsupported(f"a load of {memory} as {instr.dtype}")
        if value in self.turned:
            self._declare(value, f"load{self.width}({self.turned[value]}, width<{self.width}>{{}})")
            return
        base = self.pointer(instr.buffer)
        if not vector:
            read = f"load1({base} + {self.address(instr.index)})"
            if instr.mask is not None:
                other = literal(instr.other, instr.dtype)
                read = f"{self.name(instr.mask)} ? {read} : {other}"
            self._declare(value, read)
            return
        step = self.step(instr.index)
        whole = None
        if step == 1:
            whole = f"load{self.width}({base} + {self.address(instr.index)}, n)"
        elif step == 0:
            whole = f"splat{self.width}(load1({base} + {self.address(instr.index)}))"
        if instr.mask is None and whole is not None:
            self._declare(value, whole)
            return
        each = f"load1({base} + {self.address(instr.index, 'l')})"
        other = literal(instr.other, instr.dtype)
        kind = self.type_of(instr.dtype, True)
        if instr.mask is None:
            self._by_lanes(value, each, literal(0, instr.dtype), None)
            return
        if not self.plan.is_vector(instr.mask):
            self.text(f"{kind} v{value} = splat{self.width}(({held(instr.dtype).value}){other});")
            with self.text.block(f"if ({self.name(instr.mask)})"):
                if whole is not None:
                    self.text(f"v{value} = {whole};")
                else:
                    self.text(f"for (long l = 0; l < (long)n; ++l) v{value}[l] = {each};")
            return
        mask = self.name(instr.mask)
        if whole is None:
            self._by_lanes(value, each, other, mask)
            return
        self.text(f"{kind} v{value} = splat{self.width}(({held(instr.dtype).value}){other});")
        if (test := self._same_for_all(instr.mask)) is not None:
            self.text(f"if ({test}) v{value} = {whole};")
            return
        self.text(f"if (every({mask}, n)) v{value} = {whole};")
        self.text(
            f"else if (some({mask}, n)) for (long l = 0; l < (long)n; ++l) "
            f"if ({mask}[l]) v{value}[l] = {each};"
        )

    def _same_for_all(self, mask: ValueId) -> str | None:
        """A mask that no vector is cut by, as a condition on its first lane."""
        instr = self.plan.loop.body[mask]
        if not isinstance(instr, Point) or instr.op not in ("lt", "ge") or not self.plan.vector:
            return None
        place, bound = (self.plan.loop.body[a] for a in instr.args)
        if not isinstance(place, IndexValue) or not isinstance(bound, Const):
            return None
        if any(v.startswith("%") for v in place.index.vars) or not isinstance(bound.value, int):
            return None
        if not whole_blocks(place.index - bound.value, self.plan.vector, self.width):
            return None
        return f"{self.address(place.index)} {'<' if instr.op == 'lt' else '>='} {bound.value}L"

    def turn(self, value: ValueId, var: str) -> None:
        """Read a load's numbers for the points of `var` from `{var}_t` on, a vector for each."""
        self.text(f"alignas(64) f32 q{value}[{self.width * self.width}];")
        self._turn(value, var, f"q{value}", self.width)
        self.turned[value] = f"q{value} + {self.width} * ({var} - {var}_t)"

    def turn_tile(self, value: ValueId, var: str, columns: int) -> None:
        """The same into a square of the tile q, whose rows hold `columns` lanes and which begins at
        `{var}_b` and, for the lanes, likewise."""
        lanes = self.plan.vector
        into = f"q{value} + {columns} * ({var}_t - {var}_b) + ({lanes} - {lanes}_b)"
        self._turn(value, var, into, columns)
        into = f"q{value} + {columns} * ({var} - {var}_b) + ({lanes} - {lanes}_b)"
        self.turned[value] = into

    def _turn(self, value: ValueId, var: str, into: str, apart: int) -> None:
        instr = self.plan.loop.body[value]
        if not isinstance(instr, Load):
            raise CppUnsupported(f"{type(instr).__name__} reads no memory")
        # the first point's variable is not declared yet
        ranges = {**self.plan.ranges, f"{var}_t": self.plan.ranges[var]}
        first = to_c(instr.index.substitute({var: Var(f"{var}_t")}), ranges)
        where = f"{self.pointer(instr.buffer)} + {first}, {self.step(instr.index)}"
        self.text(f"turn{self.width}({where}, {into}, {apart}, count, n);")

    def _by_lanes(self, value: ValueId, each: str, other: str, mask: str | None) -> None:
        lane = held(self.dtype(value)).value
        self.text(f"{lane} t{value}[{self.width}];")
        chosen = "l < (long)n" if mask is None else f"l < (long)n && {mask}[l]"
        self.text(
            f"for (long l = 0; l < {self.width}; ++l) "
            f"t{value}[l] = {chosen} ? {each} : ({lane}){other};"
        )
        self._declare(value, f"load{self.width}(t{value}, width<{self.width}>{{}})")

    def _index_value(self, value: ValueId, instr: IndexValue, vector: bool) -> None:
        target = held(instr.dtype).value
        if instr.dtype is torch.bool:
            raise CppUnsupported("positions as bools: compare them instead")

        def converted(text: str) -> str:
            text = f"to_{target}({text})"
            return f"{ROUNDED[instr.dtype]}({text})" if instr.dtype in ROUNDED else text

        if not vector:
            self._declare(value, converted(f"(i64)({self.address(instr.index)})"))
            return
        step = self.step(instr.index)
        low, high = bounds(instr.index, short_ranges(self.plan.axes))
        if step is None or low < -(2**31) or high + abs(step) * self.width >= 2**31:
            each = converted(f"(i64)({self.address(instr.index, 'l')})")
            self._by_lanes(value, each, "0", None)
            return
        first = f"splat{self.width}((i32)({self.address(instr.index)}))"
        moving = f"{first} + lanes{self.width}() * {step}" if step else first
        self._declare(value, converted(moving))

    def store(self, position: ValueId) -> None:
        """Write a value to its buffer."""
        instr = self.plan.loop.body[position]
        if not isinstance(instr, Store):
            raise CppUnsupported(f"{type(instr).__name__} does not store")
        base = self.pointer(instr.buffer)
        self.stored.add(instr.buffer)
        value_dtype = self.dtype(instr.value)
        memory = self.dtype_of(instr.buffer)
        if memory is not value_dtype:
            raise CppUnsupported(f"a store of {value_dtype} into {memory}")
        combine = COMBINE.get(instr.mode)

        def combined(there: str, value: str) -> str:
            text = value if combine is None else f"{combine}({there}, {value})"
            rounds = instr.mode in ("add", "mul") and memory in ROUNDED
            return f"{ROUNDED[memory]}({text})" if rounds else text

        if not self.plan.is_vector(position):
            to, what = f"{base} + {self.address(instr.index)}", self.name(instr.value)
            self.text(f"store1({to}, {combined(f'load1({to})', what)});")
            return
        if self.step(instr.index) == 1:
            # neighbours never meet
            to, what = f"{base} + {self.address(instr.index)}", self.operand(instr.value, True)
            if position in self.streamed:
                self.text(f"stream({to}, {what}, n);")
                return
            self.text(f"store({to}, {combined(f'load{self.width}({to}, n)', what)}, n);")
            return
        what = self.name(instr.value)
        if self.plan.is_vector(instr.value):
            what += "[l]"
        to = f"{base} + {self.address(instr.index, 'l')}"
        what = f"({held(value_dtype).value}){what}"
        self.text(
            f"for (long l = 0; l < (long)n; ++l) store1({to}, {combined(f'load1({to})', what)});"
        )

    def fetch(self, ahead: Ahead) -> None:
        """Bring into a cache what the same lanes of a row to come will read."""
        self.fetch_at(ahead.loads, {ahead.axis: Var(ahead.axis) + ahead.rows}, ahead.near)

    def fetch_at(
        self, loads: Sequence[ValueId], moved: dict[str, Expr], near: bool = False
    ) -> None:
        """Bring into the second cache, or the first, what loads read where some variables are
        others."""
        for value in loads:
            instr = self.plan.loop.body[value]
            if not isinstance(instr, Load):
                raise CppUnsupported(f"{type(instr).__name__} reads no memory")
            self._fetch(instr, moved, near)

    def _fetch(self, instr: Load, moved: dict[str, Expr], near: bool) -> None:
        """Ask for the line that a load would read with some variables changed."""
        ranges = {v: (0, 2**40) for m in moved.values() for v in m.vars}
        index = to_c(instr.index.substitute(moved), {**self.plan.ranges, **ranges})
        self.text(
            f"__builtin_prefetch({self.pointer(instr.buffer)} + {index}, 0, {3 if near else 2});"
        )

    # -- rows kept in cache -------------------------------------------------------------------

    def declare_scratch(self) -> None:
        """Local arrays for the element values that are kept from one pass to the next."""
        length = to_c(self.plan.length, {})
        for value in sorted(self.plan.scratch):
            lane = held(self.dtype(value)).value
            self.text(f"{lane} row{value}[{length}];")
            self.text(f"{lane}* const s{value} = row{value};")

    def _row_position(self) -> str:
        places = self.row.items()
        return " + ".join(
            v if isinstance(k, int) and k == 1 else f"{v}*{to_c(k, {})}" for v, k in places
        )

    def keep(self, value: ValueId) -> None:
        """Write an element value to its row."""
        what = self.operand(value, True)
        self.text(f"store(s{value} + {self._row_position()}, {what}, n);")

    def recall(self, value: ValueId) -> None:
        """Read an element value back from its row."""
        read = f"load{self.width}(s{value} + {self._row_position()}, n)"
        kind = self.type_of(self.dtype(value), True)
        self.text(f"const {kind} v{value} = {read};")

    def row_position(self, vector: bool) -> str:
        """Position in the row as i32, in the flavour of an accumulator."""
        first = f"(i32)({self._row_position()})"
        if not vector:
            return first
        moves = bool(self.plan.loop.r) and self.plan.vector == self.plan.loop.r[-1].var
        return f"splat{self.width}({first})" + (f" + lanes{self.width}()" if moves else "")

    # -- lanes in use -------------------------------------------------------------------------

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
        self.text(
            f"if ({var} + {self.width} <= {end}) body(width<{self.width}>{{}}); "
            f"else body((long)({end} - {var}));"
        )
