"""Triton source of a loop's instructions: loads, masking, stores, index expressions, constants.

In: a loop and its tiling. Out: lines of a kernel's body. Invariant: a value is written once, as
`v<position>`, and `ready` has it until the writer of the body says otherwise; an element outside
the mask is neither read nor stored; Triton divides toward zero, so `//` and `%` are written only
where the dividend is not negative (what is read backwards counts down from 0).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from flambeau_inductor.codegen.triton import reductions
from flambeau_inductor.codegen.triton.dtypes import HALF, register
from flambeau_inductor.codegen.triton.pointwise import EXACT_IN_HALF, can_round, spell, spell_random
from flambeau_inductor.codegen.triton.row_facts import dtype_of, ends_in, one_plus, only_read_by
from flambeau_inductor.codegen.triton.tiling import Dimension, Tiling
from flambeau_inductor.codegen.triton.whole_numbers import BYTES, Range, conversion, ranges_of
from flambeau_inductor.errors import TritonUnsupported
from flambeau_inductor.indexing import (
    Add,
    Expr,
    FloorDiv,
    IntegerConstant,
    Mod,
    Mul,
    Ranges,
    Size,
    Symbol,
    Var,
    bounds,
    symbols_in,
)
from flambeau_inductor.ir.loops import (
    RANDOM,
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
    Scalar,
    Store,
    axes_of,
    buffers_of,
)
from flambeau_inductor.ir.operands import operands


def to_triton(expr: Expr, names: Mapping[str, str], ranges: Ranges) -> str:
    """Source of `expr`, with each variable written as `names` says."""
    if isinstance(expr, IntegerConstant):
        return str(expr.value)
    if isinstance(expr, Var):
        return names[expr.name]
    if isinstance(expr, Add | Mul):
        sign = " + " if isinstance(expr, Add) else " * "
        return sign.join(_factor(arg, names, ranges) for arg in expr.args)
    if isinstance(expr, FloorDiv | Mod):
        a, b = _factor(expr.a, names, ranges), _factor(expr.b, names, ranges)
        quotient = isinstance(expr, FloorDiv)
        if bounds(expr.a, ranges)[0] >= 0:
            return f"{a} {'//' if quotient else '%'} {b}"
        return f"fm.integer_{'floor_div' if quotient else 'remainder'}({a}, {b})"
    raise TypeError(f"no Triton spelling for the index expression {expr!r}")


def _factor(expr: Expr, names: Mapping[str, str], ranges: Ranges) -> str:
    text = to_triton(expr, names, ranges)
    return text if isinstance(expr, IntegerConstant | Var) else f"({text})"


INT32_LIMIT = 2**31 - 1
Dims = frozenset[str]
STORES = {"set": "tl.store", "add": "tl.atomic_add"}
"""What writes a block, by the mode of its store."""


@dataclass
class Instructions:
    """State of writing one kernel: lines so far, names, and what is already computed."""

    loop: Loop
    dtypes: Mapping[str, torch.dtype]
    numels: Mapping[str, int]
    tiling: Tiling
    arguments: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    indent: str = "    "
    axes: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, Symbol] = field(default_factory=dict)
    ready: dict[int, str] = field(default_factory=dict)
    dims: list[Dims] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    whole: Sequence[Range | None] = ()
    dequantizes: bool = False
    eviction: str = ""
    in_registers: set[int] = field(default_factory=set)
    unread: set[int] = field(default_factory=set)
    same_in_block: frozenset[str] = frozenset()
    """Axes that do not vary within a block: what varies along them alone is computed once."""

    # --- facts about the instructions -------------------------------------------------------

    def _facts(self) -> None:
        """What is known of each instruction before any is written."""
        self._open_sizes()
        self._classify()
        self.rounded = only_read_by(
            self.loop, lambda i: isinstance(i, Point) and i.op == "cast" and i.dtype in HALF
        )
        self.to_half = ends_in(self.loop, frozenset(HALF))
        self.from_one = frozenset(reductions.online_sums(self.loop)) if self.loop.r else frozenset()
        self.summed = only_read_by(self.loop, lambda i: isinstance(i, Reduce) and i.kind == "sum")
        self.whole = ranges_of(self.loop.body)
        self.dequantizes = any(
            isinstance(i, Load) and i.dtype in BYTES and "r" in dims
            for i, dims in zip(self.loop.body, self.dims, strict=True)
        )
        self.vector = self._vector()
        self.narrow = only_read_by(  # by what reads half precision as float32
            self.loop,
            lambda i: (
                isinstance(i, Point)
                and i.op not in EXACT_IN_HALF
                and i.op not in RANDOM
                and (i.op != "cast" or i.dtype == torch.float32)
            ),
        )

    def _open_sizes(self) -> None:
        """The open sizes that the kernel takes, in the order of their parameters."""
        sizes: list[Size] = [axis.size for axis in (*self.loop.x, *self.loop.r)]
        indexed = (i for i in self.loop.body if isinstance(i, Load | Store | IndexValue))
        for size in (*sizes, *(instr.index for instr in indexed)):
            for symbol in symbols_in(size):
                self.sizes.setdefault(symbol.name, symbol)
        self.axes |= {name: f"s{place}" for place, name in enumerate(self.sizes)}

    def _long_indices(self) -> bool:
        """Whether indices take 64 bits."""
        return max((self.numels.get(b, 0) for b in buffers_of(self.loop)), default=0) > INT32_LIMIT

    def _varies(self, index: Expr) -> bool:
        """Whether an index is another one at another point of the loop."""
        return not index.vars <= self.sizes.keys()

    def _size(self, size: Size) -> str:
        """A size in the kernel."""
        return str(size) if isinstance(size, int) else f"({to_triton(size, self.axes, {})})"

    def _end(self, dimension: Dimension) -> str:
        """The number of points of a dimension in the kernel."""
        return f"{dimension.name}_points" if dimension.ragged else self._size(dimension.size)

    def _in_float32(self, i: int, dtype: torch.dtype) -> bool:
        """Whether a value of bfloat16 is kept as the float32 that its readers take it for: rounded
        two at a time, where a thread has two, in software-pipelined rows and where bytes are
        dequantized. One that waits for a reduction waits in 16 bits."""
        pairs = self.tiling.parts is not None or self.dequantizes
        if not pairs or dtype != torch.bfloat16 or i not in self.narrow:
            return False
        readers = zip(self.loop.body, self.levels, strict=True)
        if any(level > self.levels[i] for instr, level in readers if i in operands(instr)):
            return False
        blocks = [d.block for d in self.tiling.dimensions if d.name in self.dims[i]]
        return math.prod(blocks) >= 64 * self.tiling.warps

    def _vector(self) -> int:
        """How many neighbours a thread takes of elements of one byte in a row that has wider ones
        too, else 0: Triton gives it 16 of the narrowest, and converts layouts through shared
        memory for what is stored."""
        elements = [
            dtype_of(self.loop.body[i.value]) if isinstance(i, Store) else i.dtype
            for i in self.loop.body
            if isinstance(i, Load | Store) and self._access_dims(i) == {"x", "r"}
        ]
        widest = max((dtype.itemsize for dtype in elements), default=1)
        return 16 // widest if widest > 1 and self.tiling.parts is not None else 0

    def _classify(self) -> None:
        self.online = reductions.online_sums(self.loop) if self.tiling.looped else {}
        self.dimension_of = {
            a.var: d.name
            for d in self.tiling.dimensions
            for a in d.axes
            if a.var not in self.same_in_block
        }
        for position, instr in enumerate(self.loop.body):
            read = operands(instr)
            dims = frozenset[str]().union(*(self.dims[i] for i in read))
            if isinstance(instr, Load | IndexValue | Store):
                dims |= self._access_dims(instr)
            if isinstance(instr, Store) and instr.combines:
                axes = set(axes_of(self.loop, instr)) - self.same_in_block
                dims |= {self.dimension_of[var] for var in axes}
            level = max((self.levels[i] for i in read), default=0)
            if isinstance(instr, Reduce):
                dims, level = dims - {"r"}, level + 1
            if position in self.online:
                level = self.levels[self.online[position]]
            self.dims.append(dims)
            self.levels.append(level)

    def _dimension(self, name: str) -> Dimension:
        return next(d for d in self.tiling.dimensions if d.name == name)

    # --- index variables --------------------------------------------------------------------

    def _program_ids(self) -> None:
        grid = [d for d in self.tiling.dimensions if d.name != "r"]
        program = "tl.program_id(0)" + (".to(tl.int64)" if self._long_indices() else "")
        if len(grid) == 1:
            self._line(f"x_program = {program}")
        else:
            inner = grid[1]
            self._line(f"program = {program}")
            blocks = self._size(inner.blocks)
            self._line(f"x_program = program % {blocks}")
            self._line(f"y_program = program // {blocks}")
        for d in grid:
            block = f"{d.name.upper()}BLOCK"
            self._dimension_index(d, f"{d.name}_program * {block} + tl.arange(0, {block})")

    def _dimension_index(self, dimension: Dimension, index: str) -> None:
        name = dimension.name
        slot = "[:, None]" if self.tiling.dimensions[0].name == name else "[None, :]"
        self._line(f"{name}index = ({index}){slot if len(self.tiling.dimensions) > 1 else ''}")
        if dimension.masked:
            self._line(f"{name}mask = {name}index < {self._end(dimension)}")
        below: Size = 1
        for position, axis in reversed(list(enumerate(dimension.axes))):
            first = isinstance(below, int) and below == 1
            point = f"{name}index"
            if axis.var in self.same_in_block:
                one = self._shape_of(frozenset())
                point = f"({name}_program * {name.upper()}BLOCK + tl.full({one}, 0, tl.int32))"
            text = point if first else f"({point} // {self._size(below)})"
            if position > 0:
                text = f"{text} % {self._size(axis.size)}"
            below = below * axis.size
            self._axis(axis, text)

    def _axis(self, axis: Axis, text: str) -> None:
        used = any(
            axis.var in instr.index.vars
            for instr in self.loop.body
            if isinstance(instr, Load | Store | IndexValue)
        )
        if used:
            self._line(f"{axis.var} = {text}")
        self.axes[axis.var] = axis.var

    # --- instructions ----------------------------------------------------------------------

    def _straight(self, ids: Sequence[int] | range) -> None:
        # stores last: a result may be given the memory of what this loop reads for the last time
        body = self.loop.body
        stores = [i for i in ids if isinstance(body[i], Store)]
        for i in [*(i for i in ids if not isinstance(body[i], Store)), *stores]:
            instr = body[i]
            if isinstance(instr, Reduce):
                self._reduce_block(i, instr)
            else:
                self._instruction(i, instr)

    def _reduce(self, i: int) -> Reduce:
        instr = self.loop.body[i]
        assert isinstance(instr, Reduce)
        return instr

    def _operand(self, i: int) -> torch.dtype:
        """Dtype of what the reduction `i` combines."""
        return dtype_of(self.loop.body[self._reduce(i).arg])

    def _reduce_block(self, i: int, reduce: Reduce) -> None:
        length = self._size(self._dimension("r").size)
        value = self._full(reduce.arg)
        self._lines(
            reductions.whole(reduce, self._operand(i), value, f"v{i}", self._r_mask(), length)
        )
        self.ready[i] = f"v{i}"

    def _r_mask(self) -> str | None:
        return "rmask" if self._dimension("r").masked else None

    def _full(self, i: int) -> str:
        """The value `i`, spread over the whole block."""
        if self.dims[i] == {d.name for d in self.tiling.dimensions}:
            return self.ready[i]
        return f"tl.broadcast_to({self.ready[i]}, {self._shape_of()})"

    def _instruction(self, i: int, instr: Instr) -> None:
        if isinstance(instr, Store):
            self._store(i, instr)
            return
        if isinstance(instr, Check):
            self._line(f"tl.device_assert({self.ready[instr.arg]}, {instr.message!r})")
            return
        if isinstance(instr, ReducePart):
            self.ready[i] = f"{self.ready[instr.arg]}_{instr.position}"
            return
        if self.tiling.in_registers and isinstance(instr, Load) and "r" in self.dims[i]:
            if i not in self.unread:
                value = f"fm.again(h{i})" if i in self.in_registers else self._value(i, instr)
                self._line(f"h{i} = {value}")
            self.unread.discard(i)
            self.in_registers.add(i)
            self.ready[i] = f"h{i}"
            return
        self._line(f"v{i} = {self._value(i, instr)}")
        self.ready[i] = f"v{i}"

    def _value(self, i: int, instr: Instr) -> str:
        if isinstance(instr, Load):
            return self._load(i, instr)
        if isinstance(instr, Const):
            return self._constant(instr)
        if isinstance(instr, IndexValue):
            text = self._index(instr.index)
            if not self._varies(instr.index):
                return f"tl.full({self._shape_of(frozenset())}, {text}, {register(instr.dtype)})"
            return f"({text}).to({register(instr.dtype)})"
        if isinstance(instr, Point):
            if (function := one_plus(self.loop, instr)) is not None:
                return f"fm.one_plus_{function.op}({self.ready[function.args[0]]})"
            if instr.op in RANDOM:
                seed, position = (self.ready[arg] for arg in instr.args)
                return spell_random(instr.op, seed, position, instr.dtype)
            if instr.op == "exp" and i in self.summed and instr.dtype == torch.float32:
                return f"fm.summed_exp({self.ready[instr.args[0]]})"
            args = [self.ready[arg] for arg in instr.args]
            if instr.op == "cast" and instr.dtype == torch.float32:
                (source,) = instr.args
                if quick := conversion(self.loop.body[source], self.whole[source]):
                    return f"fm.{quick}({args[0]})"
            if instr.op == "div" and i in self.rounded and instr.args[1] in self.from_one:
                return f"{args[0]} * fm.inverse({args[1]})"  # the sum is 1 or more
            dtypes = [dtype_of(self.loop.body[arg]) for arg in instr.args]
            kept = {"rounded": i in self.rounded, "ends_in_half": i in self.to_half}
            if self._in_float32(i, instr.dtype) and can_round(instr.op, dtypes):
                return f"fm.as_bfloat16({spell(instr.op, args, dtypes, torch.float32, **kept)})"
            return spell(instr.op, args, dtypes, instr.dtype, **kept)
        raise TritonUnsupported(f"no Triton code for the instruction {instr!r}")

    def _constant(self, const: Const) -> str:
        dtype, one = register(const.dtype), self._shape_of(frozenset())
        if _is_negative_zero(const.value):
            # Triton fills with zeros whatever equals zero
            return f"tl.full({one}, -1.0, {dtype}) * tl.full({one}, 0.0, {dtype})"
        if const.dtype == torch.bfloat16 and 0 < abs(const.value) < SMALLEST:
            # Triton takes a denormal number for zero where it rounds one to bfloat16
            bits = int(torch.tensor(const.value, dtype=const.dtype).view(torch.int16))
            return f"tl.full({one}, {bits}, tl.int16).to({dtype}, bitcast=True)"
        value = _wrapped_to(const.value, const.dtype)
        return f"tl.full({one}, {_literal(value)}, {dtype})"

    def _other(self, load: Load) -> str:
        """What a load gives where its mask is false."""
        # of float64: Triton takes a number here for one of float32
        if _is_negative_zero(load.other) or load.dtype == torch.float64:
            return self._constant(Const(load.other, load.dtype))
        return _literal(_wrapped_to(load.other, load.dtype))

    def _load(self, i: int, load: Load) -> str:
        masks = self._masks(self.dims[i])
        if load.mask is not None:
            masks.append(f"({self.ready[load.mask]})")
        address = f"{self.names[load.buffer]} + ({self._index(load.index)})"
        if self.vector and load.dtype.itemsize == 1 and self.dims[i] == {"x", "r"}:
            offset = self._index(load.index)
            address = f"{self.names[load.buffer]} + tl.max_contiguous({offset}, [1, {self.vector}])"
        eviction = self.eviction if "r" in self.dims[i] else ""
        one = not self._varies(load.index)
        if one and load.mask is None:
            text = f"tl.load({address} + tl.full({self._shape_of(frozenset())}, 0, tl.int32))"
        elif load.mask is not None and (one or self._index_dims(load.index) != self.dims[i]):
            # a mask may not be larger than what it masks, nor a block where that is none
            spread = f"tl.broadcast_to({address}, {self._shape_of(self.dims[i])})"
            text = f"tl.load({spread}, {' & '.join(masks)}, other={self._other(load)})"
        elif masks:
            other = self._other(load) if load.mask is not None else "0"
            text = f"tl.load({address}, {' & '.join(masks)}, other={other}{eviction})"
        else:
            text = f"tl.load({address}{eviction})"
        return f"{text}.to(tl.int1)" if load.dtype == torch.bool else text

    def _store(self, i: int, store: Store) -> None:
        dims = self.dims[i]
        masks = self._masks(dims)
        address = f"{self.names[store.buffer]} + ({self._index(store.index)})"
        value = self.ready[store.value]
        spread = self._index_dims(store.index) != dims  # one element, for points that are masked
        if spread or dims != self.dims[store.value] or not self._varies(store.index):
            shape = self._shape_of(dims)
            value = f"tl.broadcast_to({value}, {shape})"
            address = f"tl.broadcast_to({address}, {shape})"
        mask = f", {' & '.join(masks)}" if masks else ""
        function = STORES.get(store.mode)
        if function is None:
            raise TritonUnsupported(f"no Triton store of mode {store.mode}")
        order = ", sem='relaxed'" if store.mode != "set" else ""  # a sum in whatever order
        self._line(f"{function}({address}, {value}{mask}{order})")

    def _shape_of(self, dims: Dims | None = None) -> str:
        """The block's shape, with 1 for what is not in `dims` where they are given."""
        sizes = (
            f"{d.name.upper()}BLOCK" if dims is None or d.name in dims else "1"
            for d in self.tiling.dimensions
        )
        return f"[{', '.join(sizes)}]"

    def _access_dims(self, instr: Load | IndexValue | Store) -> Dims:
        """The block dimensions that an instruction's own index varies along."""
        return self._index_dims(instr.index)

    def _index_dims(self, index: Expr) -> Dims:
        """The block dimensions that an index varies along."""
        found: set[str] = set()
        for name in index.vars:
            if name.startswith("%"):
                found |= self.dims[int(name[1:])]
            elif name in self.dimension_of:
                found.add(self.dimension_of[name])
        return frozenset(found)

    def _masks(self, dims: Dims) -> list[str]:
        return [f"{d.name}mask" for d in self.tiling.dimensions if d.name in dims and d.masked]

    def _index(self, index: Expr) -> str:
        names = dict(self.axes)
        for name in index.vars:
            if name.startswith("%"):
                names[name] = self.ready[int(name[1:])]
        ranges = {axis.var: (0, axis.size - 1) for axis in (*self.loop.x, *self.loop.r)}
        return to_triton(index, names, ranges)

    def _line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def _lines(self, texts: Sequence[str]) -> None:
        for text in texts:
            self._line(text)


SMALLEST = torch.finfo(torch.bfloat16).smallest_normal


def _wrapped_to(value: Scalar, dtype: torch.dtype) -> Scalar:
    """A whole number as `dtype` holds it, -1 as 255 in a byte: Triton takes no other."""
    if dtype.is_floating_point or dtype == torch.bool or not isinstance(value, int):
        return value
    info = torch.iinfo(dtype)
    return (int(value) - info.min) % (info.max - info.min + 1) + info.min


def _is_negative_zero(value: Scalar) -> bool:
    return isinstance(value, float) and value == 0 and math.copysign(1.0, value) < 0


def _literal(value: Scalar) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return f'float("{value}")'
    return repr(value)
