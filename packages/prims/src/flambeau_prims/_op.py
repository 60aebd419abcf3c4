"""What a primitive is, and the registry of them all.

In: a schema, a shape rule, an eager implementation, tags. Out: a `torch.library` operator
`torch.ops.flambeau_prims.<name>.default` and a `Prim` that describes it.
Invariant: the shape rule is pure Python on `TensorMeta`; for the same arguments it predicts the
metadata of what the eager implementation returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from flambeau_prims._torch_compat import OpOverload
from flambeau_prims.layout import Size, TensorMeta

NAMESPACE = "flambeau_prims"
DIALECT = 1
"""Raised when the meaning of a primitive changes; part of every cache key downstream."""

MetaResult: TypeAlias = TensorMeta | tuple[TensorMeta | None, ...]
Rule: TypeAlias = Callable[..., MetaResult]
Cost: TypeAlias = Callable[[tuple[Any, ...], MetaResult], Size]

TAGS = frozenset(
    {
        "pointwise",
        "reduction",
        "scan",
        "view",
        "shape",
        "index",
        "creation",
        "random",
        "matmul",
        "library",
        "mutating",
    }
)


class PrimError(ValueError):
    """A primitive was called with arguments that its shape rule does not allow."""


class NotYetSymbolic(NotImplementedError):
    """A stage met a symbolic size where it can only take a number."""


@dataclass(frozen=True)
class Prim:
    """One primitive: `overload` is what graphs call, `rule` what it returns on metadata."""

    name: str
    schema: str
    doc: str
    tags: frozenset[str]
    rule: Rule
    eager: Callable[..., Any]
    flop_rule: Cost
    overload: OpOverload

    def flops(self, *args: Any, **kwargs: Any) -> Size:
        """Arithmetic operations of a call with `args` (tensors as `TensorMeta`)."""
        return self.flop_rule(args, self.rule(*args, **kwargs))

    def bytes(self, *args: Any, **kwargs: Any) -> Size:
        """Bytes read and written by a call when nothing is fused; a view moves none."""
        if "view" in self.tags:
            return 0
        result = self.rule(*args, **kwargs)
        moved: Size = 0
        for meta in tensor_metas((*args, result)):
            moved = moved + meta.nbytes()
        return moved


PRIMS: dict[str, Prim] = {}
"""All primitives by name, in the order of their definition."""

_BY_OVERLOAD: dict[OpOverload, Prim] = {}
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")


def prim_of(target: object) -> Prim | None:
    """The primitive that a graph node's target calls, or None."""
    return _BY_OVERLOAD.get(target) if isinstance(target, OpOverload) else None


def define(
    schema: str,
    *,
    rule: Rule,
    eager: Callable[..., Any],
    tags: Sequence[str],
    doc: str,
    flops: Cost | None = None,
    meta: Callable[..., Any] | None = None,
    fake: Callable[..., Any] | None = None,
) -> OpOverload:
    """Register a primitive and return its overload.

    `schema` is without namespace. `meta` replaces the kernel for meta tensors that is made from
    `rule` (a primitive that returns its own argument needs it). `fake` is a kernel for meta and
    fake tensors alike, needed where the device of the result is not that of the operands.
    """
    name = schema[: schema.index("(")]
    unknown = set(tags) - TAGS
    if name in PRIMS or unknown:
        raise ValueError(f"{name}: defined twice" if name in PRIMS else f"{name}: tags {unknown}")
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, eager, "CompositeExplicitAutograd")
    if fake is not None:
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    else:
        _LIBRARY.impl(name, meta or _meta_kernel(rule), "Meta")
    # A primitive has no derivative of its own: what runs below sees the inputs as they are.
    _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
    overload: OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    prim = Prim(name, schema, doc, frozenset(tags), rule, eager, flops or _no_flops, overload)
    PRIMS[name] = prim
    _BY_OVERLOAD[overload] = prim
    return overload


def metas_of(value: Any) -> Any:
    """`value` with each tensor in it (also in a list) replaced by its `TensorMeta`."""
    if isinstance(value, torch.Tensor):
        return TensorMeta.of(value)
    if isinstance(value, (list, tuple)):
        return [TensorMeta.of(v) if isinstance(v, torch.Tensor) else v for v in value]
    return value


def _meta_kernel(rule: Rule) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        result = rule(*map(metas_of, args), **{k: metas_of(v) for k, v in kwargs.items()})
        return _empty(result) if isinstance(result, TensorMeta) else tuple(map(_empty, result))

    return kernel


def _empty(meta: TensorMeta | None) -> torch.Tensor | None:
    if meta is None:
        return None
    return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device="meta")


def tensor_metas(args: Sequence[Any]) -> list[TensorMeta]:
    """All `TensorMeta` among `args`, also those inside lists and tuples."""
    found: list[TensorMeta] = []
    for arg in args:
        if isinstance(arg, TensorMeta):
            found.append(arg)
        elif isinstance(arg, (list, tuple)):
            found.extend(item for item in arg if isinstance(item, TensorMeta))
    return found


def _no_flops(args: tuple[Any, ...], result: MetaResult) -> Size:
    del args, result
    return 0


def flops_per_output(weight: int) -> Cost:
    """Cost rule: `weight` operations for each element of the (first) result."""

    def cost(args: tuple[Any, ...], result: MetaResult) -> Size:
        del args
        return weight * tensor_metas((result,))[0].numel()

    return cost


def flops_per_input(weight: int) -> Cost:
    """Cost rule: `weight` operations for each element of the first argument."""

    def cost(args: tuple[Any, ...], result: MetaResult) -> Size:
        del result
        first: TensorMeta = args[0]
        return weight * first.numel()

    return cost


def in_layout(result: Any, expected: MetaResult) -> Any:
    """`result` of a library call, copied into the strides that the rule promised if they differ.

    A library may choose its own layout; compiled code relies on the one that was predicted.
    """
    if isinstance(expected, TensorMeta):
        if tuple(result.stride()) == expected.stride or is_same_layout(result, expected):
            return result
        copy = torch.empty_strided(
            expected.shape, expected.stride, dtype=expected.dtype, device=result.device
        )
        return copy.copy_(result)
    return tuple(
        None if meta is None else in_layout(part, meta)
        for part, meta in zip(result, expected, strict=True)
    )


def is_same_layout(tensor: torch.Tensor, expected: TensorMeta) -> bool:
    """Equal strides wherever a stride matters: not in dimensions of size 1, nor if empty."""
    if tensor.numel() == 0:
        return True
    pairs = zip(tensor.shape, tensor.stride(), expected.stride, strict=True)
    return all(size == 1 or a == b for size, a, b in pairs)


def require(condition: bool, message: str) -> None:
    """Raise `PrimError(message)` unless `condition`; messages name the primitive first."""
    if not condition:
        raise PrimError(message)
