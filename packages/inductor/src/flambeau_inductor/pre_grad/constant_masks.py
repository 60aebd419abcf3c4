"""Masks of attention that are the same at every call, as what the fused kernels are told of them.

In: a captured graph of torch functions, on fake tensors. Out: the same graph, in which a mask that
hides nothing is not passed, and one that hides exactly what comes later is `is_causal`. Invariant:
only masks that the graph makes out of constants of its own, which are computed here, on the
processor; whatever else may write them leaves them as they are.

Models make their masks at every call, of positions, also where nothing is padded. A mask that was
expanded along its keys, as one is that hides nothing, is refused by all of the library's fused
kernels (their masks have keys side by side): torch then multiplies in float32 and keeps the weights
of every pair of positions for the backward. MiniLM in training, 16 x 128 tokens on an H200: 36
products in float32 that took 406 of 2680 us, and 72 MiB of weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves

from flambeau_inductor.pre_grad.unused import erase_unused

MOST_ELEMENTS = 1 << 26
"""Larger constants are not computed."""

LIKE = frozenset({"full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"})
"""Makers that look at their first operand's shape, dtype and device alone."""

MAKERS = "arange full ones tensor zeros"
SHAPES = (
    "broadcast_to cat clone contiguous detach expand expand_as flatten getitem index_select permute"
    " repeat reshape squeeze stack t transpose tril triu unsqueeze view view_as"
)
CASTS = "bool float half bfloat16 int long to type type_as"
LOGIC = (
    "and_ or_ xor invert not_ logical_and logical_not logical_or logical_xor bitwise_and"
    " bitwise_not bitwise_or bitwise_xor eq ge gt le lt ne where masked_fill"
)
NUMBERS = (
    "abs add clamp cumsum diff floordiv maximum minimum mod mul neg pos remainder rsub sub"
    " truediv div"
)
IN_PLACE = "iadd isub imul iand ior ixor"
KNOWN = LIKE | frozenset(f"{MAKERS} {SHAPES} {CASTS} {LOGIC} {NUMBERS} {IN_PLACE}".split())
"""Functions and methods that are computed here: none draws, and none looks beyond its operands."""

UNKNOWN = "?"
WRITES = frozenset(f"{IN_PLACE} setitem itruediv ifloordiv ipow imod imatmul delitem".split())


def drop_constant_masks(gm: fx.GraphModule, devices: tuple[str, ...] = ("cuda",)) -> int:
    """Rewrite every call of attention on these devices whose mask is known; how many were."""
    if torch.are_deterministic_algorithms_enabled():
        return 0
    calls = [node for node in gm.graph.nodes if _masked(node, devices)]
    if not calls:
        return 0
    with torch.device("cpu"), torch.no_grad():
        known = constants(gm.graph.nodes)
    done = sum(_told(node, known) for node in calls)
    if done:
        erase_unused([node for node in known if _name(node) not in WRITES])
        gm.recompile()
    return done


def _masked(node: fx.Node, devices: tuple[str, ...]) -> bool:
    """Whether it is a call with a mask that may be looked at."""
    if node.op != "call_function" or node.target is not F.scaled_dot_product_attention:
        return False
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value.device.type not in devices:
        return False
    causal = node.args[5] if len(node.args) > 5 else node.kwargs.get("is_causal", False)
    return causal is False and isinstance(_mask(node), fx.Node)


def _mask(node: fx.Node) -> Any:
    return node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")


def _told(node: fx.Node, known: dict[fx.Node, Tensor]) -> bool:
    """Let attention do without its mask, if that says the same."""
    mask = known.get(_mask(node))
    if mask is None or mask.dim() < 2:
        return False
    queries, keys = (node.args[at].meta["val"].shape[-2] for at in (0, 1))  # type: ignore[union-attr]
    hidden = _hidden(once(mask))
    if hidden is None:
        return False
    if hidden.any():
        if mask.shape[-2:] != (queries, keys) or not hides_later(hidden, queries):
            return False
        node.kwargs = {k: v for k, v in node.kwargs.items() if k != "is_causal"}
        if len(node.args) > 5:
            node.args = (*node.args[:5], True, *node.args[6:])
        else:
            node.kwargs = node.kwargs | {"is_causal": True}
    if len(node.args) > 3:
        node.args = (*node.args[:3], None, *node.args[4:])
    else:
        node.kwargs = node.kwargs | {"attn_mask": None}
    return True


