"""Layout sensitivity: which readers take another memory order.

In: a captured graph of torch functions on fake tensors, and the nodes whose results will have other
strides. Out: the reads before which an order must be restored, or None where that cannot be done.
Invariant: nobody reads changed strides but functions that are known to give the same values for
any, and whose results share memory for any or for none.

What reads by raw strides or addresses (`as_strided`, operators of others), what numbers elements in
the order of memory (random numbers), what shares memory or not according to strides (`reshape`,
`contiguous`) and the caller are all on the other side: whatever is not named here is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from flambeau_inductor.passes.match import AUGMENTED, argument, op_of, storage_of, written

_VALUES = """
    add sub mul div truediv true_divide rsub radd rmul rtruediv neg abs exp expm1 exp2 log log1p
    log2 sqrt rsqrt pow square reciprocal clamp clip clamp_min clamp_max minimum maximum where
    lerp addcmul addcdiv sigmoid tanh sin cos tan atan erf floor ceil round trunc frac sign relu
    relu6 hardtanh hardswish hardsigmoid hardshrink softshrink tanhshrink silu gelu mish elu
    selu celu leaky_relu prelu glu softplus softsign logsigmoid threshold softmax log_softmax eq
    ne lt le gt ge isnan isinf logical_and logical_or logical_not masked_fill nan_to_num float
    half bfloat16 double to type_as clone detach conv2d conv_transpose2d batch_norm group_norm
    instance_norm layer_norm rms_norm local_response_norm normalize max_pool2d avg_pool2d
    lp_pool2d adaptive_avg_pool2d adaptive_max_pool2d interpolate upsample pad pixel_shuffle
    pixel_unshuffle grid_sample cat concat concatenate stack mean sum amax amin var std norm
    linear matmul bmm mm addmm baddbmm where_else
"""
VALUES = frozenset(_VALUES.split())
"""Functions of values alone, whose results are new tensors; in place too (`relu_`, `iadd`)."""

_VIEWS = """
    chunk split tensor_split narrow select unbind permute transpose movedim moveaxis swapaxes
    swapdims unsqueeze squeeze expand expand_as getitem
"""
VIEWS = frozenset(_VIEWS.split())
"""What gives views of any tensor, whatever its strides."""

DROPOUTS = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"})
"""What is its argument itself where it does not train; numbers are drawn in the order of memory."""

Read = tuple[fx.Node, fx.Node]
"""A node, and one that reads it."""


def restored_reads(gm: fx.GraphModule, changed: Collection[fx.Node]) -> list[Read] | None:
    """The reads before which what `changed` gives, and what is made of it, has to be brought back
    into its own order; None where that would be seen: memory that is shared, or left open."""
    barred: set[fx.Node] = set()
    while True:
        reads, reached = _reads(gm, changed, barred)
        lost = [value for value, _ in reads if order_of(value.meta.get("val")) is None]
        if not lost:
            break
        if not all(_is_view(value) and value not in barred for value in lost):
            return None
        barred.update(lost)  # what it is a view of is brought back
    return None if _writes_after_reads(gm, reads) or _shares(gm, reads, reached) else reads


def _reads(
    gm: fx.GraphModule, changed: Collection[fx.Node], barred: Collection[fx.Node]
) -> tuple[list[Read], set[fx.Node]]:
    reached: set[fx.Node] = set()
    reads: list[Read] = []
    for node in gm.graph.nodes:
        given = [value for value in node.all_input_nodes if value in reached]
        if node in changed or (given and node not in barred and is_indifferent(node)):
            reached.add(node)
        else:
            reads += [(value, node) for value in given]
    return reads, reached


def is_indifferent(node: fx.Node) -> bool:
    """Whether a node's result has the same values whatever the strides of what it reads."""
    name = op_of(node)
    if name is None or "out" in node.kwargs or "memory_format" in node.kwargs:
        return False
    if name in DROPOUTS:
        return argument(node, "training") is False
    plain = name.removesuffix("_") if not name.endswith("__") else name
    if plain == "to" and any(isinstance(a, torch.memory_format) for a in node.args):
        return False
    return plain in VALUES or name in AUGMENTED or _is_view(node)


def _is_view(node: fx.Node) -> bool:
    if op_of(node) != "getitem":
        return op_of(node) in VIEWS
    source, index = node.args
    if not isinstance(source, fx.Node) or not isinstance(source.meta.get("val"), Tensor):
        return True  # one of several results
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or isinstance(part, int | slice | type(...)) for part in parts)


# --- memory that is shared --------------------------------------------------------------------


def _writes_after_reads(gm: fx.GraphModule, reads: list[Read]) -> bool:
    """Whether something is written that was read before in an order of its own, so that the write
    or what was read would be another's memory."""
    held: dict[fx.Node, set[int | None]] = {}
    for value, reader in reads:
        held.setdefault(reader, set()).add(storage_of(value))
    seen: set[int | None] = set()
    for node in gm.graph.nodes:
        seen |= held.get(node, set())
        if any(storage in seen for storage in written(node)):
            return True
    return False


def _shares(gm: fx.GraphModule, reads: list[Read], reached: set[fx.Node]) -> bool:
    """Whether the caller sees that results share memory with each other, or with what is given."""
    (output,) = gm.graph.find_nodes(op="output")
    changed = {storage_of(node) for node in reached} - {None}
    given = {storage_of(node) for node in gm.graph.nodes if node.op in ("placeholder", "get_attr")}
    results = [storage_of(node) for node in output.all_input_nodes]
    shared = [storage for storage in results if storage in changed]
    return len(set(shared)) < len(shared) or bool(given.intersection(shared))


# --- orders -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """The dimensions of a tensor without gaps, outermost in memory first."""

    dims: tuple[int, ...] = field(default=())

    @property
    def row_major(self) -> bool:
        return self.dims == tuple(sorted(self.dims))


def order_of(value: Any) -> Order | None:
    """The order of a tensor whose elements lie side by side; None for any other."""
    if not isinstance(value, Tensor) or not all(
        isinstance(n, int) for n in (*value.shape, *value.stride())
    ):
        return None
    if value.is_contiguous():
        return Order(tuple(range(value.dim())))
    dims = tuple(sorted(range(value.dim()), key=lambda d: value.stride()[d], reverse=True))
    return Order(dims) if value.permute(dims).is_contiguous() else None


def restore(gm: fx.GraphModule, value: fx.Node, reader: fx.Node) -> None:
    """Let `reader` find `value` in the order that it had."""
    order = order_of(value.meta["val"])
    assert order is not None

    def call(method: str, *args: Any, **kwargs: Any) -> fx.Node:
        made = gm.graph.call_method(method, args, kwargs)
        made.meta = {k: v for k, v in value.meta.items() if k == "stack_trace"}
        return made

    with gm.graph.inserting_before(reader):
        turned = value if order.row_major else call("permute", value, order.dims)
        moved = call("contiguous", turned, memory_format=torch.contiguous_format)
        if not order.row_major:
            back = tuple(order.dims.index(d) for d in range(len(order.dims)))
            moved = call("permute", moved, back)
    reader.replace_input_with(value, moved)
