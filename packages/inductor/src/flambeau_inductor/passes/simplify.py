"""Simplification: constant folding, common-subexpression and dead-code elimination.

In: a graph of primitives. Out: an equal one of fewer nodes. Invariant: a folded value is what the
primitive's eager implementation gives for one element; a node is only replaced by one of the same
shape, strides and dtype, bit for bit equal; two tensors that the caller gets stay two.

Merging of writes to a part of a part. In: a graph of primitives, in which a write through several
views (`x[0][:, n] = y`) is a chain of `slice_scatter`s, each of which writes what the next one
inside makes. Out: one that writes the innermost part at its place in the whole. Invariant: only
what is known to be the same whatever the open sizes are is merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, cast

import torch
from flambeau_prims import PRIMS
from flambeau_prims.shape_rules import TensorMeta
from flambeau_prims.sizes import SizeNodes
from torch import fx

from flambeau_inductor._torch_compat import OpOverload, depends_on_data, has_effect
from flambeau_inductor.ir.nodes import name_of
from flambeau_inductor.node_queries import (
    MOVES,
    escaping,
    has_tag,
    placed,
    same_meta,
    strides,
    val_of,
)
from flambeau_inductor.passes.rewriter import Call, Ledger, Match, Named, Rule, Value, ops, rewrite

POINTWISE = frozenset(name for name, prim in PRIMS.items() if "pointwise" in prim.tags) | {"cast"}


def sizes_of(before: fx.Node, shape: Sequence[Any]) -> list[Any]:
    """The sizes of a shape as arguments of new nodes before one: open ones are read from the
    inputs, those by data from what counts them."""
    if not any(isinstance(size, torch.SymInt) for size in shape):
        return list(shape)
    known = SizeNodes(before.graph)
    for node in takewhile(lambda node: node is not before, before.graph.nodes):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            known.given(node, value)
        elif isinstance(value, torch.Tensor):
            known.seen(node, TensorMeta.of(value))
    with before.graph.inserting_before(before):
        return [known.node_of(size) if isinstance(size, torch.SymInt) else size for size in shape]


def _are_numbers(node: fx.Node) -> bool:
    operands = node.all_input_nodes
    return bool(operands) and all(
        name_of(each) == "full" and not isinstance(each.args[1], fx.Node) for each in operands
    )


def _is_undefined(node: fx.Node, to: torch.dtype) -> bool:
    """Whether a node is the integer of a number that such an integer cannot hold."""
    if name_of(node) != "cast" or to.is_floating_point or to == torch.bool:
        return False
    number, info = node.all_input_nodes[0].args[1], torch.iinfo(to)
    return isinstance(number, float) and not info.min <= number <= info.max


def _folded(m: Match) -> fx.Node | None:
    def element(operand: fx.Node) -> Any:
        return torch.full((1,), operand.args[1], dtype=operand.kwargs["dtype"])  # type: ignore[arg-type]

    node, name = m.root, name_of(m.root) or ""
    made: Any = node.all_input_nodes[0].args[1]
    if name in POINTWISE:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), element)
        made = PRIMS[name].eager(*args, **kwargs).item()
    meta = node.meta.get("val")
    if meta is None or isinstance(made, complex) or meta.dtype.is_complex:
        return None  # the library fills these, in strides of its own
    if meta.device.type != "cpu" and _is_undefined(node, meta.dtype):
        return None  # each device has another number
    sizes = sizes_of(node, meta.shape)
    return m.call(PRIMS["full"].overload, sizes, made, dtype=meta.dtype, device=meta.device)


def fold_constants(graph: fx.Graph, ledger: Ledger | None = None) -> int:
    """Replace calls on numbers by numbers. A view that the caller sees stays a part of the memory
    that it is a view of."""
    seen = escaping(graph)

    def inside(node: fx.Node) -> bool:
        return _are_numbers(node) and not (node in seen and has_tag(node, "view"))

    calls = Call(POINTWISE | MOVES | {"device_put"}, (), inside)
    return rewrite(graph, (Rule("fold_constants", (calls,), _folded),), ledger)


def _in_order(node: fx.Node) -> bool:
    dims = node.args[1]
    return isinstance(dims, list | tuple) and list(dims) == list(range(len(dims)))


def _real(node: fx.Node) -> bool:
    """One times an infinite complex number has a part that is NaN."""
    value = node.meta["val"]
    return not (isinstance(value, torch.Tensor) and value.dtype.is_complex)


_x = Value("x")
EQUAL_TO_X = (
    Call(frozenset({"cast", "reshape", "broadcast_in_dim", "slice"}), (_x,), lambda node: True),
    ops.permute(_x, where=_in_order),
    ops.mul(_x, 1, where=_real),
    ops.div(_x, 1, where=_real),
)
"""What equals `x`, if shape, strides and dtype are the same. (x + 0 is not x: -0.)"""


def drop_redundant(graph: fx.Graph, ledger: Ledger | None = None) -> int:
    """Replace calls that give back their operand. What the caller sees, and that in which a place
    in memory is named, keeps its own memory."""
    seen = escaping(graph) | placed(graph)

    def operand(m: Match) -> fx.Node | None:
        own = m.root in seen and not has_tag(m.root, "view")
        return None if own or not same_meta(m.root, m["x"]) else m["x"]

    return rewrite(graph, (Rule("drop_redundant", EQUAL_TO_X, operand),), ledger)


def merge_equal(graph: fx.Graph) -> int:
    """Compute equal calls of primitives once, but for those that are made again to save memory
    (`node.meta["computed_again"]`)."""
    merged = 0
    seen = escaping(graph)
    known: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        name = name_of(node)
        if name is None or has_tag(node, "mutating") or name == "seed":
            continue
        # a call that counts data counts anew, and names its count in the value it was traced with
        shape = getattr(node.meta.get("val"), "shape", ())
        counted = tuple(map(str, filter(depends_on_data, shape)))
        key = (
            node.target,
            _key(node.args),
            _key(node.kwargs),
            counted,
            "computed_again" in node.meta,
        )
        first = known.setdefault(key, node)
        if first is node or (node in seen and first in seen):
            continue
        if node in seen:
            # The caller sees this one: let it be the one that stays out of the table.
            continue
        node.replace_all_uses_with(first)
        graph.erase_node(node)
        merged += 1
    return merged


def _key(value: Any) -> Any:
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, list | tuple):
        return tuple(_key(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _key(v)) for k, v in value.items())
    # By text: 1, 1.0 and True are equal, and so are 0.0 and -0.0, but they are not the same.
    return f"{type(value).__name__}:{value!r}"


def remove_dead(graph: fx.Graph) -> None:
    """Erase calls that nobody uses; only drawing a seed has an effect."""
    for node in reversed(graph.nodes):
        if node.op not in ("call_function", "get_attr") or node.users:
            continue
        target = node.target
        called = isinstance(target, OpOverload) and has_effect(target)
        if not (called or node.is_impure() or str(target) == "flambeau_prims.seed.default"):
            graph.erase_node(node)


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