def hides_later(hidden: Tensor, size: int) -> bool:
    """Whether column j of row i, of `size` each, is hidden exactly where j > i."""
    if hidden.shape[-2:] != (size, size):
        return False
    return bool((once(hidden) == torch.ones(size, size, dtype=torch.bool).triu(1)).all())


def once(mask: Tensor) -> Tensor:
    """The mask without what is repeated in its outer dimensions."""
    for dim in range(mask.dim() - 2):
        if mask.stride(dim) == 0 and mask.shape[dim] > 1:
            mask = mask.narrow(dim, 0, 1)
    return mask


def _hidden(mask: Tensor) -> Tensor | None:
    """What a mask hides; None if it does more than that."""
    if mask.dtype == torch.bool:
        return ~mask
    if not mask.is_floating_point():
        return None
    hidden = mask <= torch.finfo(mask.dtype).min
    return hidden if bool(((mask == 0) | hidden).all()) else None


def constants(nodes: Iterable[fx.Node]) -> dict[fx.Node, Tensor]:
    """The nodes that are the same at every call, and what they are; none where something that is
    not known might write one of them."""
    known: dict[fx.Node, Any] = {}
    for node in nodes:
        if node.op not in ("call_function", "call_method"):
            continue
        if _computable(node, known):
            made = _computed(node, known)
            if made is not None:
                known[node] = made
                continue
        if _writes(node) and any(part in known for part in node.all_input_nodes):
            return {}
    return known


def _computable(node: fx.Node, known: dict[fx.Node, Any]) -> bool:
    """Whether it is one of the known functions, of constants alone."""
    if _name(node) not in KNOWN or "out" in node.kwargs:
        return False
    if any(part not in known and not _alike(part, node) for part in node.all_input_nodes):
        return False
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or not all(isinstance(n, int) for n in value.shape):
        return False
    parts = tree_leaves((node.args, node.kwargs))
    plain = (fx.Node, int, float, bool, slice, torch.dtype, torch.device, type(None), type(...))
    return value.numel() <= MOST_ELEMENTS and all(isinstance(each, plain) for each in parts)


def _computed(node: fx.Node, known: dict[fx.Node, Any]) -> Tensor | None:
    """The value; None where the processor has no such function, or makes something else."""

    def given(part: Any) -> Any:
        if isinstance(part, torch.device):
            return torch.device("cpu")
        if isinstance(part, fx.Node) and part not in known:
            model = part.meta["val"]
            return torch.empty((), dtype=model.dtype).expand(model.shape)
        return known[part] if isinstance(part, fx.Node) else part

    args, kwargs = map_aggregate((node.args, node.kwargs), given)
    try:
        if node.op == "call_method":
            made = getattr(args[0], str(node.target))(*args[1:], **kwargs)
        else:
            made = node.target(*args, **kwargs)  # type: ignore[operator]
    except (RuntimeError, TypeError):
        return None  # it is not known then, and nothing is done
    value = node.meta["val"]
    if type(made) is not Tensor or made.shape != value.shape or made.dtype != value.dtype:
        return None
    return made


def _alike(part: fx.Node, node: fx.Node) -> bool:
    """Whether `node` makes something like `part`, whose values do not matter."""
    value = part.meta.get("val")
    if _name(node) not in LIKE or not isinstance(value, Tensor) or node.args[:1] != (part,):
        return False
    return all(isinstance(n, int) for n in value.shape) and part not in node.args[1:]


def _name(node: fx.Node) -> str:
    """Of a method, or of a function of torch or of the operators."""
    if node.op == "call_method":
        return str(node.target)
    module = str(getattr(node.target, "__module__", None) or "torch")
    ours = module in ("torch", "_operator") or module.startswith("torch.")
    known = ours and not module.startswith("torch.ops")
    return str(getattr(node.target, "__name__", UNKNOWN)) if known else UNKNOWN


def _writes(node: fx.Node) -> bool:
    """Whether it may write an operand: functions of others might."""
    name = _name(node)
    if name in KNOWN - WRITES and "out" not in node.kwargs:
        return False
    return name == UNKNOWN or name.endswith("_") or name in WRITES or "out" in node.kwargs
