"""Deterministic row-wise scatter-add: sorted segments, one store per row.

In: a library call, and where its operands lie. Out: `FoundRows`: Triton kernels, run in the order
of `KERNELS`. Invariant: each sum is float32 and rounded once; a position outside ends the kernel
that counts, before memory is written.

The ranks that counting gives sort positions by row into `order`. A row's program adds up what they
name; `CHUNK` neighbours that name one row are added ahead by programs of their own (`parts`).
A program has several rows where these are short: a multiprocessor holds some tens of programs, each
of which waits for memory twice, and what they write together in that time must be worth the wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from flambeau_inductor.codegen.triton.dtypes import pointer, register
from flambeau_inductor.codegen.triton.kernel import TritonKernel, kernel_of
from flambeau_inductor.ir.program import Buffer, Extern, Layout, Program, Ref
from flambeau_inductor.runtime.operators import ROWS_ADDED
from flambeau_inductor.templates.call_replacement import (
    FoundCall,
    Selected,
    Several,
    matched,
    templates_of,
)
from flambeau_inductor.templates.gemm.problem import dtype_of, static_of
from flambeau_inductor.tuning import MEASURED, Tuning

CHUNK = 32
SUMS_AT_ONCE = 8
LEAST_BYTES = 2048
"""That a program writes. Not measured: what a multiprocessor's programs write must be at least what
its share of the memory takes while each of them waits for its counts, and then for its rows."""
AT_ONCE = 1024
"""Positions, or rows, that a program of the small kernels looks at."""
WIDE = ("parts", "rows")
"""Those that compute a value for each element of a row."""
DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})


@dataclass(frozen=True, slots=True)
class TableOperand:
    """A buffer, with strides and offset in elements, and its dtype."""

    buffer: str
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class ScatterTile:
    """Columns, warps and rows of a program of `rows`, and how many positions it reads at a time."""

    columns: int
    warps: int
    depth: int
    rows: int = 1

    @property
    def name(self) -> str:
        return f"rows_{self.columns}_{self.warps}_{self.depth}_{self.rows}"


@dataclass(frozen=True, slots=True)
class FoundRows(FoundCall):
    """`call` is the position of the call; `count` rows of `width` elements are written, `length`
    are read."""

    positions: TableOperand
    values: TableOperand
    base: TableOperand | None
    out: TableOperand
    count: int
    width: int
    length: int
    call: int
    device: torch.device

    @property
    def results(self) -> list[str]:
        return [self.out.buffer]

    def memory(self) -> dict[str, Buffer]:
        """The kernels' workspace."""
        sizes = {
            "counts": self.count + 1,  # the last one: where the next segment of `order` begins
            "starts": self.count,
            "heads": self.count,
            "ranks": self.length,
            "order": self.length,
        }
        if self.length >= CHUNK:
            sizes["sums"] = self.length // CHUNK * self.width
        made = {}
        for name, size in sizes.items():
            dtype = torch.float32 if name == "sums" else torch.int32
            layout = Layout((size,), (1,), dtype, self.device)
            made[name] = Buffer(f"{self.result}_{name}", layout)
        return made

    def kernels(self, tile: ScatterTile | None = None) -> dict[str, TritonKernel]:
        """The kernels by name, in the order to run them in."""
        text = _ScatterAddText(self, tile or tile_of(self), self.memory())
        return {
            name: text.kernel(name) for name in KERNELS if name != "parts" or "sums" in text.held
        }

    def way(self, tile: ScatterTile) -> Several:
        held, made = self.memory(), []
        for name, kernel in self.kernels(tile).items():
            written = [
                held[each].name if each != "out" else self.result for each in KERNELS[name][1]
            ]
            points = self.length if name in ("count", "place") else self.count
            made.append((kernel, written, points * (self.width if name in WIDE else 1)))
        return templates_of(made, self.values.dtype, tuple(held.values()))


KERNELS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "clear": ((), ("counts",)),
    "count": (("positions",), ("counts", "ranks", "heads")),
    "begin": ((), ("counts", "starts")),
    "place": (("positions", "starts", "ranks"), ("order",)),
    "parts": (("positions", "values", "order"), ("sums",)),
    "rows": (("values", "starts", "counts", "heads", "order", "sums", "base"), ("out",)),
}
"""What each kernel reads and writes, in the order in which they run."""


