"""Recognition of matrices of four bits an element, two in a byte, with scales of groups.

In: the right operand of a product, as its elements are computed. Out: `PackedWeight`: the bytes,
the scales, and what a number of four bits stands for. Invariant: the bytes are those of the whole
matrix and no more, those of a column side by side; each element is, bit by bit,
`(number - zero) * scale` rounded to the matrix's dtype; what it is computed of is read off at eight
positions next to each other, by expressions that hold for all such eight.

Spellings differ (`&` and `>>` of bytes that are stacked, shifts of 32 bits by a range, subtraction
before the conversion or after it): elements are followed through views and choices to the load, and
what is done to what was loaded is tried on all bytes, or on all numbers of four bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_inductor.indexing import Expr, Ranges, Var, as_expr, bounds, simplify, static_sizes
from flambeau_inductor.ir.loops import holds
from flambeau_inductor.ir.tensors import (
    Choose,
    Index,
    IndexCondition,
    Literal,
    Node,
    Pointwise,
    Position,
    View,
)

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
