"""Lowering of matrix products: which library, and how it is called.

In: matrices. Out: `LibraryCall`s; on a GPU sums of products where an operand is a few vectors.
Invariant: operands come in any strides; a result has the layout that its primitive promised.
Float32 goes to torch's BLAS or to oneDNN, whichever `ctx.choices` prefers for the sizes.

A matrix times a few vectors takes as long as reading the matrix once, and no tensor unit makes that
shorter. As a sum like any other it is fused like any other: with what its
operands are made of (weights in bytes and their scales), with what follows, and with the sums over
another matrix that the same vector is multiplied by.

Recognition of matrices of four bits an element, two in a byte, with scales of groups. In: the right
operand of a product, as its elements are computed. Out: `PackedWeight`: the bytes, the scales, and
what a number of four bits stands for. Invariant: the bytes are those of the whole matrix and no
more, those of a column side by side; each element is, bit by bit, `(number - zero) * scale` rounded
to the matrix's dtype; what it is computed of is read off at eight positions next to each other, by
expressions that hold for all such eight. Spellings differ (`&` and `>>` of bytes that are stacked,
shifts of 32 bits by a range, subtraction before the conversion or after it): elements are followed
through views and choices to the load, and what is done to what was loaded is tried on all bytes, or
on all numbers of four bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_inductor.indexing import (
    Expr,
    Ranges,
    Var,
    as_expr,
    bounds,
    hint,
    same_sizes,
    simplify,
    static_sizes,
)
from flambeau_inductor.ir.loops import Scalar, holds
from flambeau_inductor.ir.program import NOTHING, Layout
from flambeau_inductor.ir.tensors import (
    Argument,
    Choose,
    Index,
    IndexCondition,
    Literal,
    Node,
    Pointwise,
    Position,
    Reduction,
    View,
    dims_of,
    dot,
    spread,
)
from flambeau_inductor.lowering.context import Context
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.indexing import single
from flambeau_inductor.lowering.rules.shape import joined
from flambeau_inductor.runtime.operators import PACKED_PRODUCT, WIDENED_PRODUCT
from flambeau_inductor.tuning import host_tuning, tuning_of

COLUMN, GROUP, WORD = Var("column"), Var("group"), Var("word")
NIBBLES = 8
"""Numbers in 32 bits."""
MOST = 64
"""Steps from an element of the matrix to all that it is computed of."""
LEAST_GROUP = 32
"""Terms that a thread multiplies by one scale."""
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "bitwise_and": operator.and_,
    "shift_right": operator.rshift,
}
"""What may be done to what was loaded before it is scaled."""


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """Element (term, column) of a matrix is the number of four bits at `term` of row `column` of
    `words` (bytes, the lower half first, or as many bits in 32 at a time), less `zero`, by the
    scale at `term // group` of the same row of `scales`, if there are any: index expressions of
    the scale are in `COLUMN` and `GROUP`."""

    words: Node
    scales: Node | None
    index: Index
    group: int
    zero: int


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of a node: made of others, or at `index` of what lies in memory."""

    node: Node
    args: tuple[_Element, ...] = ()
    index: Index | None = None

    @property
    def op(self) -> str:
        return self.node.define.op if isinstance(self.node.define, Pointwise) else ""


class _Other(Exception):
    """It is computed in another way."""


def packed_weight(b: Node) -> PackedWeight | None:
    """What a right operand of [terms, columns] is made of; None if not of four bits each."""
    sizes = static_sizes(b.shape)
    if sizes is None or b.dtype not in (torch.float16, torch.bfloat16):
        return None
    terms, columns = sizes
    for group in (terms, *(1 << power for power in range(10, 4, -1) if 1 << power < terms)):
        if group % LEAST_GROUP == 0 == terms % group:
            with suppress(_Other):
                return _read(b, columns, terms, group)
    return None


