"""Decompositions of the pointwise primitives' own operators, and forms to register others in.

In: the declarations of pointwise primitives. Out: their ATen operations decomposed; `formula`,
`unary` and `binary` for those that are not one primitive. Invariant: an operation is registered
here unless `_OWN` has its primitive.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._op import PRIMS
from flambeau_prims._torch_compat import parameters
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Operand, elementwise, p
from flambeau_prims.decomposition_table import decomposition, overloads, same
from flambeau_prims.ops.pointwise import INTS, POINTWISE
from flambeau_prims.promotion import Promotion, is_inexact, result_type

aten = torch.ops.aten

same(aten.bitwise_not.default, "bitwise_not")
FLOAT, SAME, BOOL = Promotion.FLOAT, Promotion.SAME, Promotion.BOOL

# Primitives with decompositions of their own, or with none: each of the others is ATen's operations
# that its declaration names, or the one of its own name.
_OWN = frozenset(
    {
        *("abs", "neg", "sign", "bitwise_not", "logical_not", "isfinite", "add", "sub", "mul"),
        *("div", "trunc_div", "floor_div", "pow", "nextafter", "ceil", "floor", "round", "trunc"),
        *("logical_and", "logical_or", "logical_xor", "isinf"),
    }
)
# Those whose kernels take a number in the operands' dtype, rounded to half precision; the others
# take it in the one that they compute in.
_NARROW = frozenset({"remainder", "fmod", "copysign"})
_OF_TENSORS = ("Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar")
_OF_NUMBERS = ("default", "x_scalar", "n_scalar", "self_scalar", "other_scalar")


def _register_functions() -> None:
    for name, function in POINTWISE.items():
        if name in _OWN:
            continue
        promotion = FLOAT if not function.kind & INTS and function.promotes else SAME
        promotion = BOOL if function.result == torch.bool else promotion
        one = len(parameters(PRIMS[name].overload)) == 1
        op = getattr(p, name)
        call = unary(op, promotion) if one else binary(op, promotion, narrow=name in _NARROW)
        for operation in function.aten or (name,):
            kinds = ("default",) if one else _OF_TENSORS
            ops = overloads(operation, *kinds) or overloads(operation, *_OF_NUMBERS)
            decomposition(*ops)(call)
    for name in ("ceil", "floor", "round", "trunc"):  # of integers the identity
        decomposition(getattr(aten, name).default)(_rounding(getattr(p, name)))
    for name in ("logical_and", "logical_or", "logical_xor"):
        decomposition(getattr(aten, name).default)(_logical(getattr(p, name)))


def formula(
    *ops: Any, promotion: Promotion = SAME, keep: str | None = None
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a formula as the decomposition of pointwise operations: its parameters that are
    tensors, the first ones, are the operands, in one shape and the dtype that is computed in."""

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        kinds = [x.annotation for x in inspect.signature(function).parameters.values()]
        count = kinds.count("Tensor")

        def call(*args: Any, **kwargs: Any) -> Tensor:
            rest = args[count:]
            return elementwise(lambda *xs: function(*xs, *rest, **kwargs), args[:count], promotion)

        decomposition(*ops, keep=keep)(call)
        return function

    return register


def unary(op: Callable[..., Tensor], promotion: Promotion) -> Callable[..., Tensor]:
    """The decomposition of an operation on one tensor."""

    def call(x: Tensor) -> Tensor:
        return elementwise(op, (x,), promotion)

    return call


def _rounding(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(x: Tensor) -> Tensor:
        return elementwise(op if x.dtype.is_floating_point else p.clone, (x,))

    return call


def binary(
    op: Callable[..., Tensor], promotion: Promotion, *, narrow: bool = False
) -> Callable[..., Any]:
    """The decomposition of an operation on two operands, one of which may be a number."""

    def call(a: Operand, b: Operand) -> Any:
        return elementwise(op, (a, b), promotion, narrow=narrow)

    return call


def _logical(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Truth is judged in the operands' common dtype, in which a wider operand may be 0."""

    def call(a: Tensor, b: Tensor) -> Tensor:
        home, common = e.home_of((a, b)), result_type((a, b))
        truths = (e.cast(e.cast(x, common), torch.bool) for x in (a, b))
        value = op(*e.meet(*(e.brought(x, home) for x in truths)))
        return e.laid_out_by((a, b), value, common)

    return call


@decomposition(aten.isinf.default)
def isinf(x: Tensor) -> Tensor:
    """In eager a magnitude compared with a number; a copy, false, of what has no infinity."""
    if not is_inexact(x.dtype):
        return e.laid_out_as(x, e.filled(x, x.shape, False, torch.bool))
    found = elementwise(p.isinf, (x,), BOOL)
    return e.laid_out_by((found, 1), found, torch.bool)


_register_functions()
decomposition(aten.neg.default)(unary(p.neg, SAME))
