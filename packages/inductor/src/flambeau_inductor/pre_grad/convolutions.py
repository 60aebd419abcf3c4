"""Batch norm folding into weights, and convolution biases as additions.

In: a captured graph of torch functions. Out: the same graph: frozen inference batch norms are part
of the weights before them, and convolutions on a GPU have no bias. Invariant: weights are only read
where gradients are off, once, now (what `freezing` means); a GPU's library adds a bias to the
rounded result in a kernel of its own, so that a separate addition keeps values and dtypes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from flambeau_inductor.node_queries import erase_unused, op_of, val_of
from flambeau_inductor.passes.rewriter import Call, Ledger, Match, Rule, Value, ops, rewrite

LINEAR = ("conv1d", "conv2d", "conv3d", "linear")
"""Maps whose second and third arguments are weight and bias."""

NORMS: dict[Any, tuple[int, tuple[int, ...]]] = {
    torch.nn.functional.batch_norm: (8, (1, 2, 3, 4, 5, 7)),
    torch.batch_norm: (9, (3, 4, 1, 2, 5, 7)),
}
"""Function: how many arguments it takes by position, and where among them are mean, variance,
weight, bias, whether it is training, and eps."""

_MAP = Call(frozenset(LINEAR), (Value(), Value()), lambda node: not node.kwargs, "map")


def fold_batch_norms(gm: fx.GraphModule, ledger: Ledger | None = None) -> int:
    """Fold what can be folded; how many were. Nothing is done where gradients are on."""
    if torch.is_grad_enabled():
        return 0
    norm = ops.batch_norm(_MAP, where=lambda node: not node.kwargs)
    done = rewrite(gm.graph, (Rule("fold_batch_norms", (norm,), partial(_folded, gm)),), ledger)
    if done:
        erase_unused(gm.graph.find_nodes(op="get_attr"))
        gm.recompile()
    return done


def _folded(gm: fx.GraphModule, m: Match) -> fx.Node | None:
    norm, before = m.root, m["map"]
    count, places = NORMS.get(norm.target, (0, ()))
    if len(norm.args) != count:
        return None
    mean, variance, scale, shift, training, eps = (norm.args[place] for place in places)
    if training or not isinstance(eps, float):
        return None
    image, weight, bias, *settings = (*before.args, None)[: max(len(before.args), 3)]
    given = (weight, mean, variance, bias, scale, shift)
    read = [_read_parameter(gm, part) for part in given]
    if any(part is not None and t is None for part, t in zip(given, read, strict=True)):
        return None
    if None in given[:3]:
        return None
    made = folded(*read, eps=eps)  # type: ignore[arg-type]
    with gm.graph.inserting_before(before):
        kinds = zip(("weight", "bias"), made, strict=True)
        new = [_constant(gm, before, kind, held) for kind, held in kinds]
        return gm.graph.call_function(before.target, (image, *new, *settings))


def folded(
    weight: Tensor, mean: Tensor, variance: Tensor, *affine: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Weight and bias of the map that does both; formed in float64 and rounded once. `affine`: the
    map's bias, the norm's weight and bias."""
    bias, scale, shift = affine
    factor = torch.rsqrt(variance.double() + eps)
    if scale is not None:
        factor = factor * scale.double()
    moved = -mean.double() if bias is None else bias.double() - mean.double()
    total = moved * factor if shift is None else moved * factor + shift.double()
    shape = (-1, *(1 for _ in weight.shape[1:]))
    kind = weight.dtype
    return (weight.double() * factor.reshape(shape)).to(kind), total.to(kind)


def _read_parameter(gm: fx.GraphModule, part: Any) -> Tensor | None:
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


CONVOLUTIONS = {f"{kind}{dims}d": dims for kind in ("conv", "conv_transpose") for dims in (1, 2, 3)}
"""Function: how many dimensions follow the channels."""


def _separate_bias(m: Match) -> fx.Node | None:
    made, bias, column = val_of(m.root), val_of(m["bias"]), m["bias"]
    if not isinstance(made, Tensor) or not isinstance(bias, Tensor):
        return None
    if made.device.type != "cuda" or not made.is_floating_point():
        return None
    if bias.dtype != made.dtype:  # as under autocast
        column = m.call("to", column, made.dtype)
    column = m.call("view", column, -1, *(1,) * CONVOLUTIONS[op_of(m.root) or ""])
    image, weight, _, *settings = m.root.args
    bare = m.call(m.root.target, image, weight, None, *settings, **m.root.kwargs)
    bare.meta = dict(m.root.meta)
    return m.call(torch.add, bare, column)


_OPERANDS = (Value(), Value(), Value("bias"))
_CONVOLUTION = Call(frozenset(CONVOLUTIONS), _OPERANDS, lambda node: True)
RULES = (Rule("separate_convolution_biases", (_CONVOLUTION,), _separate_bias),)
