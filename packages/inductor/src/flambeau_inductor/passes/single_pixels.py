"""Convolutions of images of one pixel, as the products of matrices that they are.

In: a captured graph of torch functions, on fake tensors. Out: the same graph, in which such a
convolution on a GPU is a linear map of the channels. Invariant: kernels of 1 x 1 without groups or
padding alone, whose result is one pixel too; values, shapes and strides stay.

Squeeze and excitation computes a gate for each channel of the mean of an image by two of them. The
library takes as many kernels for a gradient of such a convolution as for one of an image, and
reorders what has one pixel; a bias is part of the product.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

DEFAULTS = (None, 1, 0, 1, 1)
"""Bias, stride, padding, dilation and groups."""
NAMES = ("bias", "stride", "padding", "dilation", "groups")


def multiply_single_pixels(gm: fx.GraphModule, devices: tuple[str, ...] = ("cuda",)) -> int:
    """Rewrite every one on these devices; how many were."""
    found = [n for n in gm.graph.nodes if n.op == "call_function" and n.target is torch.conv2d]
    done = sum(_rewritten(gm.graph, node, devices) for node in found)
    if done:
        gm.recompile()
    return done


def _rewritten(graph: fx.Graph, node: fx.Node, devices: tuple[str, ...]) -> bool:
    if len(node.args) < 2 or not _fits(node, devices):
        return False
    image, weight = node.args[:2]
    bias = _settings(node)["bias"]
    shape = node.meta["val"].shape
    channels = weight.meta["val"].shape[1]  # type: ignore[union-attr]
    with graph.inserting_before(node):
        rows = graph.call_method("reshape", (image, -1, channels))
        matrix = graph.call_method("reshape", (weight, -1, channels))
        flat = graph.call_function(F.linear, (rows, matrix, bias))
        made = graph.call_method("reshape", (flat, *shape))
    value = node.meta["val"]
    made.meta = dict(node.meta)
    for part in (rows, matrix, flat):
        part.meta = {k: v for k, v in node.meta.items() if k == "stack_trace"}
    flat.meta["val"] = value.new_empty(shape[:2])
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    return True


def _settings(node: fx.Node) -> dict[str, Any]:
    given = dict(zip(NAMES, node.args[2:], strict=False)) | node.kwargs
    return dict(zip(NAMES, DEFAULTS, strict=True)) | given


def _fits(node: fx.Node, devices: tuple[str, ...]) -> bool:
    parts = (*node.args[:2], node)
    values = [part.meta.get("val") if isinstance(part, fx.Node) else None for part in parts]
    tensors = [value for value in values if isinstance(value, Tensor) and value.dim() == 4]
    if len(tensors) != len(parts):
        return False
    sizes = [size for tensor in tensors for size in tensor.shape]
    if not all(isinstance(size, int) for size in sizes) or 0 in sizes:
        return False
    made, settings = tensors[-1], _settings(node)
    if made.device.type not in devices or made.stride() != (made.shape[1], 1, 1, 1):
        return False
    if isinstance(settings["bias"], fx.Node):
        tensors.append(settings["bias"].meta["val"])
    if len({tensor.dtype for tensor in tensors}) != 1:
        return False  # casts stay where they are
    one = all(tuple(tensor.shape[2:]) == (1, 1) for tensor in tensors[: len(parts)])
    unpadded = settings["padding"] in (0, "valid", (0,), (0, 0), [0], [0, 0])
    return one and settings["groups"] == 1 and unpadded and set(settings) == set(NAMES)
