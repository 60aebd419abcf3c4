"""One loop as a Triton kernel.

In: a loop, its tiling and the buffers' dtypes. Out: the kernel's text with its arguments and
block sizes. Invariant: the text depends on the loop alone: buffers are named by position, so
that equal kernels of different layers have equal text.

A reduction that fits one block is written straight down. A looped one becomes passes over `r`:
a `Reduce` belongs to the pass of its level (how many reductions it waits for), and a pass computes
anew, from memory, the element values it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from flambeau_inductor.codegen.triton import reductions
from flambeau_inductor.codegen.triton.dtypes import pointer
from flambeau_inductor.codegen.triton.instructions import INT32_LIMIT, Instructions
from flambeau_inductor.codegen.triton.row_facts import reduces_across
from flambeau_inductor.codegen.triton.tiling import Tiling, choose
from flambeau_inductor.codegen.triton.whole_numbers import sums_exact_products, widened_at_once
from flambeau_inductor.indexing import Size, as_expr, decide_equal, surely_less, to_python
from flambeau_inductor.ir.loops import (
    Axis,
    Check,
    Const,
    IndexValue,
    Load,
    Loop,
    Point,
    Reduce,
    Store,
)
from flambeau_inductor.ir.operands import operands
from flambeau_inductor.reachability import reached
from flambeau_inductor.runtime.gpu.tensor_descriptors import Descriptor
from flambeau_inductor.tuning import MEASURED, Tuning

ALIGNMENT = 16
"""What the addresses of buffers, and some open sizes, are taken to be multiples of."""
WITH_DESCRIPTORS = "DESCRIPTORS"
"""The constant that says whether a kernel has its descriptors."""
STAGES = "STAGES"
"""The constant that says how many blocks of rows in turn are on their way: fewer where the device
has no room for them."""


DEPENDENT = "DEPENDENT"
"""The constant that says whether a kernel waits for those before it by itself."""
WAIT = f"    if {DEPENDENT}:\n        tl.extra.cuda.gdc_wait()"
RELEASE = f"    if {DEPENDENT}:\n        tl.extra.cuda.gdc_launch_dependents()"
"""The first lines of kernels; where one leaves room, the next may start, and waits in turn."""


NO_SIZES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """Source of a kernel and what launching it takes.

    `arguments` are buffer names in order, `pointers` their types in a signature, `constants` the
    block sizes, `programs` the grid's length; `stages` how many loads of a loop are in flight and
    `registers` the most that a thread may have (None: Triton's choice). `descriptors` are
    parameters d0, d1 after the pointers; the constant DESCRIPTORS, which such a kernel has, is 0
    where they are None: in what is compiled for unaligned buffers. `contracts` says whether a
    product and a sum may become one operation, rounded once: where both are operators of the
    program, each of which eager rounds, only if the product is exact.

    `sizes` are the types of the open sizes, parameters s0, s1, ... after the others: those that end
    in `:16` are multiples of 16. A kernel that has some gets the grid's length, too, at each launch
    (`programs` is None); `given` is what its loop gives for both, in the wrapper's names.
    """

    name: str
    source: str
    arguments: tuple[str, ...]
    pointers: tuple[str, ...]
    constants: tuple[tuple[str, int], ...]
    programs: int | None
    warps: int
    stages: int | None = None
    descriptors: tuple[Descriptor, ...] = ()
    registers: int | None = None
    contracts: bool = True
    sizes: tuple[str, ...] = ()
    given: tuple[str, ...] = ()


def kernel_of(
    name: str,
    lines: Sequence[str],
    pointers: Mapping[str, str],
    constants: tuple[tuple[str, int], ...],
    programs: Size,
    warps: int,
    stages: int | None = None,
    descriptors: tuple[Descriptor, ...] = (),
    sizes: Mapping[str, str] = NO_SIZES,
) -> TritonKernel:
    """The kernel of indented lines, in which buffers (`pointers` are their types) are `b0`, ...,
    descriptors `d0`, ... and open sizes (`sizes` are their types) `s0`, ..."""
    constants = (*constants, (DEPENDENT, 1))
    small = isinstance(programs, int) and programs <= MEASURED.machine.multiprocessors
    lines = [*([RELEASE] if small else []), WAIT, *lines]
    if descriptors:
        constants = (*constants, (WITH_DESCRIPTORS, 1))
    parameters = [f"b{i}" for i in range(len(pointers))]
    parameters += [f"d{i}" for i in range(len(descriptors))]
    parameters += [f"s{i}" for i in range(len(sizes))]
    parameters += [f"{constant}: tl.constexpr" for constant, _ in constants]
    header = f"@triton.jit\ndef {name}({', '.join(parameters)}):"
    source = "\n".join([header, *lines]) + "\n"
    grid = programs if isinstance(programs, int) and not sizes else None
    head = (name, source, tuple(pointers), tuple(pointers.values()), constants, grid, warps)
    made = TritonKernel(*head, stages, descriptors)
    given = () if grid is not None else (*sizes, to_python(programs))
    return replace(made, sizes=tuple(sizes.values()), given=given)


def generate(
    loop: Loop,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    tiling: Tiling | None = None,
    tuning: Tuning = MEASURED,
) -> TritonKernel:
    """Triton kernel of `loop`.

    Args:
        loop: the kernel's meaning.
        dtypes: dtype of every buffer it touches.
        numels: elements that a buffer's indices may span, to choose the index width.
        tiling: block sizes; chosen from the loop when absent, for a device of such `tuning`.

    Raises:
        TritonUnsupported: the loop cannot be expressed.
    """
    loop = widened_at_once(loop)
    return KernelWriter(loop, dtypes, numels, tiling or choose(loop, tuning)).kernel()


class KernelWriter(Instructions):
    """The body of a kernel around its instructions."""

    def kernel(self) -> TritonKernel:
        if self.tiling.parts is None:
            grid = [d for d in self.tiling.dimensions if d.name != "r"]
            self.same_in_block = frozenset[str]().union(*(d.same_in_block for d in grid))
        self._facts()
        accesses = (i for i in self.loop.body if isinstance(i, Load | Store))
        self.arguments = tuple(dict.fromkeys(i.buffer for i in accesses))
        self.names = {name: f"b{i}" for i, name in enumerate(self.arguments)}
        if self.tiling.parts is not None:
            self._pipelined_rows(self.tiling.parts)
        else:
            self._program_ids()
            if self.tiling.looped:
                self._passes()
            else:
                self._whole_rows()
        constants = tuple((f"{d.name.upper()}BLOCK", d.block) for d in self.tiling.dimensions)
        if self.tiling.parts is not None:
            constants += ((STAGES, self.tiling.stages),)
        pointers = {name: pointer(self.dtypes[name]) for name in self.arguments}
        programs, warps, sizes = self.tiling.programs, self.tiling.warps, self._types_of_sizes()
        head = (self.loop.name, self.lines, pointers, constants, programs, warps)
        made = kernel_of(*head, sizes=sizes)
        exact = sums_exact_products(self.loop)
        return replace(made, registers=self.tiling.registers, contracts=exact)

    def _types_of_sizes(self) -> dict[str, str]:
        """The types of the open sizes. One that is a stride, and a multiple of 16 in this compile,
        is assumed to be one: rows then begin where a vector of their elements may."""
        accesses = [i.index for i in self.loop.body if isinstance(i, Load | Store)]
        types: dict[str, str] = {}
        for name, symbol in self.sizes.items():
            fits = surely_less(symbol, INT32_LIMIT + 1) and surely_less(-INT32_LIMIT, symbol)
            wide = self._long_indices() or not fits
            aligned = symbol.hint % ALIGNMENT == 0 and any(name in index.vars for index in accesses)
            aligned = aligned and decide_equal(as_expr(symbol) % ALIGNMENT, 0)
            types[name] = ("i64" if wide else "i32") + (f":{ALIGNMENT}" if aligned else "")
        return types

    def _whole_rows(self) -> None:
        """Rows that fit in a block, if there are any."""
        if self.loop.r:
            self._dimension_index(self._dimension("r"), "tl.arange(0, RBLOCK)")
        if self.tiling.in_registers:
            self._recomputed_passes()
        else:
            early = [*self._early(), *self._of_rows()]
            others = [i for i in range(len(self.loop.body)) if i not in set(early)]
            self._straight([*early, *others])

    def _pipelined_rows(self, parts: Axis) -> None:
        """Software-pipelined rows of a program, or its part of their columns, with sums down the
        columns in registers."""
        body = self.loop.body
        totals = {i: s for i, s in enumerate(body) if isinstance(s, Store) and s.mode == "total"}
        program = "tl.program_id(0)" + (".to(tl.int64)" if self._long_indices() else "")
        self.axes[parts.var] = parts.var
        r = self._dimension("r")
        if r.blocks == 1:
            self._line(f"{parts.var} = {program}")
            self._dimension_index(r, "tl.arange(0, RBLOCK)")
        else:
            self._line(f"program = {program}")
            self._line(f"{parts.var} = program // {r.blocks}")
            self._dimension_index(r, f"program % {r.blocks} * RBLOCK + tl.arange(0, RBLOCK)")
        first = self._same_for_all_rows()
        self._straight(first)
        for i in totals:
            self._line(f"a{i} = tl.zeros({self._shape_of()}, tl.float32)")
        x = self._dimension("x")
        if x.ragged:
            left = f"({self.loop.points} - {x.size} * {parts.var}).to(tl.int32)"
            self._line(f"{self._end(x)} = tl.minimum({left}, {x.size})")
        self._line(f"for x_offset in tl.range(0, {self._end(x)}, XBLOCK, num_stages={STAGES}):")
        self.indent = "        "
        self._dimension_index(x, "x_offset + tl.arange(0, XBLOCK)")
        early = [i for i in self._early() if i not in first]
        done = {*first, *early, *totals}
        self._straight([*early, *(i for i in range(len(body)) if i not in done)])
        for i, store in totals.items():
            value = self._full(store.value)
            self._line(f"a{i} += " + (f"tl.where(xmask, {value}, 0.0)" if x.masked else value))
        self.indent = "    "
        mask = ", rmask" if self._r_mask() else ""
        for i, store in totals.items():
            address = f"{self.names[store.buffer]} + ({self._index(store.index)})"
            self._line(f"tl.store({address}, tl.sum(a{i}, 0)[None, :]{mask})")

    def _same_for_all_rows(self) -> list[int]:
        """What is read and computed once for all the rows of a program."""
        found: list[int] = []
        for i, instr in enumerate(self.loop.body):
            plain = isinstance(instr, Load | Const | IndexValue | Point)
            if plain and "x" not in self.dims[i] and set(operands(instr)) <= set(found):
                found.append(i)
        return found

    def _of_rows(self) -> list[int]:
        """What is read of each row besides its elements: it need not wait for the reduction that it
        is combined with, and takes a register for a row."""
        return [
            i
            for i, instr in enumerate(self.loop.body)
            if isinstance(instr, Load)
            and "r" not in self.dims[i]
            and instr.mask is None
            and self.loop.r
            and not any(name.startswith("%") for name in instr.index.vars)
        ]

    def _early(self) -> list[int]:
        """Where something is reduced, what can be read at once: all of it is then under way while
        the first reduction waits. What all rows share is in a cache, and waits in no register; only
        wider than the elements of the rows it comes before them, since Triton computes in the
        layout of the last of them, and converts the others through shared memory."""
        body = self.loop.body
        plain = [
            (i, instr)
            for i, instr in enumerate(body)
            if isinstance(instr, Load)
            and instr.mask is None
            and not any(name.startswith("%") for name in instr.index.vars)
        ]
        elements = [i for i, _ in plain if self.dims[i] == {"x", "r"}]
        narrow = any(i.dtype.itemsize == 1 for k, i in plain if k in elements)
        shared = [i for i, load in plain if self.dims[i] == {"r"} and load.dtype.itemsize > 1]
        return [*(shared if narrow else []), *elements]

    def _recomputed_passes(self) -> None:
        """As `_passes`, of a row that stays in registers as it was read: what is computed from it
        is recomputed for each reduction."""
        self._straight(self._early())
        self.unread = set(self.in_registers)
        for i in self.in_registers:
            del self.ready[i]
        for level in range(max(self.levels, default=0) + 1):
            rows, reduces, stores = self._of_level(level)
            self._straight(rows)
            kept = dict(self.ready)
            self._straight(self._needed(reduces, stores))
            for i in reduces:
                self._reduce_block(i, self._reduce(i))
            self.ready = kept | {i: f"v{i}" for i in reduces}

    def _of_level(self, level: int) -> tuple[list[int], list[int], list[int]]:
        """What comes once a row, what is reduced over it, and what is stored all along it."""
        body = self.loop.body
        rows = [
            i
            for i, instr in enumerate(body)
            if self.levels[i] == level and "r" not in self.dims[i] and not isinstance(instr, Reduce)
        ]
        reduces = [
            i
            for i, instr in enumerate(body)
            if isinstance(instr, Reduce) and self.levels[i] == level + 1
        ]
        stores = [
            i
            for i, instr in enumerate(body)
            if isinstance(instr, Store | Check) and self.levels[i] == level and "r" in self.dims[i]
        ]
        return rows, reduces, stores

    def _passes(self) -> None:
        r = self._dimension("r")
        for level in range(max(self.levels, default=0) + 1):
            rows, reduces, stores = self._of_level(level)
            self._straight(rows)
            if not reduces and not stores:
                continue
            both = {i: top for i, top in self.online.items() if i in reduces}
            alone = [i for i in reduces if i not in both and i not in both.values()]
            if self._reads_again():  # what is read again stays in the cache, what is not makes room
                policy = "evict_last" if reduces else "evict_first"
                self.eviction = f", eviction_policy='{policy}'"
            for i in alone:
                self._lines(
                    reductions.start(self._reduce(i), self._operand(i), f"a{i}", self._shape_of())
                )
            for i, top in both.items():
                self._line(f"a{top} = tl.full({self._shape_of()}, fm.LOWEST, tl.float32)")
                self._line(f"a{i} = tl.zeros({self._shape_of()}, tl.float32)")
            self._line(f"for r_offset in range(0, {self._size(r.size)}, RBLOCK):")
            kept = dict(self.ready)
            self.indent = "        "
            self._dimension_index(r, "r_offset + tl.arange(0, RBLOCK)")
            self._straight(self._needed([*alone, *both.values()], stores))
            for i in alone:
                reduce = self._reduce(i)
                self._lines(
                    reductions.step(reduce, f"a{i}", self._full(reduce.arg), self._r_mask())
                )
            for i, top in both.items():
                value, mask = self._full(self._reduce(top).arg), self._r_mask()
                held = f"tl.where({mask}, {value}, float('-inf'))" if mask else value
                self._line(f"a{top}, a{i} = fm.online_sum(a{top}, a{i}, {held})")
            self.indent, self.ready = "    ", kept
            for i, top in both.items():
                self._line(f"v{top} = tl.reduce(a{top}, 1, fm.maximum)[:, None]")
                self._line(f"v{i} = tl.sum(fm.online_share(a{top}, a{i}, v{top}), 1)[:, None]")
                self._line(f"v{top}, v{i} = fm.online_result(v{i}, v{top})")
                self.ready[i], self.ready[top] = f"v{i}", f"v{top}"
            for i in alone:
                self._lines(
                    reductions.finish(self._reduce(i), f"a{i}", f"v{i}", self._size(r.size))
                )
                self.ready[i] = f"v{i}"

    def _reads_again(self) -> bool:
        """Whether rows that are read again after a reduction are to stay in the cache."""
        later = any(
            level > 1 if isinstance(instr, Reduce) else level > 0 and "r" in dims
            for instr, level, dims in zip(self.loop.body, self.levels, self.dims, strict=True)
        )
        across = bool(self.loop.x) and reduces_across(self.loop)
        return bool(self.online) or (later and not across)

    def _needed(self, reduces: Sequence[int], stores: Sequence[int]) -> list[int]:
        """Element values to compute in a pass, in order, with the pass's stores."""
        ends = [self._reduce(i).arg for i in reduces] + list(stores)
        taken = reached(self._unready(ends), lambda i: self._unready(operands(self.loop.body[i])))
        return sorted(taken)

    def _unready(self, values: Iterable[int]) -> list[int]:
        return [i for i in values if i not in self.ready]
