"""Merging of writes to a part of a part.

In: a graph of primitives, in which a write through several views (`x[0][:, n] = y`) is a chain of
`slice_scatter`s, each of which writes what the next one inside makes. Out: one that writes the
innermost part at its place in the whole. Invariant: only what is known to be the same whatever the
open sizes are is merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor.ir.nodes import name_of
from flambeau_inductor.node_queries import escaping, strides, val_of
from flambeau_inductor.passes.rewriter import Call, Ledger, Match, Named, Rule, Value, ops, rewrite
from flambeau_inductor.passes.simplify import sizes_of

SLICE_SCATTER = PRIMS["slice_scatter"].overload
BROADCAST = PRIMS["broadcast_in_dim"].overload


def merge_part_writes(graph: fx.Graph, ledger: Ledger | None = None) -> int:
    """Rewrite all that can be; returns how many writes became parts of others."""
    seen = escaping(graph)

    def whole(m: Match) -> fx.Node | None:
        src = m["src"]
        # what the caller gets is a tensor of its own: not another result, and no input
        own = name_of(src) == "slice_scatter" and src not in seen
        return src if own or m.root not in seen else None

    patterns = (((_WHOLE,), whole), (_NESTED, _merged))
    rules = [Rule("merge_part_writes", wanted, made) for wanted, made in patterns]
    return rewrite(graph, rules, ledger)


def _is_whole(node: fx.Node) -> bool:
    base, src, start, _, step = cast(tuple[Any, ...], node.args)
    begins = all(isinstance(n, int) and n == 0 for n in start) and all(n == 1 for n in step)
    return begins and _layout(src) is not None and _layout(src) == _layout(base)


def _layout(node: Any) -> tuple[Any, ...] | None:
    """Sizes, strides and dtype, as expressions of open sizes."""
    value = val_of(node)
    if value is None:
        return None
    return (*map(_said, (*value.shape, *strides(value))), value.dtype)


def _said(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


_INNER = Named("inner", ops.slice_scatter(Value("view"), Value("src"), where=lambda node: True))
_WHOLE = ops.slice_scatter(Value("base"), Value("src"), where=_is_whole)
_NESTED: tuple[Call, ...] = (
    ops.slice_scatter(Value("base"), _INNER, where=lambda node: True),
    ops.slice_scatter(
        Value("base"),
        ops.broadcast_in_dim(_INNER, where=lambda node: True),
        where=lambda node: True,
    ),
)


def _merged(m: Match) -> fx.Node | None:
    """The write of the innermost part, where what is written around it is what was there."""
    inner: Any = m["inner"]
    base, part, *outer = cast(tuple[Any, ...], m.root.args)
    view, src, start, stop, step = inner.args
    dims = list(range(len(outer[0]))) if part is inner else list(part.args[2])
    shown = view.args[0] if name_of(view) == "reshape" else view
    if name_of(shown) != "slice" or list(shown.args) != [base, *outer] or set(outer[2]) != {1}:
        return None
    if _without(val_of(shown).shape, dims) != [*map(_said, val_of(view).shape)]:
        return None
    starts, stops, steps = (list(each) for each in outer)
    for own, dim in enumerate(dims):
        begin, end = _sum(m, outer[0][dim], start[own]), _sum(m, outer[0][dim], stop[own])
        if begin is None or end is None:
            return None
        starts[dim], stops[dim], steps[dim] = begin, end, step[own]
    if part is not inner:
        shape = list(part.args[1])
        given = sizes_of(m.root, val_of(src).shape)
        for own, dim in enumerate(dims):
            shape[dim] = given[own]
        src = m.call(BROADCAST, src, shape, dims)
    return m.call(SLICE_SCATTER, base, src, starts, stops, steps)


def _without(shape: Sequence[Any], dims: Sequence[int]) -> list[Any] | None:
    """The sizes of these dimensions, where all others are 1."""
    others = [size for dim, size in enumerate(shape) if dim not in dims]
    return [_said(shape[dim]) for dim in dims] if all(_said(n) == 1 for n in others) else None


def _sum(m: Match, a: Any, b: Any) -> Any:
    """A sum of sizes as an argument of a node; None where it is no size of an input."""
    if isinstance(a, int) and a == 0:
        return b
    total = val_of(a) + val_of(b)
    return sizes_of(m.root, [total])[0]
