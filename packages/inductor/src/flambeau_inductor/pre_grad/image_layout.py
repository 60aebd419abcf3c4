"""Layout pass: channels-last images where the library is faster with them.

In: a captured graph of torch functions on fake tensors. Out: the same graph, whose convolutions ask
for channels-last images. Invariant: values stay, and so do the strides of all that the caller, or a
reader that is not known to be indifferent to them, sees: an order is restored before such a read; a
graph that returns images in another order than row-major is left alone.

A CPU's library computes dense convolutions in blocks of channels: channels-last images nearly are
in that order, but the weights are then reordered at a higher price, so that a dense convolution
gains where it moves more image than weight. A depthwise one costs no more than the reordering; one
of 1 x 1 is a product of matrices. A GPU multiplies half-precision matrices in units that take
channels-last images, into which the library brings others before each convolution.

Whatever is not named here reads by strides: raw addresses (`as_strided`, others' operators), random
numbers in the order of memory, and what shares memory or not by strides (`reshape`, `contiguous`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, fx

from flambeau_inductor.node_queries import AUGMENTED, argument, op_of, storage_of, val_of, written
from flambeau_inductor.tuning import host_tuning, tuning_of

IMAGE = 4
"""Dimensions of a batch of images."""

CONVOLUTIONS = frozenset({torch.conv2d, torch.nn.functional.conv2d})

DTYPES = {
    "cpu": frozenset({torch.float32, torch.bfloat16}),
    "cuda": frozenset({torch.float16, torch.bfloat16}),
}
"""What is computed faster so, by device."""

BY_GROUPS = frozenset({"group_norm", "instance_norm"})
"""What goes through an image by some channels at a time: row-major order is better for it."""


def channels_last(gm: fx.GraphModule, packed: bool = False) -> int:
    """Let convolutions of `gm` read channels-last images, if that pays; how many do.

    packed: weights are reordered once, not at every call.
    """
    found = [n for n in gm.graph.nodes if n.op == "call_function" and n.target in CONVOLUTIONS]
    orders = _orders(gm, found, packed)
    if torch.channels_last not in orders or not _unseen(gm):
        return 0
    reads = restored_reads(gm, found)
    if reads is None:
        return 0
    for node, order in zip(found, orders, strict=True):
        image: Any = node.args[0]
        with gm.graph.inserting_before(node):
            moved = gm.graph.call_method("contiguous", (image,), {"memory_format": order})
        moved.meta = {k: v for k, v in image.meta.items() if k == "stack_trace"}
        node.replace_input_with(image, moved)
        if order is torch.channels_last and torch.is_grad_enabled():
            _keep_gradient(gm, node)
    for value, reader in reads:
        restore(gm, value, reader)
    gm.recompile()
    return orders.count(torch.channels_last)


def _keep_gradient(gm: fx.GraphModule, node: fx.Node) -> None:
    """Let a weight's gradient be row-major, through a flat form of the same memory."""
    weight = node.args[1]
    value = val_of(weight)
    last = value.is_contiguous(memory_format=torch.channels_last)
    if last or not value.requires_grad or not value.is_contiguous():
        return
    with gm.graph.inserting_before(node):
        flat = gm.graph.call_method("reshape", (weight, -1))
        again = gm.graph.call_method("reshape", (flat, *value.shape))
    node.args = (node.args[0], again, *node.args[2:])


def _orders(
    gm: fx.GraphModule, convolutions: list[fx.Node], packed: bool
) -> list[torch.memory_format]:
    kinds = [_kind(node) for node in convolutions]
    if "unknown" in kinds or not kinds:
        return []
    devices = {val_of(node.args[0]).device.type for node in convolutions}
    if devices != {"cpu"}:
        on_a_gpu = devices == {"cuda"} and not any(_by_few(node) for node in gm.graph.nodes)
        return [torch.channels_last] * len(kinds) if on_a_gpu else []
    if "depthwise" in kinds:
        cheap = sum(kind != "dense" for kind in kinds) >= host_tuning().cheap_convolutions * len(
            kinds
        )
        return [torch.channels_last] * len(kinds) if cheap else []
    if torch.is_grad_enabled() or any(_by_groups(node) for node in gm.graph.nodes):
        return []
    return [
        torch.channels_last
        if packed or kind == "cheap" or _moves_more_image(node)
        else torch.contiguous_format
        for node, kind in zip(convolutions, kinds, strict=True)
    ]


