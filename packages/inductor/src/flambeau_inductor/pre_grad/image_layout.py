"""Layout pass: channels-last images where the library is faster with them.

In: a captured graph of torch functions, on fake tensors. Out: the same graph, in which convolutions
ask for their images channels-last. Invariant: values stay, and so do the strides of all that the
caller, or anybody else who reads by them, sees: an order is restored before such a read, and a
graph that returns images in another order than row-major is left alone.

The library computes a dense convolution in blocks of channels. Row-major images are brought into
that order before it and back after it; channels-last ones nearly are in it, but their weights are
then reordered at a higher price. So a dense convolution gains where it moves more image than
weight. A depthwise one costs no more than the reordering itself, and one of 1 x 1 is a product of
matrices, for which nothing is reordered.

A GPU multiplies matrices of half precision in units that take channels-last images: the library
brings others into that order before each convolution, and back after it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from flambeau_inductor.passes.match import op_of, val_of
from flambeau_inductor.pre_grad.layout_readers import restore, restored_reads

IMAGE = 4
"""Dimensions of a batch of images."""

CONVOLUTIONS = frozenset({torch.conv2d, torch.nn.functional.conv2d})

DTYPES = {
    "cpu": frozenset({torch.float32, torch.bfloat16}),
    "cuda": frozenset({torch.float16, torch.bfloat16}),
}
"""What is computed faster so, by device."""

PAYS = 0.7
"""Share of the convolutions that must be cheap (depthwise, grouped or 1 x 1)."""

BY_GROUPS = frozenset({"group_norm", "instance_norm"})
"""What goes through an image by some channels at a time: row-major order is better for it."""

LEAST_OF_GROUP = 8
"""Bytes of neighbouring channels that it must take together, on a GPU, for the images to be
channels-last all the same. With groups of so many a UNet's kernels took 363 us in place of 447
(H200, bfloat16, 64 images of 32 x 32): its norms more, but no image is brought into another order,
nor held in two (22 MiB in place of 32)."""


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
        image = node.args[0]
        assert isinstance(image, fx.Node)
        _reorder(gm, image, node, order)
        if order is torch.channels_last and torch.is_grad_enabled():
            _keep_gradient(gm, node)
    for value, reader in reads:
        restore(gm, value, reader)
    gm.recompile()
    return orders.count(torch.channels_last)


def _reorder(gm: fx.GraphModule, image: fx.Node, reader: fx.Node, order: Any) -> None:
    """Let `reader` find `image` in this order."""
    with gm.graph.inserting_before(reader):
        moved = gm.graph.call_method("contiguous", (image,), {"memory_format": order})
    moved.meta = {k: v for k, v in image.meta.items() if k == "stack_trace"}
    reader.replace_input_with(image, moved)


def _keep_gradient(gm: fx.GraphModule, node: fx.Node) -> None:
    """Let the gradient of a weight be row-major, as it is of row-major images: it goes back through
    a flat form of the weight, which is the same memory."""
    weight = node.args[1]
    value = val_of(weight)
    if not value.requires_grad or not value.is_contiguous():
        return
    if value.is_contiguous(memory_format=torch.channels_last):
        return
    with gm.graph.inserting_before(node):
        flat = gm.graph.call_method("reshape", (weight, -1))
        again = gm.graph.call_method("reshape", (flat, *value.shape))
    node.args = (node.args[0], again, *node.args[2:])


def _orders(
    gm: fx.GraphModule, convolutions: list[fx.Node], packed: bool
) -> list[torch.memory_format]:
    """The order in which each convolution is to find its image."""
    kinds = [_kind(node) for node in convolutions]
    if "unknown" in kinds or not kinds:
        return []
    devices = {val_of(node.args[0]).device.type for node in convolutions}
    if devices != {"cpu"}:
        on_a_gpu = devices == {"cuda"} and not any(_by_few(node) for node in gm.graph.nodes)
        return [torch.channels_last] * len(kinds) if on_a_gpu else []
    if "depthwise" in kinds:
        cheap = sum(kind != "dense" for kind in kinds) >= PAYS * len(kinds)
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
    return bool(image.shape[1] // groups * image.dtype.itemsize < LEAST_OF_GROUP)


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
    """Whether images leave the graph in row-major order alone, and no gradients of them, and none
    has its strides read."""
    for node in gm.graph.nodes:
        value = val_of(node)
        if node.op == "placeholder" and _is_image(node) and value.requires_grad:
            return False
        if node.op == "output" and not all(
            val_of(part).is_contiguous() for part in node.all_input_nodes if _is_image(part)
        ):
            return False
        if node.op == "call_method" and str(node.target) in STRICT:
            return False
        if node.op == "call_function" and getattr(node.target, "__name__", "") in STRICT:
            return False
    return True


def _is_image(node: fx.Node) -> bool:
    value = val_of(node)
    return isinstance(value, Tensor) and value.dim() >= IMAGE


STRICT = frozenset({"view", "view_", "as_strided", "as_strided_", "stride", "is_contiguous"})
"""What works or answers by strides: a graph with these keeps those it was written for."""