def _read(b: Node, columns: int, terms: int, group: int) -> PackedWeight:
    ranges = {
        "column": (0, columns - 1),
        "group": (0, terms // group - 1),
        "word": (0, group // NIBBLES - 1),
    }
    found: set[PackedWeight] = set()
    for number in range(NIBBLES):
        term = GROUP * group + WORD * NIBBLES + number
        value, scale = _factors(_element(b, (term, COLUMN), ranges, iter(range(MOST))), b.dtype)
        load, bit, zero = _number(value, b.dtype)
        bits = 8 * load.node.dtype.itemsize
        place, shape = term // (bits // 4), (columns, terms // (bits // 4))
        if bit != 4 * number % bits or load.index != (COLUMN, simplify(place, ranges)):
            raise _Other
        if static_sizes((*load.node.shape, load.node.stride[1])) != (*shape, 1):
            raise _Other
        scales, index = (None, ()) if scale is None else (scale.node, scale.index or ())
        if not {*index} <= {COLUMN, GROUP, as_expr(0)}:
            raise _Other
        found.add(PackedWeight(load.node, scales, index, group, zero))
    if len(found) != 1:
        raise _Other
    return found.pop()


def _element(node: Node, index: Index, ranges: Ranges, left: Iterator[int]) -> _Element:
    """An element of a node, followed through what only says where it comes from, in as many steps
    as are `left`."""
    if next(left, None) is None:
        raise _Other
    define = node.define
    places = {f"d{number}": each for number, each in enumerate(index)}
    if isinstance(define, View):
        base = tuple(simplify(each.substitute(places), ranges) for each in define.index)
        return _element(define.base, base, ranges, left)
    if isinstance(define, Choose):
        for conditions, branch in (*define.branches, ((), define.other)):
            held = [_holds(each, places, ranges) for each in conditions]
            if all(held):
                return _element(branch, index, ranges, left)
            if False not in held:
                raise _Other
    if isinstance(define, Pointwise):
        return _Element(node, tuple(_element(each, index, ranges, left) for each in define.args))
    if isinstance(define, Position):
        return _Element(node, (), (simplify(define.index.substitute(places), ranges),))
    return _Element(node, (), None if isinstance(define, Literal) else index)


def _holds(condition: IndexCondition, places: dict[str, Expr], ranges: Ranges) -> bool | None:
    """Whether a condition holds at all these positions, or at none; None where it depends."""
    index = simplify(condition.index.substitute(places), ranges)
    low, high = bounds(index - condition.bound, ranges)
    least = {"lt": high < 0, "ge": low >= 0, "eq": low == high == 0}[condition.op]
    never = {"lt": low >= 0, "ge": high < 0, "eq": low > 0 or high < 0}[condition.op]
    return True if least else False if never else None


def _in_memory(element: _Element, *dtypes: torch.dtype) -> bool:
    where = element.index is not None and not isinstance(element.node.define, Position)
    return where and element.node.dtype in dtypes


def _wide(element: _Element) -> _Element:
    """What was converted to float32 from half precision."""
    half = element.op == "cast" and element.args[0].node.dtype.itemsize == 2
    return element.args[0] if half and element.node.dtype == torch.float32 else element


def _factors(element: _Element, dtype: torch.dtype) -> tuple[_Element, _Element | None]:
    """What is scaled, and its scale; both are of `dtype`, and their product is rounded to it."""
    product = element.args[0] if element.op == "cast" else element
    if product.op != "mul":
        return element, None
    factors = [_wide(each) for each in product.args]
    for value, scale in (factors, factors[::-1]):
        if _in_memory(scale, dtype) and value.node.dtype == dtype == element.node.dtype:
            return value, scale
    raise _Other


def _number(element: _Element, dtype: torch.dtype) -> tuple[_Element, int, int]:
    """The load of what holds a number of four bits, its first bit, and what is subtracted."""
    loads = {each for each in _inside(element) if _in_memory(each, torch.uint8, torch.int32)}
    if len(loads) != 1 or element.node.dtype != dtype:
        raise _Other
    (load,) = loads
    if load.node.dtype == torch.uint8:
        leaf, firsts, held = load, [0, 4], range(256)
    else:
        leaf, first = _masked(element, load)
        firsts, held = [first], range(16)
    values = [_tried(element, leaf, each) for each in held]
    for first in firsts:
        numbers = [each >> first & 15 for each in held] if leaf is load else [*held]
        zero = numbers[0] - values[0]
        if abs(zero) <= 128 and values == [each - zero for each in numbers]:
            return load, first, zero
    raise _Other


def _masked(element: _Element, load: _Element) -> tuple[_Element, int]:
    """Where four bits of a load are taken alone, and the first of them."""
    for each in _inside(element):
        if each.op == "bitwise_and" and _constant(each.args[1]) == 15:
            whole: _Element = each.args[0]
            bit: int | None = 0
            if whole.op == "shift_right":
                bit = _constant(whole.args[1])
                whole = whole.args[0]
            if whole == load and bit is not None and 0 <= bit < 32:
                return each, bit
    raise _Other


def _inside(element: _Element) -> Iterator[_Element]:
    yield element
    for each in element.args:
        yield from _inside(each)


def _constant(element: _Element) -> int | None:
    """The value of a whole number that is the same everywhere."""
    with suppress(_Other):
        return _tried(element, None, 0)
    return None


def _tried(element: _Element, leaf: _Element | None, number: int) -> int:
    """The element where what was loaded, or taken of it, is `number`."""
    dtype, define = element.node.dtype, element.node.define
    value: Any
    if element == leaf:
        value = number
    elif isinstance(define, Literal):
        value = define.value
    elif isinstance(define, Position) and element.index is not None:
        low, high = bounds(element.index[0], {})
        value = low if low == high else None
    else:
        args = [_tried(each, leaf, number) for each in element.args]
        if element.op in ("cast", "clone"):
            (value,) = args
        elif element.op in OPERATIONS and (element.op != "shift_right" or args[1] >= 0):
            value = OPERATIONS[element.op](*args)
        else:
            raise _Other
    if not isinstance(value, int | float) or value != value // 1:
        raise _Other
    if not holds(dtype, int(value), int(value)):
        raise _Other
    return int(value)


PRODUCTS = {"mm": "aten.mm.out", "bmm": "aten.bmm.out"}
"""Matrix products: they take operands of any strides and write into given memory."""

BYTES = frozenset({torch.int8, torch.uint8})
"""Dtypes that templates widen as they read."""

SUMMED = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""Dtypes whose products are summed in float32."""

ONEDNN = "mkldnn._linear_pointwise.default"
ONEDNN_MORE = "mkldnn._linear_pointwise.binary"

PART = 1024
"""oneDNN adds up all the terms one by one, which rounds more than a BLAS does that adds parts of
them: sums of more terms than this are computed in parts."""


@rule(*PRODUCTS)
def product(ctx: Context, name: str, a: Node, b: Node) -> Lowered:
    if name == "mm" and (packed := packed_operands(ctx, a, b)) is not None:
        return single(ctx.call(PACKED_PRODUCT, (a, *packed), any_strides=True))
    if name == "mm" and (stored := widened(ctx, a, b)) is not None:
        return single(ctx.call(WIDENED_PRODUCT, (a, stored), any_strides=True))
    if by_vectors(a, b):
        return ctx.cast(summed_by_rows(ctx, a, b), a.dtype)
    if name == "mm" and by_onednn(ctx, a, b):
        return linear(ctx, a, b)
    return single(ctx.call(PRODUCTS[name], (a, b), out=True, any_strides=True))


@rule("addmm", "baddbmm")
def product_and_sum(
    ctx: Context, name: str, x: Node, a: Node, b: Node, beta: Scalar, alpha: Scalar
) -> Lowered:
    if by_vectors(a, b):
        return _added(ctx, x, summed_by_rows(ctx, a, b), beta, alpha)
    summand = _row(x) if name == "addmm" else x
    if name == "addmm" and len(summand.shape) == 1 and beta == alpha == 1:
        if summand.dtype == a.dtype and by_onednn(ctx, a, b):
            return linear(ctx, a, b, summand)
    kwargs = (("beta", beta), ("alpha", alpha))
    args = (summand, a, b)
    return single(ctx.call(f"aten.{name}.out", args, kwargs, out=True, any_strides=True))


def by_vectors(a: Node, b: Node) -> bool:
    """Whether a product on a GPU is of so few vectors that its time is that of reading the matrix:
    of one, or of a few where the library would have to be given a matrix that is computed, such as
    one of weights in bytes. The library multiplies float64, and sizes that are open, as it did."""
    sizes = static_sizes((*a.shape, *b.shape))
    if a.device.type != "cuda" or a.dtype not in SUMMED or sizes is None or 0 in sizes:
        return False
    rows, terms, columns = hint(a.shape[-2]), hint(a.shape[-1]), hint(b.shape[-1])
    few = tuning_of((a.device,)).vector_rows if len(a.shape) == 2 and _is_computed(b) else 1
    return terms > 1 and (columns == 1 or (rows <= few and (rows == 1 or rows < columns)))


def widened(ctx: Context, a: Node, b: Node) -> Node | None:
    """What lies in memory of the right operand, its inner dimension in one piece, where a template
    for a few vectors widens it as it reads; None where it is nothing that is widened."""
    define = b.define if isinstance(b.define, View) else View(b, dims_of(2))
    cast, index = define.base.define, define.index
    if not isinstance(cast, Pointwise) or cast.op != "cast" or cast.args[0].dtype not in BYTES:
        return None
    sizes = static_sizes((*a.shape, *b.shape))
    if _is_computed(cast.args[0]) or a.device.type != "cuda" or sizes is None or 0 in sizes:
        return None
    if not tuning_of((a.device,)).widens_few(sizes[0], sizes[1], a.dtype):
        return None
    stored = ctx.view(cast.args[0], b.shape, index)
    whole = dot(index, cast.args[0].stride)
    return stored if whole.coefficient(dims_of(1)[0].name) == 1 else None


def packed_operands(ctx: Context, a: Node, b: Node) -> tuple[Argument, ...] | None:
    """The arguments after `a` of a product of a few vectors by a matrix of four bits an element;
    None where it is nothing that a template takes."""
    sizes = static_sizes((*a.shape, *b.shape))
    if a.device.type != "cuda" or not _is_computed(b) or sizes is None or 0 in sizes:
        return None
    if a.dtype != b.dtype or not tuning_of((a.device,)).unpacks_few(sizes[0], sizes[1], a.dtype):
        return None
    packed = packed_weight(b)
    if packed is None:
        return None
    scales = packed.scales
    if scales is not None:
        places = {each.name: d for each, d in zip((COLUMN, GROUP), dims_of(2), strict=True)}
        index = tuple(each.substitute(places) for each in packed.index)
        scales = ctx.view(scales, (sizes[3], sizes[1] // packed.group), index)
    return packed.words, scales, packed.group, packed.zero


def _is_computed(x: Node) -> bool:
    """Whether the elements of a matrix are computed of others, and are not in memory yet."""
    while isinstance(x.define, View):
        x = x.define.base
    return isinstance(x.define, Pointwise)


def summed_by_rows(ctx: Context, a: Node, b: Node) -> Node:
    """`a @ b` in float32, each row a sum of its own, so that all are made of one reading of `b`."""
    if 1 in (hint(a.shape[-2]), hint(b.shape[-1])):
        return summed(ctx, a, b)
    row, term = dims_of(2)
    rows = (
        ctx.view(a, (1, a.shape[1]), (row + number, term)) for number in range(hint(a.shape[0]))
    )
    return joined(ctx, [summed(ctx, each, b) for each in rows], 0)


def summed(ctx: Context, a: Node, b: Node) -> Node:
    """`a @ b` as a sum in float32, which is not rounded to the operands' dtype."""
    *batch, row, column, term = dims_of(len(a.shape) + 1)
    shape = (*a.shape[:-1], b.shape[-1], a.shape[-1])
    left = ctx.view(a, shape, (*batch, row, term))
    right = ctx.view(b, shape, (*batch, term, column))
    wide = [ctx.cast(each, torch.float32) for each in (left, right)]
    define = Reduction("sum", ctx.point("mul", wide), (len(shape) - 1,))
    return ctx.node(shape[:-1], torch.float32, a.device, define)


def _added(ctx: Context, x: Node, total: Node, beta: Scalar, alpha: Scalar) -> Node:
    """`alpha * total + beta * x`, rounded once; what is multiplied by 0 is not read."""
    scaled = [(total, alpha)]
    if beta != 0:
        whole = ctx.view(x, total.shape, spread(x.shape, dims_of(len(x.shape))))
        scaled.append((ctx.cast(whole, torch.float32), beta))
    terms = [
        each if factor == 1 else ctx.point("mul", (each, ctx.like(factor, each)))
        for each, factor in scaled
    ]
    made = terms[0] if len(terms) == 1 else ctx.point("add", terms)
    return ctx.cast(made, x.dtype)


def _row(x: Node) -> Node:
    """The row that `x` repeats, which libraries add as they store; a matrix would be copied."""
    define = x.define
    if isinstance(define, View) and same_sizes(define.base.shape, x.shape[1:]):
        if define.index == dims_of(2)[1:]:
            return define.base
    return x


def by_onednn(ctx: Context, a: Node, b: Node) -> bool:
    """Whether oneDNN computes this product, and does so sooner than torch's BLAS."""
    sizes = static_sizes((*a.shape, b.shape[1]))
    if a.device.type != "cpu" or a.dtype != torch.float32 or b.dtype != torch.float32:
        return False
    if sizes is None:
        return False  # how large it will be is not known
    (rows, terms, columns), tuning = sizes, host_tuning()
    large = 2 * rows * terms * columns >= ctx.choices.least_operations
    if not large or min(rows, columns) < tuning.onednn_least_side:
        return False
    few = min(rows, columns) < tuning.onednn_parts_side
    if terms > PART and (few or terms > PART * tuning.onednn_parts):
        return False
    return ctx.choices.onednn_products((rows, terms, columns))


def multiplied(ctx: Context, a: Node, b: Node, bias: Node | None = None) -> Node:
    """`a @ b + bias` of matrices, row-major, by whom it is computed soonest."""
    if by_onednn(ctx, a, b):
        return linear(ctx, a, b, bias)
    target, args = (PRODUCTS["mm"], (a, b)) if bias is None else ("aten.addmm.out", (bias, a, b))
    return single(ctx.call(target, args, out=True, any_strides=True, metas=(_row_major(a, b),)))


def _row_major(a: Node, b: Node) -> Layout:
    rows, columns = a.shape[0], b.shape[1]
    return Layout((rows, columns), (columns, 1), a.dtype, a.device)


def linear(ctx: Context, a: Node, b: Node, bias: Node | None = None) -> Node:
    """`a @ b + bias` by oneDNN, row-major, where `by_onednn` accepts it."""
    rows, terms, columns = *a.shape, b.shape[1]
    total: Node | None = None
    args: tuple[Argument, ...]
    parts = _parts(hint(terms))
    after = ctx.epilogue if len(parts) == 1 else NOTHING
    for start, count in parts:
        row, term = dims_of(2)
        some = ctx.view(a, (rows, count), (row, term + start))
        weight = ctx.view(b, (columns, count), (term + start, row))
        target, args = ONEDNN_MORE, (some, total, weight, None, "add")
        if total is None:
            target, args = ONEDNN, (some, weight, bias, *after)
        total = single(ctx.call(target, args, any_strides=True, metas=(_row_major(a, b),)))
    assert total is not None
    return total


def _parts(terms: int) -> list[tuple[int, int]]:
    """First term and number of terms of parts of about equal length."""
    count = -(-terms // PART)
    length = -(-terms // (16 * count)) * 16
    return [(start, min(length, terms - start)) for start in range(0, terms, length)]
