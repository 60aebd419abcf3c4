"""Hand-made loops of every class that the code generators distinguish."""

from __future__ import annotations

import torch
from flambeau_inductor.indexing import Expr, Var
from flambeau_inductor.indexing import IntegerConstant as IndexConst
from flambeau_inductor.ir.loops import (
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
    Store,
)

F32 = torch.float32


def x(i: int = 0) -> Expr:
    """The i-th outer variable."""
    return Var(f"x{i}")


def r(i: int = 0) -> Expr:
    """The i-th reduction variable."""
    return Var(f"r{i}")


def loop(name: str, outer: tuple[int, ...], inner: tuple[int, ...], body: list[Instr]) -> Loop:
    """A loop over `outer` and `inner` sizes."""
    return Loop(
        name,
        tuple(Axis(f"x{i}", n) for i, n in enumerate(outer)),
        tuple(Axis(f"r{i}", n) for i, n in enumerate(inner)),
        tuple(body),
    )


def pointwise(op: str, arity: int, size: int, dtype: torch.dtype, result: torch.dtype) -> Loop:
    """`out = op(in0, ...)` over `size` elements in memory order."""
    loads: list[Instr] = [Load(f"in{i}", x(), dtype) for i in range(arity)]
    point = Point(op, tuple(range(arity)), result)
    return loop("pointwise", (size,), (), [*loads, point, Store("out", x(), arity)])


def softmax(rows: int, columns: int, dtype: torch.dtype = F32) -> Loop:
    """Row softmax with float32 arithmetic, as one kernel."""
    at = x() * columns + r()
    return loop(
        "softmax",
        (rows,),
        (columns,),
        [
            Load("in0", at, dtype),
            Point("cast", (0,), F32),
            Reduce("max", 1, F32),
            Point("sub", (1, 2), F32),
            Point("exp", (3,), F32),
            Reduce("sum", 4, F32),
            Point("div", (4, 5), F32),
            Point("cast", (6,), dtype),
            Store("out", at, 7),
        ],
    )


def layernorm(rows: int, columns: int) -> Loop:
    """Row normalisation with a weight, storing the mean too."""
    at = x() * columns + r()
    return loop(
        "layernorm",
        (rows,),
        (columns,),
        [
            Load("in0", at, F32),
            Reduce("welford", 0, F32),
            ReducePart(1, 0, F32),
            ReducePart(1, 1, F32),
            Const(float(columns), F32),
            Point("div", (3, 4), F32),
            Const(1e-5, F32),
            Point("add", (5, 6), F32),
            Point("rsqrt", (7,), F32),
            Point("sub", (0, 2), F32),
            Point("mul", (9, 8), F32),
            Load("weight", r(), F32),
            Point("mul", (10, 11), F32),
            Store("out", at, 12),
            Store("mean", x(), 2),
        ],
    )


def norm_backward(parts: int, rows: int, columns: int, dtype: torch.dtype = F32) -> Loop:
    """Along rows that a part takes in turn, and down their columns: a norm's backward, nearly."""
    at = x() * (rows * columns) + x(1) * columns + r()
    return loop(
        "norm_backward",
        (parts, rows),
        (columns,),
        [
            Load("grad", at, dtype),
            Point("cast", (0,), F32),
            Load("unit", at, dtype),
            Point("cast", (2,), F32),
            Load("weight", r(), dtype),
            Point("cast", (4,), F32),
            Point("mul", (1, 5), F32),
            Point("mul", (6, 3), F32),
            Reduce("sum", 7, F32),
            Load("scale", x() * rows + x(1), F32),
            Point("mul", (8, 9), F32),
            Point("mul", (3, 10), F32),
            Point("sub", (6, 11), F32),
            Point("cast", (12,), dtype),
            Store("out", at, 13),
            Point("mul", (1, 3), F32),
            Store("weights", x() * columns + r(), 15, "total"),
            Store("biases", x() * columns + r(), 1, "total"),
        ],
    )


def sums_down(parts: int, rows: int, columns: int, dtype: torch.dtype = F32) -> Loop:
    """What a norm's backward stores along long rows, and adds up down their columns."""
    at = x() * (rows * columns) + x(1) * columns + r()
    return loop(
        "sums_down",
        (parts, rows),
        (columns,),
        [
            Load("grad", at, dtype),
            Point("cast", (0,), F32),
            Load("unit", at, dtype),
            Point("cast", (2,), F32),
            Load("along", x() * rows + x(1), F32),
            Point("mul", (3, 4), F32),
            Point("sub", (1, 5), F32),
            Point("cast", (6,), dtype),
            Store("out", at, 7),
            Point("mul", (1, 3), F32),
            Store("weights", x() * columns + r(), 9, "total"),
        ],
    )


def reduction(kind: str, rows: int, columns: int, dtype: torch.dtype, result: torch.dtype) -> Loop:
    """One row reduction."""
    return loop(
        "reduction",
        (rows,),
        (columns,),
        [Load("in0", x() * columns + r(), dtype), Reduce(kind, 0, result), Store("out", x(), 1)],
    )