def _by_groups(node: fx.Node) -> bool:
    return node.op == "call_function" and op_of(node) in BY_GROUPS


def _by_few(node: fx.Node) -> bool:
    """Whether a node takes few channels of an image at a time, or nobody knows how many."""
    if not _by_groups(node):
        return False
    image = val_of(node.args[0]) if node.args else None
    groups = node.kwargs.get("num_groups", node.args[1] if len(node.args) > 1 else None)
    if getattr(node.target, "__name__", "") != "group_norm" or not isinstance(image, Tensor):
        return True
    if not isinstance(groups, int) or groups < 1:
        return True
    least = tuning_of((image.device,)).group_norm_bytes
    return bool(image.shape[1] // groups * image.dtype.itemsize < least)


def _moves_more_image(node: fx.Node) -> bool:
    image, weight = (val_of(part) for part in node.args[:2])
    result = val_of(node)
    moved = image.numel() + (result.numel() if isinstance(result, Tensor) else 0)
    return bool(moved > weight.numel())


def _kind(node: fx.Node) -> str:
    """`depthwise`, `cheap` (1 x 1), `dense`, or `unknown` where it must be left alone."""
    if len(node.args) < 2 or "input" in node.kwargs or "weight" in node.kwargs:
        return "unknown"
    image, weight = (val_of(part) for part in node.args[:2])
    for tensor in (image, weight):
        if not isinstance(tensor, Tensor) or tensor.dim() != IMAGE:
            return "unknown"
        if not all(isinstance(size, int) for size in tensor.shape):
            return "unknown"
    if image.dtype not in DTYPES.get(image.device.type, ()):
        return "unknown"
    if weight.shape[1] == 1 and weight.shape[0] > 1 and image.shape[1] > 1:
        return "depthwise"
    return "cheap" if tuple(weight.shape[2:]) == (1, 1) else "dense"


def _unseen(gm: fx.GraphModule) -> bool:
    """Whether no strides are seen: of results, of gradients, of what is read by strides."""
    for node in gm.graph.nodes:
        value = val_of(node)
        if node.op == "placeholder" and _is_image(node) and value.requires_grad:
            return False
        if node.op == "output" and not all(
            val_of(part).is_contiguous() for part in node.all_input_nodes if _is_image(part)
        ):
            return False
        name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
        if node.op in ("call_method", "call_function") and name in STRICT:
            return False
    return True


def _is_image(node: fx.Node) -> bool:
    value = val_of(node)
    return isinstance(value, Tensor) and value.dim() >= IMAGE


STRICT = frozenset({"view", "view_", "as_strided", "as_strided_", "stride", "is_contiguous"})
"""What works or answers by strides: a graph with these keeps those it was written for."""


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
    """Whether memory is written that was read before in a restored order."""
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


Order = tuple[int, ...]
"""The dimensions of a tensor without gaps, outermost in memory first."""


def order_of(value: Any) -> Order | None:
    """The order of a tensor whose elements lie side by side; None for any other."""
    if not isinstance(value, Tensor) or not all(
        isinstance(n, int) for n in (*value.shape, *value.stride())
    ):
        return None
    if value.is_contiguous():
        return tuple(range(value.dim()))
    dims = tuple(sorted(range(value.dim()), key=lambda d: value.stride()[d], reverse=True))
    return dims if value.permute(dims).is_contiguous() else None


def restore(gm: fx.GraphModule, value: fx.Node, reader: fx.Node) -> None:
    """Let `reader` find `value` in the order that it had."""
    order = order_of(value.meta["val"])
    assert order is not None

    def call(method: str, *args: Any, **kwargs: Any) -> fx.Node:
        made = gm.graph.call_method(method, args, kwargs)
        made.meta = {k: v for k, v in value.meta.items() if k == "stack_trace"}
        return made

    with gm.graph.inserting_before(reader):
        permuted = order != tuple(range(len(order)))
        source = call("permute", value, order) if permuted else value
        moved = call("contiguous", source, memory_format=torch.contiguous_format)
        if permuted:
            moved = call("permute", moved, tuple(map(order.index, range(len(order)))))
    reader.replace_input_with(value, moved)
