"""Simplification: constant folding, common-subexpression and dead-code elimination.

In: a graph of primitives. Out: an equal one of fewer nodes. Invariant: a folded value is what the
primitive's eager implementation gives for one element; a node is only replaced by one of the same
shape, strides and dtype, bit for bit equal; two tensors that the caller gets stay two.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch
from flambeau_prims import PRIMS
from flambeau_prims.shape_rules import TensorMeta
from flambeau_prims.sizes import SizeNodes
from torch import fx

from flambeau_inductor._torch_compat import OpOverload, depends_on_data, has_effect
from flambeau_inductor.ir.nodes import name_of
from flambeau_inductor.node_queries import MOVES, escaping, has_tag, placed, same_meta
from flambeau_inductor.passes.rewriter import Call, Ledger, Match, Rule, Value, ops, rewrite

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