def tile_of(found: FoundRows, tuning: Tuning = MEASURED) -> ScatterTile:
    """The tile of a program that writes one row, a part of it, or several short ones."""
    widest, warps, depth = tuning.scatter_tile
    columns = min(1 << (found.width - 1).bit_length(), widest)
    rows = max(1, LEAST_BYTES // (columns * found.out.dtype.itemsize))
    return ScatterTile(columns, max(1, min(warps, rows * columns // 256)), depth, rows)


def sum_rows(selected: Selected) -> None:
    """Replace all the calls."""
    while calls := find_rows(selected.program):
        tile = tile_of(calls[0], selected.tuning)
        selected.take(calls[0], tile.name, calls[0].way(tile))


def find_rows(program: Program) -> list[FoundRows]:
    """The calls that the kernels take the places of, in order."""
    return matched(program, {ROWS_ADDED}, _found)


def _found(step: Extern, place: int, layouts: Mapping[str, Layout]) -> FoundRows | None:
    positions, values, count, _, base = step.args
    (result,) = step.results
    if result is None or not isinstance(count, int):
        return None
    given = [positions, values, Ref(result), *([] if base is None else [base])]
    known = [_operand(each, layouts) for each in given]
    read = static_of(values, layouts)
    if read is None or None in known:
        return None
    places, rows, out, *more = [each for each in known if each is not None]
    (length, width), _, _ = read
    if places.dtype != torch.int64 or 0 in (count, length, width) or out.strides != (width, 1):
        return None
    if not {rows.dtype, out.dtype, *(each.dtype for each in more)} <= DTYPES:
        return None
    device = layouts[result].device
    return FoundRows(
        places, rows, more[0] if more else None, out, count, width, length, place, device
    )


def _operand(argument: object, layouts: Mapping[str, Layout]) -> TableOperand | None:
    if not isinstance(argument, Ref):
        return None
    static, dtype = static_of(argument, layouts), dtype_of(argument, layouts)
    if static is None or dtype is None:
        return None
    _, strides, offset = static
    return TableOperand(argument.buffer, strides, offset, dtype)


class _ScatterAddText:
    def __init__(self, found: FoundRows, tile: ScatterTile, held: Mapping[str, Buffer]) -> None:
        self.found, self.tile, self.held = found, tile, held
        self.operands = {
            name: TableOperand(buffer.name, (1,), 0, buffer.layout.dtype)
            for name, buffer in held.items()
        }
        self.operands |= {"positions": found.positions, "values": found.values, "out": found.out}
        if found.base is not None:
            self.operands["base"] = found.base

    def kernel(self, name: str) -> TritonKernel:
        f, (read, written) = self.found, KERNELS[name]
        used = [n for n in dict.fromkeys((*read, *written)) if n in self.operands]
        arguments = tuple(dict.fromkeys(self.operands[n].buffer for n in used))
        offsets = {n: self.operands[n].offset for n in used}
        at = {n: f"b{arguments.index(self.operands[n].buffer)}" for n in used}
        self.at = {n: f"({b} + {offsets[n]})" if offsets[n] else b for n, b in at.items()}
        lines_of, size = {
            "clear": (self._clear, f.count + 1),
            "count": (self._count, f.length),
            "begin": (self._begin, f.count),
            "place": (self._place, f.length),
            "parts": (self._parts, f.length // CHUNK),
            "rows": (self._short_rows if self.tile.rows > 1 else self._rows, f.count),
        }[name]
        block, warps, programs = AT_ONCE, 4, -(-size // AT_ONCE)
        constants = {}
        if name in WIDE:
            block, warps = self.tile.columns, self.tile.warps
            programs = size * -(-f.width // block)
        if name == "rows" and self.tile.rows > 1:
            programs, constants = -(-size // self.tile.rows), {"ROWS": self.tile.rows}
        pointers = {self.operands[n].buffer: pointer(self.operands[n].dtype) for n in used}
        body = [f"    {line}" for line in ["program = tl.program_id(0)", *lines_of()]]
        given = (("XBLOCK", block), *constants.items())
        return kernel_of(f"{f.result}_{name}", body, pointers, given, programs, warps)

    def _clear(self) -> list[str]:
        return [
            "row = program * XBLOCK + tl.arange(0, XBLOCK)",
            f"tl.store({self.at['counts']} + row, tl.zeros([XBLOCK], tl.int32),"
            f" row < {self.found.count + 1})",
        ]

    def _read_positions(self) -> list[str]:
        f = self.found
        return [
            "place = program * XBLOCK + tl.arange(0, XBLOCK)",
            f"inside = place < {f.length}",
            f"row = tl.load({self.at['positions']} + place.to(tl.int64) * {f.positions.strides[0]},"
            " inside, other=0)",
            f"known = (row >= -{f.count}) & (row < {f.count})",
            f"row = tl.where(row < 0, row + {f.count}, row)",
        ]

    def _count(self) -> list[str]:
        f = self.found
        message = f"index of a GPU tensor is out of bounds for dimension 0 with size {f.count}"
        return [
            *self._read_positions(),
            f"tl.device_assert(known, {message!r})",
            f"rank = tl.atomic_add({self.at['counts']} + row, 1, inside & known, sem='relaxed')",
            f"tl.store({self.at['ranks']} + place, rank, inside)",
            f"tl.store({self.at['heads']} + row, place, inside & known & (rank == 0))",
        ]

    def _begin(self) -> list[str]:
        count, counts = self.found.count, self.at["counts"]
        return [
            "row = program * XBLOCK + tl.arange(0, XBLOCK)",
            f"count = tl.load({counts} + row, row < {count}, other=0)",
            "until = tl.cumsum(count, 0)",
            f"first = tl.atomic_add({counts} + {count}, tl.sum(count, 0), sem='relaxed')",
            f"tl.store({self.at['starts']} + row, first + until - count, row < {count})",
        ]

    def _place(self) -> list[str]:
        return [
            *self._read_positions(),
            "inside = inside & known",
            f"rank = tl.load({self.at['ranks']} + place, inside, other=0)",
            f"start = tl.load({self.at['starts']} + row, inside, other=0)",
            f"tl.store({self.at['order']} + start + rank, place, inside)",
        ]

    def _columns(self, name: str) -> list[str]:
        width, columns = self.found.width, self.tile.columns
        blocks = -(-width // columns)
        lines = [f"{name} = program // {blocks}" if blocks > 1 else f"{name} = program"]
        block = f"program % {blocks} * XBLOCK + " if blocks > 1 else ""
        return [*lines, f"columns = {block}tl.arange(0, XBLOCK)"]

    def _mask(self, *more: str) -> str:
        ragged = self.found.width % self.tile.columns
        masks = [*more, *([f"(columns < {self.found.width})"] if ragged else [])]
        return f", {' & '.join(masks)}" if masks else ""

    def _read_where(self, *more: str) -> str:
        """The mask of a load, which gives zeros elsewhere."""
        mask = self._mask(*more)
        return f"{mask}, other=0" if mask else ""

    def _read(self, k: int, end: str | None) -> list[str]:
        """Lines that read the row named at position `at` + k of `order`, if that is below `end`."""
        row, column = self.found.values.strides
        step = f" * {column}" if column != 1 else ""
        # a block: under Triton's interpreter comparing two numbers gives one of 32 bits
        masks = [] if end is None else [f"(tl.full([XBLOCK], {k}, tl.int32) + at < {end})"]
        inside = "" if end is None else f", at + {k} < {end}, other=0"
        mask = self._read_where(*masks)
        return [
            f"place{k} = tl.load({self.at['order']} + at + {k}{inside}).to(tl.int64)",
            f"value{k} = tl.load({self.at['values']} + place{k} * {row} + columns{step}{mask})",
        ]

    def _add(self, end: str, *, whole: bool = False) -> list[str]:
        """Lines that add rows, `depth` at a time, from position `at` of `order` on, up to `end`;
        `whole` says that so many are there each time."""
        depth = range(self.tile.depth)
        lines = [each for k in depth for each in self._read(k, None if whole else end)]
        lines += [f"total += value{k}.to(tl.float32)" for k in depth]
        lines.append(f"at += {self.tile.depth}")
        return [f"while at < {end}:", *(f"    {line}" for line in lines)]

    def _add_sums(self) -> list[str]:
        """Lines that add the sums of the chunks up to `last`, several at a time."""
        lines = []
        for k in range(SUMS_AT_ONCE):
            mask = self._read_where(f"(tl.full([XBLOCK], {k}, tl.int32) + chunk < last)")
            place = f"{self.at['sums']} + (chunk + {k}).to(tl.int64) * {self.found.width} + columns"
            lines.append(f"sum{k} = tl.load({place}{mask})")
        lines += [f"total += sum{k}" for k in range(SUMS_AT_ONCE)]
        lines.append(f"chunk += {SUMS_AT_ONCE}")
        return ["while chunk < last:", *(f"    {line}" for line in lines)]

    def _parts(self) -> list[str]:
        f = self.found
        step = f.positions.strides[0]
        word = f"tl.load({self.at['positions']} + %s.to(tl.int64) * {step})"
        lines = self._columns("chunk")
        for name, shift in (("one", 0), ("other", CHUNK - 1)):
            lines += [
                f"{name} = tl.load({self.at['order']} + chunk * {CHUNK} + {shift})",
                f"{name} = {word % name}",
                f"{name} = tl.where({name} < 0, {name} + {f.count}, {name})",
            ]
        return [
            *lines,
            "if one == other:",
            "    total = tl.zeros([XBLOCK], tl.float32)",
            f"    at = chunk * {CHUNK}",
            f"    end = at + {CHUNK}",
            *(f"    {line}" for line in self._add("end", whole=True)),
            f"    tl.store({self.at['sums']} + chunk.to(tl.int64) * {f.width} + columns,"
            f" total{self._mask()})",
        ]

    def _rows(self) -> list[str]:
        """The first of a row's positions is known without `order`: most rows have one or none."""
        f, depth = self.found, self.tile.depth
        row, column = f.values.strides
        step = f" * {column}" if column != 1 else ""
        first = self._read_where("(tl.zeros([XBLOCK], tl.int32) < count)")
        few = [
            *(line for k in range(1, depth) for line in self._read(k, "end")),
            *(f"total += value{k}.to(tl.float32)" for k in range(1, depth)),
        ]
        many = ["at += 1", *self._add("end")]
        if "sums" in self.held:
            many = [
                "at += 1",
                f"chunk = (at + {CHUNK - 1}) // {CHUNK}",
                f"last = tl.maximum(end // {CHUNK}, chunk)",
                f"until = tl.where(last > chunk, chunk * {CHUNK}, end)",
                *self._add("until"),
                "if last > chunk:",
                *(f"    {line}" for line in self._add_sums()),
                f"    at = last * {CHUNK}",
                *(f"    {line}" for line in self._add("end")),
            ]
        return [
            *self._columns("row"),
            f"count = tl.load({self.at['counts']} + row)",
            f"at = tl.load({self.at['starts']} + row)",
            f"head = tl.load({self.at['heads']} + row, count > 0, other=0).to(tl.int64)",
            "end = at + count",
            *self._start(),
            f"value = tl.load({self.at['values']} + head * {row} + columns{step}{first})",
            f"if count <= {depth}:",
            *(f"    {line}" for line in few),
            "    total += value.to(tl.float32)",
            "else:",
            *(f"    {line}" for line in many),
            "    total += value.to(tl.float32)",
            f"tl.store({self.at['out']} + row.to(tl.int64) * {f.width} + columns,"
            f" total.to({register(f.out.dtype)}){self._mask()})",
        ]

    def _short_rows(self) -> list[str]:
        """The same of `ROWS` rows: each adds a position, or the sum of a chunk that begins there,
        until all have ended."""
        f = self.found
        row, column = f.values.strides
        step = f" * {column}" if column != 1 else ""
        columns = f" & (columns < {f.width})" if f.width < self.tile.columns else ""
        loads, adds = [], []
        for k in range(SUMS_AT_ONCE):
            loads.append(f"more{k} = at < end")
            if "sums" in self.held:
                chunk = f"{self.at['sums']} + (at // {CHUNK}).to(tl.int64) * {f.width} + columns"
                loads += [
                    f"whole{k} = (at % {CHUNK} == 0) & (at + {CHUNK} <= end)",
                    f"sum{k} = tl.load({chunk}, whole{k}{columns}, other=0)",
                    f"more{k} = more{k} & ~whole{k}",
                ]
                adds.append(f"total += sum{k}")
            loads += [
                f"place{k} = tl.load({self.at['order']} + at, more{k}, other=0).to(tl.int64)",
                f"value{k} = tl.load({self.at['values']} + place{k} * {row} + columns{step},"
                f" more{k}{columns}, other=0)",
                f"at += tl.where(more{k}, 1, 0)",
            ]
            if "sums" in self.held:
                loads.append(f"at += tl.where(whole{k}, {CHUNK}, 0)")
            adds.append(f"total += value{k}.to(tl.float32)")
        return [
            "row = (program * ROWS + tl.arange(0, ROWS))[:, None]",
            "columns = tl.arange(0, XBLOCK)[None, :]",
            f"inside = row < {f.count}",
            f"count = tl.load({self.at['counts']} + row, inside, other=0)",
            f"at = tl.load({self.at['starts']} + row, count > 0, other=0)",
            f"head = tl.load({self.at['heads']} + row, count > 0, other=0).to(tl.int64)",
            "end = at + count",
            *self._start(f", inside{columns}, other=0"),
            f"value = tl.load({self.at['values']} + head * {row} + columns{step},"
            f" (count > 0){columns}, other=0)",
            "at += tl.where(count > 0, 1, 0)",
            "while tl.max(end - at) > 0:",
            *(f"    {line}" for line in (*loads, *adds)),
            "total += value.to(tl.float32)",
            f"tl.store({self.at['out']} + row.to(tl.int64) * {f.width} + columns,"
            f" total.to({register(f.out.dtype)}), inside{columns})",
        ]

    def _start(self, where: str | None = None) -> list[str]:
        base = self.found.base
        if base is None:
            shape = "XBLOCK" if where is None else "ROWS, XBLOCK"
            return [f"total = tl.zeros([{shape}], tl.float32)"]
        row, column = base.strides
        place = f"{self.at['base']} + row.to(tl.int64) * {row} + columns * {column}"
        where = self._read_where() if where is None else where
        return [f"total = tl.load({place}{where}).to(tl.float32)"]
