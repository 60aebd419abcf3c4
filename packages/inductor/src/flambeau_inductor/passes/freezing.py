"""Weight folding: inference batch norms folded into the weights before them.

In: a captured graph of torch functions whose parameters are `get_attr` nodes. Out: the same graph
with fewer of them. Invariant: only where gradients are off and every statistic and weight is a
parameter or buffer of the graph; they are read once, now: who changes them later does not change
what was compiled (that is what `freezing` means).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from flambeau_inductor.passes.match import erase_unused
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
    tensors = [_read_parameter(gm, part) for part in given]
    if any(part is not None and t is None for part, t in zip(given, tensors, strict=True)):
        return None
    if tensors[0] is None or tensors[1] is None or tensors[2] is None:
        return None
    made = folded(tensors[0], tensors[1], tensors[2], *tensors[3:], eps=eps)
    with gm.graph.inserting_before(before):
        kinds = zip(("weight", "bias"), made, strict=True)
        new = [_constant(gm, before, kind, held) for kind, held in kinds]
        return gm.graph.call_function(before.target, (image, *new, *settings))


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


def _read_parameter(gm: fx.GraphModule, part: Any) -> Tensor | None:
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
