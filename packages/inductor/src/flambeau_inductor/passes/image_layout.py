"""Channels-last images for networks of depthwise and pointwise convolutions, before tracing.

In: a captured graph of torch functions, on fake tensors. Out: the same graph, in which every
convolution asks for its images channels-last. Invariant: values stay, and so do the strides of all
that the caller sees: a graph that returns or writes images is left alone.

The library computes a dense convolution in blocks of channels and brings images into that order
itself; a depthwise one, or one of 1 x 1, costs no more than that reordering. With the channels last
there is none, and what lies between convolutions keeps the order it finds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

IMAGE = 4
"""Dimensions of a batch of images."""

CONVOLUTIONS = frozenset({torch.conv2d, torch.nn.functional.conv2d})

PAYS = 0.7
"""Share of the convolutions that must be cheap (depthwise, grouped or 1 x 1)."""


def channels_last(gm: fx.GraphModule) -> int:
    """Let the convolutions of `gm` read channels-last images, if that pays; how many do."""
    found = [n for n in gm.graph.nodes if n.op == "call_function" and n.target in CONVOLUTIONS]
    if not _pays(found) or not _unseen(gm):
        return 0
    for node in found:
        with gm.graph.inserting_before(node):
            moved = gm.graph.call_method(
                "contiguous", (node.args[0],), {"memory_format": torch.channels_last}
            )
        moved.meta = {k: v for k, v in node.meta.items() if k == "stack_trace"}
        node.update_arg(0, moved)
    gm.recompile()
    return len(found)


def _pays(convolutions: list[fx.Node]) -> bool:
    kinds = [_kind(node) for node in convolutions]
    if "unknown" in kinds or "depthwise" not in kinds:
        return False
    return sum(kind != "dense" for kind in kinds) >= PAYS * len(kinds)


def _kind(node: fx.Node) -> str:
    """`depthwise`, `cheap` (1 x 1), `dense`, or `unknown` where it must be left alone."""
    if len(node.args) < 2 or "input" in node.kwargs or "weight" in node.kwargs:
        return "unknown"
    image, weight = (_value(part) for part in node.args[:2])
    for tensor in (image, weight):
        if not isinstance(tensor, Tensor) or tensor.dim() != IMAGE or tensor.device.type != "cpu":
            return "unknown"
        if not all(isinstance(size, int) for size in tensor.shape):
            return "unknown"
    if image.dtype not in (torch.float32, torch.bfloat16):
        return "unknown"
    if weight.shape[1] == 1 and weight.shape[0] > 1 and image.shape[1] > 1:
        return "depthwise"
    return "cheap" if tuple(weight.shape[2:]) == (1, 1) else "dense"


def _unseen(gm: fx.GraphModule) -> bool:
    """Whether no image, and no gradient of one, leaves the graph, and none has its strides read."""
    for node in gm.graph.nodes:
        value = _value(node)
        image = isinstance(value, Tensor) and value.dim() >= IMAGE
        if node.op == "placeholder" and image and value.requires_grad:
            return False
        if node.op == "output" and any(
            isinstance(_value(part), Tensor) and _value(part).dim() >= IMAGE
            for part in node.all_input_nodes
        ):
            return False
        if node.op == "call_method" and str(node.target) in STRICT:
            return False
        if node.op == "call_function" and getattr(node.target, "__name__", "") in STRICT:
            return False
    return True


STRICT = frozenset({"view", "view_", "as_strided", "as_strided_", "stride", "is_contiguous"})
"""What works or answers by strides: a graph with these keeps those it was written for."""


def _value(part: Any) -> Any:
    return part.meta.get("val") if isinstance(part, fx.Node) else part
