"""Batch norms of inference folded into the convolutions and linear maps before them.

In: a captured graph of torch functions whose parameters are `get_attr` nodes. Out: the same graph
with fewer of them. Invariant: only where gradients are off and every statistic and weight is a
parameter or buffer of the graph; they are read once, now: who changes them later does not change
what was compiled (that is what `freezing` means).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

#: function: position of its weight and of its bias
LINEAR = {
    torch.conv1d: (1, 2),
    torch.conv2d: (1, 2),
    torch.conv3d: (1, 2),
    torch.nn.functional.linear: (1, 2),
}
#: function: how many arguments it takes by position, and where among them are mean, variance,
#: weight, bias, whether it is training, and eps
NORMS: dict[Any, tuple[int, tuple[int, ...]]] = {
    torch.nn.functional.batch_norm: (8, (1, 2, 3, 4, 5, 7)),
    torch.batch_norm: (9, (3, 4, 1, 2, 5, 7)),
}


def fold_batch_norms(gm: fx.GraphModule) -> int:
    """Fold what can be folded; how many were. Nothing is done where gradients are on."""
    if torch.is_grad_enabled():
        return 0
    folded = 0
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target in NORMS and _fold(gm, node):
            folded += 1
    if folded:
        _drop_unread(gm)
        gm.recompile()
    return folded


def _drop_unread(gm: fx.GraphModule) -> None:
    """Erase reads of tensors that nobody uses now. (A call that nobody uses may write in place.)"""
    for node in reversed(gm.graph.nodes):
        if node.op == "get_attr" and not node.users:
            gm.graph.erase_node(node)


def _fold(gm: fx.GraphModule, norm: fx.Node) -> bool:
    count, places = NORMS[norm.target]
    if norm.kwargs or len(norm.args) != count:
        return False
    mean, variance, scale, shift, training, eps = (norm.args[place] for place in places)
    if training or not isinstance(eps, float):
        return False
    before = norm.args[0]
    if not isinstance(before, fx.Node) or before.target not in LINEAR or before.kwargs:
        return False
    if len(before.users) != 1 or len(before.args) < 2:
        return False
    at_weight, at_bias = LINEAR[before.target]
    old_bias = before.args[at_bias] if len(before.args) > at_bias else None
    given = (before.args[at_weight], mean, variance, old_bias, scale, shift)
    tensors = [_held(gm, part) for part in given]
    if any(part is not None and t is None for part, t in zip(given, tensors, strict=True)):
        return False
    if tensors[0] is None or tensors[1] is None or tensors[2] is None:
        return False
    weight, bias = folded(tensors[0], tensors[1], tensors[2], *tensors[3:], eps=eps)
    with gm.graph.inserting_before(before):
        new = [_constant(gm, before, "weight", weight), _constant(gm, before, "bias", bias)]
    arguments = list(before.args)
    arguments[at_weight : at_bias + 1] = new
    before.args = tuple(arguments)
    norm.replace_all_uses_with(before)
    gm.graph.erase_node(norm)
    return True


def folded(
    weight: Tensor,
    mean: Tensor,
    variance: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
    *,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Weight and bias of the map that does both; formed in float64 and rounded once."""
    factor = torch.rsqrt(variance.double() + eps)
    if scale is not None:
        factor = factor * scale.double()
    moved = -mean.double() if bias is None else bias.double() - mean.double()
    total = moved * factor if shift is None else moved * factor + shift.double()
    shape = (-1, *(1 for _ in weight.shape[1:]))
    kind = weight.dtype
    return (weight.double() * factor.reshape(shape)).to(kind), total.to(kind)


def _held(gm: fx.GraphModule, part: Any) -> Tensor | None:
    """The parameter or buffer that a node reads."""
    if not isinstance(part, fx.Node) or part.op != "get_attr":
        return None
    value: Any = gm
    for name in str(part.target).split("."):
        value = getattr(value, name, None)
    return value.detach() if isinstance(value, Tensor) else None


def _constant(gm: fx.GraphModule, near: fx.Node, kind: str, value: Tensor) -> fx.Node:
    name = f"_frozen_{near.name}_{kind}"
    gm.register_buffer(name, value)
    node = gm.graph.get_attr(name)
    node.meta = {k: v for k, v in near.meta.items() if k == "stack_trace"}
    fake = near.meta.get("val")
    mode = getattr(fake, "fake_mode", None)
    node.meta["val"] = mode.from_tensor(value) if mode is not None else value
    return node
