"""Epilogue fusion into matrix product templates.

In: a pointwise loop that reads a product's result, and where that lies in memory. Out:
`ProductEpilogue`: the same instructions over the rows and columns of the product. Invariant: the
loop visits every element of the result exactly once, and reads of it only the element at the loop's
own point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from flambeau_inductor.indexing import Expr, Var, simplify
from flambeau_inductor.ir.loops import Axis, IndexValue, Instr, Load, Loop, Reduce, Store


class NoEpilogue(Exception):
    """The loop does something that a product's tile cannot do; the text says what."""


@dataclass(frozen=True, slots=True)
class ProductEpilogue:
    """`rows` and `columns` are axes, outermost first, that spell a product's row and column;
    `batch` spells which product. `result` is the buffer that the body reads the product from."""

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    body: tuple[Instr, ...]
    result: str

    @property
    def loop(self) -> Loop:
        return Loop("epilogue", (*self.batch, *self.rows, *self.columns), (), self.body)


def epilogue_of(loop: Loop, result: str, sizes: tuple[int, int, int]) -> ProductEpilogue:
    """Read `loop` as an epilogue of the contiguous product `result` of batch, rows, columns.

    Raises:
        NoEpilogue: it cannot be one.
    """
    batch, rows, columns = sizes
    if loop.r or any(isinstance(instr, Reduce) for instr in loop.body):
        raise NoEpilogue("it reduces")
    if any(isinstance(instr, Store) and instr.mode != "set" for instr in loop.body):
        raise NoEpilogue("it adds to memory")
    loop = _cut(loop, result, (rows * columns, columns))
    if prod(_size(axis) for axis in loop.x) != batch * rows * columns:
        raise NoEpilogue("it has another number of elements than the product")
    read = _read(loop, result)
    levels: tuple[list[tuple[int, Axis]], ...] = ([], [], [])
    for axis in loop.x:
        step = read.coefficient(axis.var)
        if step is None or step <= 0:
            raise NoEpilogue(f"it reads the product at {read}")
        level = 2 if step < columns else 1 if step < rows * columns else 0
        levels[level].append((step, axis))
    ordered = [tuple(a for _, a in sorted(level, key=lambda p: -p[0])) for level in levels]
    step = 1
    for axis in reversed([axis for level in ordered for axis in level]):
        if read.coefficient(axis.var) != step:
            raise NoEpilogue(f"it reads the product at {read}")
        step *= _size(axis)
    if any(prod(map(_size, axes)) != n for axes, n in zip(ordered, sizes, strict=True)):
        raise NoEpilogue("its axes do not make rows and columns")
    return ProductEpilogue(ordered[0], ordered[1], ordered[2], loop.body, result)


def plain(result: str, sizes: tuple[int, int, int], load: Load, store: Store) -> ProductEpilogue:
    batch, rows, columns = (Axis(v, n) for v, n in zip(("z0", "y0", "x0"), sizes, strict=True))
    return ProductEpilogue((batch,), (rows,), (columns,), (load, store), result)


def _read(loop: Loop, result: str) -> Expr:
    found = {i.index for i in loop.body if isinstance(i, Load) and i.buffer == result}
    if len(found) != 1:
        raise NoEpilogue("it reads the product at several places")
    (index,) = found
    if any(name.startswith("%") for name in index.vars):
        raise NoEpilogue("it looks the product up")
    if any(isinstance(i, Load) and i.buffer == result and i.mask is not None for i in loop.body):
        raise NoEpilogue("it reads parts of the product")
    if any(isinstance(i, Store) and i.buffer == result for i in loop.body):
        raise NoEpilogue("it writes over the product")
    return index


def _size(axis: Axis) -> int:
    if not isinstance(axis.size, int):
        raise NoEpilogue(f"the length of axis {axis.var} is a symbol")
    return axis.size


def _cut(loop: Loop, result: str, strides: tuple[int, int]) -> Loop:
    """The loop with axes that run over the end of a row, or of a product, made two."""
    for stride in strides:
        read = _read(loop, result)
        for position, axis in enumerate(loop.x):
            step, size = read.coefficient(axis.var), _size(axis)
            if step is None or step <= 0 or step >= stride or step * size <= stride:
                continue
            inner = stride // step
            if stride % step or size % inner:
                raise NoEpilogue("its axes do not make rows and columns")
            outer = Axis(f"{axis.var}o", size // inner)
            new = Axis(f"{axis.var}i", inner)
            axes = (*loop.x[:position], outer, new, *loop.x[position + 1 :])
            spelled = {axis.var: Var(outer.var) * inner + Var(new.var)}
            ranges = {each.var: (0, max(_size(each) - 1, 0)) for each in axes}
            body = tuple(
                replace(instr, index=simplify(instr.index.substitute(spelled), ranges))
                if isinstance(instr, Load | Store | IndexValue)
                else instr
                for instr in loop.body
            )
            loop = replace(loop, x=axes, body=body)
            break
    return loop