def column_sum(rows: int, columns: int) -> Loop:
    """Sum over the outer dimension: memory is contiguous along the kept one."""
    return loop(
        "column_sum",
        (columns,),
        (rows,),
        [Load("in0", r() * columns + x(), F32), Reduce("sum", 0, F32), Store("out", x(), 1)],
    )


def transpose_add(rows: int, columns: int) -> Loop:
    """`out = in0.T + in1`."""
    return loop(
        "transpose_add",
        (rows, columns),
        (),
        [
            Load("in0", x(1) * rows + x(0), F32),
            Load("in1", x(0) * columns + x(1), F32),
            Point("add", (0, 1), F32),
            Store("out", x(0) * columns + x(1), 2),
        ],
    )


def embedding(count: int, width: int) -> Loop:
    """`out[i] = table[index[i]]`, an indirect load."""
    return loop(
        "embedding",
        (count, width),
        (),
        [
            Load("index", x(0), torch.int64),
            Load("table", Var("%0") * width + x(1), F32),
            Store("out", x(0) * width + x(1), 1),
        ],
    )


def checked_embedding(count: int, width: int, rows: int) -> Loop:
    """The same, of positions that are looked at first."""
    return loop(
        "checked_embedding",
        (count, width),
        (),
        [
            Load("index", x(0), torch.int64),
            Const(0, torch.int64),
            Const(rows, torch.int64),
            Point("ge", (0, 1), torch.bool),
            Point("lt", (0, 2), torch.bool),
            Point("logical_and", (3, 4), torch.bool),
            Check(5, f"position 'out' of {rows}"),
            Load("table", Var("%0") * width + x(1), F32),
            Store("out", x(0) * width + x(1), 7),
        ],
    )


def pad(size: int, low: int, high: int) -> Loop:
    """Constant padding of a vector with 7: a masked load."""
    total = low + size + high
    return loop(
        "pad",
        (total,),
        (),
        [
            IndexValue(x(), torch.int64),
            Const(low, torch.int64),
            Point("ge", (0, 1), torch.bool),
            Const(low + size, torch.int64),
            Point("lt", (0, 3), torch.bool),
            Point("logical_and", (2, 4), torch.bool),
            Load("in0", x() - low, F32, mask=5, other=7.0),
            Store("out", x(), 6),
        ],
    )


def masked_corners(rows: int, columns: int) -> Loop:
    """A sum of loads under each mask (of the row, the column, both), each of one element, of the
    row's, of the column's and of the point's own."""
    points = {"row": x(0), "column": x(1)}
    body: list[Instr] = [Const(1, torch.int64)]
    masks = []
    for point in points.values():
        body += [IndexValue(point, torch.int64), Point("lt", (len(body), 0), torch.bool)]
        masks.append(len(body) - 1)
    body.append(Point("logical_and", (masks[0], masks[1]), torch.bool))
    masks.append(len(body) - 1)
    body.append(Const(0.0, F32))
    for mask in masks:
        for at in (0 * x(0), x(0), x(1), columns * x(0) + x(1)):
            before = len(body) - 1
            body += [Load("in0", at, F32, mask=mask), Point("add", (before, before + 1), F32)]
    body.append(Store("out", columns * x(0) + x(1), len(body) - 1))
    return loop("masked_corners", (rows, columns), (), body)


def total(size: int) -> Loop:
    """The sum of a whole vector: no outer axes at all."""
    return loop(
        "total",
        (),
        (size,),
        [Load("in0", r(), F32), Reduce("sum", 0, F32), Store("out", IndexConst(0), 1)],
    )


def fill(size: int) -> Loop:
    """A constant."""
    return loop("fill", (size,), (), [Const(2.5, F32), Store("out", x(), 0)])


def scatter_add(count: int) -> Loop:
    """`out[index[i]] += in0[i]`."""
    return loop(
        "scatter_add",
        (count,),
        (),
        [
            Load("index", x(), torch.int64),
            Load("in0", x(), F32),
            Store("out", Var("%0"), 1, mode="add"),
        ],
    )


def sums_of_many(
    rows: int, length: int, many: int, dtype: torch.dtype = torch.bfloat16, *, down: bool = True
) -> Loop:
    """Sums, along the last dimension or down it, of what so many buffers are read for: all are
    alive until the last one is there."""
    at = r() * rows + x() if down else x() * length + r()
    body: list[Instr] = [Load(f"in{i}", at, dtype) for i in range(many)]
    body += [Point("cast", (i,), torch.float32) for i in range(many)]
    value = len(body) - 1
    for i in reversed(range(many - 1)):
        body.append(Point("mul", (value, many + i), torch.float32))
        value = len(body) - 1
    body += [Reduce("sum", value, torch.float32), Store("out", x(), len(body))]
    return loop("sums_of_many", (rows,), (length,), body)
