"""The registry of decompositions, by ATen overload.

In: functions decorated with `@decomposition(op, ...)`. Out: tables of them, plain mappings.
Invariant: a decomposition takes the overload's arguments and returns its result in fresh tensors
(never one of its arguments: autograd, which may be recording above, must distinguish them), or
`NotImplemented`, which leaves the operation as it is.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from flambeau_prims._op import PRIMS, PrimError, is_begun_anew
from flambeau_prims._torch_compat import (
    OpOverload,
    argument_defaults,
    is_view_op,
    result_count,
    schema_text,
)
from flambeau_prims.eager_limits import NEVER, is_limited, is_refused, on_different_devices
from flambeau_prims.ops.pointwise import ANY
from flambeau_prims.promotion import is_inexact
from flambeau_prims.shape_rules import TensorMeta, dense_order

Decomposition = Callable[..., Any]
F = TypeVar("F", bound=Decomposition)

TABLE: dict[OpOverload, Decomposition] = {}
"""All decompositions but those of random operations."""

PHILOX_TABLE: dict[OpOverload, Decomposition] = {}
"""Random operations through `seed` and the philox prims; their numbers are not torch's."""

KEEPABLE: dict[str, list[OpOverload]] = {}
"""Operations that a caller may wish to keep whole, by the name to ask for."""


def decomposition(
    *ops: OpOverload, keep: str | None = None, table: dict[OpOverload, Decomposition] = TABLE
) -> Callable[[F], F]:
    """Register a function as the decomposition of `ops`; `keep` names the group to keep it by."""

    def register(function: F) -> F:
        for op in ops:
            if not is_begun_anew((op, id(table))) and op in table:
                raise ValueError(f"{op}: decomposed twice")
            table[op] = _returning_fresh(function, op)
            if keep is not None and op not in KEEPABLE.get(keep, ()):
                KEEPABLE.setdefault(keep, []).append(op)
        return function

    return register


def overloads(name: str, *kinds: str) -> list[Any]:
    """Those of the named overloads of an operation that this torch has."""
    packet = getattr(torch.ops.aten, name, None)
    known = () if packet is None else packet.overloads()
    return [getattr(packet, kind) for kind in kinds if kind in known]


class Arguments(types.SimpleNamespace):
    """The arguments of a call, by the names that ATen's schema gives them: the defaults of what the
    call does not give, None for what the overload does not have."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def by_name(*ops: OpOverload, absent: Iterable[str] = (), **options: Any) -> Callable[[F], F]:
    """Register a function of the `Arguments` as the decomposition of overloads that have some of
    the arguments each, and none those that are `absent`; `options` are those of `decomposition`."""
    known = dict.fromkeys((*absent, *(name for op in ops for name in argument_defaults(op))))

    def register(function: F) -> F:
        for op in ops:
            decomposition(op, **options)(_bound(function, known, op))
        return function

    return register


def same(op: OpOverload, prim: str) -> None:
    """Register the primitive that has the arguments of `op` in their order, all by position."""
    overload = PRIMS[prim].overload
    plural = result_count(op) > 1

    @by_name(op)
    def forwarded(a: Arguments) -> Any:
        result = overload(*vars(a).values())
        return tuple(result) if plural else result


def _bound(function: Decomposition, known: Mapping[str, Any], op: OpOverload) -> Decomposition:
    defaults = argument_defaults(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(defaults, args, strict=False))
        return function(Arguments(**{**known, **defaults, **given, **kwargs}))

    return call


def _returning_fresh(function: Decomposition, op: OpOverload) -> Decomposition:
    """`function`, with a result that is one of its arguments replaced by a view or copy of it, and
    not for dtypes, nor from devices, that eager's kernels do not take."""
    permute, clone = PRIMS["permute"].overload, PRIMS["clone"].overload
    viewing = is_view_op(op)
    strided = torch.strided
    overload = schema_text(op).partition("::")[2].partition("(")[0]
    name = overload.partition(".")[0]
    limited = is_limited(name)
    pointwise = torch.Tag.pointwise in op.tags
    by_place = pointwise or overload in NEVER

    @functools.wraps(function)
    def fresh(*args: Any, **kwargs: Any) -> Any:
        if any(getattr(arg, "layout", strided) is not strided for arg in args):
            return NotImplemented  # a sparse tensor has no elements in a row
        tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor)]
        if by_place and on_different_devices(overload, tensors):
            return NotImplemented
        if limited and args and isinstance(args[0], torch.Tensor):
            if is_refused(overload, args[0], *(tensors[1:] if pointwise else ())):
                return NotImplemented
        try:
            result = function(*args, **kwargs)
        except PrimError:
            empty = any(type(n) is int and n == 0 for each in tensors for n in each.shape)
            mixed = len({each.dtype for each in tensors if is_inexact(each.dtype)}) > 1
            if not empty and not mixed and all(each.dtype in ANY for each in tensors):
                raise
            # eager does not ask of what sort what has no elements is, and has sorts of its own;
            # of several it takes some that no primitive does, by conversions of its own
            return NotImplemented
        for arg in args:
            if result is arg and result is not None:
                if viewing:
                    return permute(result, list(range(result.ndim)))  # strides as they are
                return clone(result, order=dense_order(TensorMeta.of(result)))
        return result

    return fresh
