"""The strides that torch's iterator over elements gives to a result.

In: the operands of a pointwise operator. Out: the strides of its result, where they have dimensions
of one element or none, or are repeated halves, of which descriptions without data say other ones.
Invariant: nothing is said of sizes that data decide, nor of operands that a kernel copies before;
an open size that is one or none in this compile is one or none in every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_aot._torch_compat import data_symbols, hint
from flambeau_aot.inputs.memory_overlap import is_dense
from flambeau_aot.sizes import is_symbolic

Sizes = Sequence[int]

_BY_OTHER_RULES = "clone conj_physical isfinite isinf mvlgamma positive relu6"
_OTHERWISE = frozenset(f"aten::{name}" for name in _BY_OTHER_RULES.split())
"""Operators that make their result by another rule, or by several operators."""

_CHANNELS_LAST = (1, 3, 2, 0)
_HALF = {torch.bfloat16, torch.float16}  # of one that is repeated the description is row-major
_NUMBER_ASIDE = ("aten::lerp", "aten::pow")


def row_major(shape: Sizes) -> tuple[int, ...]:
    """Strides in the order of dimensions; one without elements counts as one."""
    return _ordered([max(size, 1) for size in shape], range(len(shape) - 1, -1, -1))


def iterated(func: Any, args: Sequence[Any], result: torch.Tensor) -> tuple[Any, ...] | None:
    """The strides of the result of a pointwise operator; None where they are as described."""
    name, _, overload = func.name().partition(".")
    if name in _OTHERWISE or result.layout != torch.strided:
        return None
    # a number that becomes a tensor is an operand of another shape
    declared = zip(func._schema.arguments, args, strict=False)
    wrapped = "scalar" in overload.lower() and name not in _NUMBER_ASIDE
    numbers = (int, float, torch.SymInt, torch.SymFloat)
    wrapped |= any(str(x.type) == "Tensor" and isinstance(n, numbers) for x, n in declared)
    given = [x for x in args if isinstance(x, torch.Tensor)]
    return by_operands(given, result.shape, {result.dtype}, wrapped)


def by_operands(
    given: Sequence[torch.Tensor],
    shape: Sequence[Any],
    dtypes: AbstractSet[torch.dtype] = frozenset(),
    wrapped: bool = False,
) -> tuple[Any, ...] | None:
    """The same of these operands, in their order. dtypes: of the result; wrapped: a number is
    another operand."""
    opened = [n for x in given for n in (*x.shape, *x.stride()) if is_symbolic(n)]
    if opened or any(map(is_symbolic, shape)):
        if data_symbols((*opened, *filter(is_symbolic, shape)), known=True):
            return None
        known = by_operands([*map(in_this_compile, given)], [*map(hint, shape)], dtypes, wrapped)
        return None if known is None else _in_every_call(known, shape)
    own = {x.dtype for x in given if x.dim()}
    repeats = _HALF & own and any(0 in x.stride() for x in given)
    if not shape or (not repeats and all(n > 1 for x in given for n in x.shape)):
        return None
    if len((own - {torch.bool} or own) | (dtypes - {torch.bool})) > 1 and not all(
        is_dense(tuple(x.shape), tuple(x.stride())) for x in given
    ):
        return None  # they may be converted first
    if tuple(torch.broadcast_shapes(*(x.shape for x in given))) != tuple(shape):
        return None
    operands = [_Operand.of(x, len(shape)) for x in given]
    return _strides(shape, operands, not wrapped and len({tuple(x.shape) for x in given}) == 1)


def in_this_compile(x: torch.Tensor) -> torch.Tensor:
    """A meta tensor of the sizes and strides that a tensor's have in this compile."""
    sizes, steps = (tuple(map(hint, each)) for each in (x.shape, x.stride()))
    return torch.empty_strided(sizes, steps, dtype=x.dtype, device="meta")


def _in_every_call(known: Sizes, shape: Sequence[Any]) -> tuple[Any, ...] | None:
    """Dense strides that are these in this compile; None where they are no products of sizes."""
    if not all(bool(n == hint(n)) for n in shape if hint(n) < 2):
        return None
    for least in (0, 1):  # what a dimension of no elements counts as
        hints = [max(hint(n), least) for n in shape]
        sizes = [n if size > 1 else size for n, size in zip(shape, hints, strict=True)]
        # a step of 0 is that of what is around no elements
        order = sorted(range(len(shape)), key=lambda d: (known[d] == 0, known[d], hints[d] != 1))
        if _ordered(hints, order) == tuple(known):
            return _ordered(sizes, order)
    return None


@dataclass(frozen=True)
class _Operand:
    """The sizes and strides of an operand, leading dimensions of one before them."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, x: torch.Tensor, dims: int) -> _Operand:
        """That of a tensor."""
        missing = dims - x.dim()
        return cls((1,) * missing + tuple(x.shape), (0,) * missing + tuple(x.stride()))

    def steps(self, shape: Sizes) -> tuple[int, ...]:
        """The strides, 0 along dimensions that it is repeated in."""
        known = zip(self.shape, self.stride, shape, strict=True)
        return tuple(0 if own == 1 and size != 1 else step for own, step, size in known)


def _strides(shape: Sizes, operands: Sequence[_Operand], alike: bool) -> tuple[int, ...]:
    """`alike`: the operands are all of this shape."""
    inwards = [*range(len(shape) - 1, -1, -1)]  # from the innermost dimension out
    if alike:
        if all(_lies(x, inwards) for x in operands):
            return row_major(shape)
        if len(shape) == 4 and all(_lies(x, _CHANNELS_LAST) for x in operands):
            return _ordered(shape, _CHANNELS_LAST)
        first = operands[0].stride
        if all(x.stride == first for x in operands) and is_dense(tuple(shape), first):
            return first
    steps = [x.steps(shape) for x in operands]
    order = [*inwards]
    for at in range(1, len(order)):
        for other in range(at - 1, -1, -1):
            outside = _outside(shape, steps, order[other], order[at])
            if outside:
                order[other], order[at] = order[at], order[other]
                at = other
            elif outside is not None:
                break
    return row_major(shape) if order == inwards else _ordered(shape, order)


def _outside(shape: Sizes, steps: Iterable[Sizes], one: int, other: int) -> bool | None:
    """Whether the first dimension belongs outside of the second; None where no operand says."""
    for own in steps:
        if own[one] and own[other]:
            if own[one] != own[other]:
                return own[one] > own[other]
            if shape[one] > shape[other]:
                return True
    return None


def _lies(x: _Operand, order: Sequence[int]) -> bool:
    """Whether an operand is dense in this order, from the innermost dimension out."""
    if 0 in x.shape:
        return True
    expected = 1
    for dim in order:
        if x.shape[dim] != 1:
            if x.stride[dim] != expected:
                return False
            expected *= x.shape[dim]
    return True


def _ordered(shape: Sizes, order: Iterable[int]) -> tuple[int, ...]:
    """Dense strides in this order, from the innermost dimension out."""
    strides, step = [1] * len(shape), 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)
