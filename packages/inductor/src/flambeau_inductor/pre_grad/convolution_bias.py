"""Biases of convolutions apart from them, on a GPU, before tracing.

In: a captured graph of torch functions, on fake tensors. Out: the same graph, in which convolutions
have no bias and an addition follows. Invariant: the library adds a bias to the rounded result of a
convolution, in a kernel of its own, so that values and dtypes stay; the addition is part of the
kernel that comes next.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

CONVOLUTIONS: dict[Any, int] = {
    torch.conv1d: 1,
    torch.conv2d: 2,
    torch.conv3d: 3,
    torch.conv_transpose1d: 1,
    torch.conv_transpose2d: 2,
    torch.conv_transpose3d: 3,
}
"""Function: how many dimensions come behind the channels."""

BIAS = 2
"""Its position among the arguments."""


def add_biases_apart(gm: fx.GraphModule) -> int:
    """Take the biases out of the convolutions of `gm`; how many were."""
    count = 0
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target in CONVOLUTIONS and _on_a_gpu(node):
            _apart(gm.graph, node, node.args[BIAS])
            count += 1
    if count:
        gm.recompile()
    return count


def _on_a_gpu(node: fx.Node) -> bool:
    """Whether a convolution of floating point numbers has a bias and runs on a GPU."""
    made = node.meta.get("val")
    if not isinstance(made, Tensor) or made.device.type != "cuda" or not made.is_floating_point():
        return False
    bias = node.args[BIAS] if len(node.args) > BIAS else None
    return isinstance(bias, fx.Node) and isinstance(bias.meta.get("val"), Tensor)


def _apart(graph: fx.Graph, node: fx.Node, bias: Any) -> None:
    made = node.meta["val"]
    with graph.inserting_after(node):
        added = graph.call_function(torch.add, (node, bias))
    with graph.inserting_before(node):
        if bias.meta["val"].dtype != made.dtype:  # as under autocast
            bias = graph.call_method("to", (bias, made.dtype))
        column = graph.call_method("view", (bias, -1, *(1,) * CONVOLUTIONS[node.target]))
    node.replace_all_uses_with(added, delete_user_cb=lambda user: user is not added)
    added.args = (node, column)
    added.meta = dict(node.meta)
    node.args = (*node.args[:BIAS], None, *node.args[BIAS + 1 :])
