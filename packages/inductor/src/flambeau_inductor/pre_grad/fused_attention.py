"""Attention that a program writes out, as the library's fused kernels.

In: a captured graph of torch functions, before autograd is traced. Out: the same graph, in which
`softmax(q @ k^T * scale) @ v` is a function of ours. Invariant: only where nobody else needs the
scores or the weights, without dropout, for operands that the kernels take, and
where one of them needs a gradient or the mask is causal (other graphs without gradients are
rewritten as primitives, where the graph itself can show more: `passes.attention`).

Traced as it stands, such a program in training keeps the weights of every pair of positions for its
backward; the fused kernels keep a number a row. Of masks only the causal one is taken, whatever the
graph makes it of, if that is constants (`passes.constant_masks` computes it): a row that sees
nothing is NaN by the formula and zero by the kernels. A number of at most `LOWEST` in the place of
-inf hides as well, for each row sees a key.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from flambeau_inductor.pre_grad.constant_masks import constants, hides_later
from flambeau_inductor.pre_grad.unused import erase_unused
from flambeau_inductor.runtime.fused_attention import DTYPES, attended, takes

LEAST_LENGTH = 16
"""Fewer keys than this are not worth the kernel's start."""

LOWEST = -1e30
"""Scores are numbers far above this, and their powers, less one of these, are zero."""
Target = str | Callable[..., Any]
Known = Callable[[], Mapping[fx.Node, Tensor]]
"""The nodes that are the same at every call, and what they are."""

PRODUCTS: frozenset[Target] = frozenset(
    {torch.matmul, operator.matmul, torch.bmm, "matmul", "bmm", "__matmul__"}
)
SOFTMAX: frozenset[Target] = frozenset({F.softmax, torch.softmax, "softmax"})
MULTIPLY: frozenset[Target] = frozenset({operator.mul, torch.mul, "mul"})
DIVIDE: frozenset[Target] = frozenset({operator.truediv, torch.div, torch.true_divide, "div"})
ADD: frozenset[Target] = frozenset({operator.add, torch.add, "add"})
FILL: frozenset[Target] = frozenset({"masked_fill", torch.masked_fill})
WHERE: frozenset[Target] = frozenset({torch.where})
CASTS: frozenset[Target] = frozenset({"to", "float", "half", "bfloat16", "type_as"})


def fuse_attention(gm: fx.GraphModule, devices: tuple[str, ...] = ("cuda",)) -> int:
    """Rewrite every one on these devices; how many were."""
    if torch.are_deterministic_algorithms_enabled():
        return 0
    if any("autocast" in str(node.target) for node in gm.graph.nodes):
        return 0  # what is written down is not the dtype that is computed in

    @cache
    def known() -> Mapping[fx.Node, Tensor]:
        with torch.device("cpu"), torch.no_grad():
            return constants(gm.graph.nodes)

    fused = sum(_fused(gm.graph, node, known, devices) for node in list(gm.graph.nodes))
    if fused:
        gm.recompile()
    return fused


def _fused(graph: fx.Graph, last: fx.Node, known: Known, devices: tuple[str, ...]) -> bool:
    outer = _product(last)
    if outer is None or outer[2]:
        return False
    weights, v, _ = outer
    inside: list[fx.Node] = []
    node = _through(weights, inside)
    if not calls(node, SOFTMAX) or not _along_rows(node):
        return False
    inside.append(node)
    scale, causal, node = 1.0, False, _through(node.args[0], inside)
    while (inner := _product(node)) is None:
        factor, source = _factor(node), None
        if factor is not None:
            scale, source = scale * factor, node.args[0]
        elif not causal:
            source = _masked(node, known, finite=scale == 1.0)
            causal = source is not None
        if source is None:
            return False
        inside.append(node)
        node = _through(source, inside)
    if not 0 < scale < math.inf:
        return False
    inside.append(node)
    q, k, turned = inner
    if any(set(each.users) - {*inside, last} for each in inside):
        return False  # somebody else looks at the scores or the weights
    values = [_value(each) for each in (q, k, v, last)]
    if turned and isinstance(values[1], Tensor):
        values[1] = values[1].transpose(-2, -1)
    if not _fits(values, causal, devices):
        return False
    with graph.inserting_before(last):
        if turned:
            k = graph.call_method("transpose", (k, -2, -1))
            k.meta = dict(last.meta) | {"val": values[1]}
        made = graph.call_function(attended, (q, k, v, float(scale), causal))
    made.meta = dict(last.meta)
    last.replace_all_uses_with(made)
    graph.erase_node(last)
    erase_unused(inside)
    return True


def calls(node: Any, targets: frozenset[Target]) -> bool:
    """Whether a node calls one of these functions or methods."""
    if not isinstance(node, fx.Node) or node.op not in ("call_function", "call_method"):
        return False
    return node.target in targets


def _factor(node: Any) -> float | None:
    """The number that a node multiplies its operand by."""
    if not (calls(node, MULTIPLY) or calls(node, DIVIDE)):
        return None
    number = node.args[1] if len(node.args) == 2 and not node.kwargs else None
    if not isinstance(number, int | float) or number == 0 or not math.isfinite(number):
        return None
    return float(number) if node.target in MULTIPLY else 1 / number


def _masked(node: Any, known: Known, finite: bool) -> Any:
    """The scores of which a node hides those of later positions, by -inf or, if `finite`, by what
    is as good; None if it does something else."""
    if not isinstance(node, fx.Node) or node.kwargs:
        return None
    value = _value(node)
    size = value.shape[-1] if isinstance(value, Tensor) and value.dim() > 1 else 0
    if calls(node, FILL) and len(node.args) == 3:
        scores, mask, fill = node.args
        hidden = known().get(mask) if _hides(fill, known, finite) else None  # type: ignore[arg-type]
    elif calls(node, WHERE) and len(node.args) == 3:
        mask, scores, fill = node.args
        hidden = known().get(mask)  # type: ignore[arg-type]
        if _hides(fill, known, finite):
            hidden = None if hidden is None else ~hidden.bool()
        elif _hides(scores, known, finite):
            scores = fill
        else:
            return None
    elif calls(node, ADD) and len(node.args) == 2:
        scores, added = node.args
        hidden = _hidden(known().get(added), finite)  # type: ignore[arg-type]
        if hidden is None:
            scores, added = added, scores
            hidden = _hidden(known().get(added), finite)  # type: ignore[arg-type]
    else:
        return None
    if hidden is None or hidden.dtype != torch.bool or not hides_later(hidden, int(size)):
        return None
    seen = _value(scores)
    return scores if isinstance(seen, Tensor) and seen.shape == value.shape else None


def _hides(fill: Any, known: Known, finite: bool) -> bool:
    """Whether nothing of a score is left where it is replaced by this number."""
    if isinstance(fill, fx.Node):
        made = known().get(fill)
        fill = made.item() if made is not None and made.numel() == 1 else None
    if not isinstance(fill, int | float):
        return False
    return fill == -math.inf or (finite and fill <= LOWEST)


def _hidden(added: Tensor | None, finite: bool) -> Tensor | None:
    """Where a summand hides scores, if it does nothing else."""
    if added is None or not added.is_floating_point():
        return None
    hidden = (added <= LOWEST) if finite else (added == -math.inf)
    return hidden if bool((hidden | (added == 0)).all()) else None


def _product(node: Any) -> tuple[Any, Any, bool] | None:
    """The operands of a product in batches, and whether the second is turned in it."""
    if not isinstance(node, fx.Node) or node.kwargs:
        return None
    if calls(node, PRODUCTS) and len(node.args) == 2:
        return node.args[0], node.args[1], False
    if node.target is not torch.einsum or len(node.args) != 3 or not isinstance(node.args[0], str):
        return None
    terms = re.fullmatch(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)", node.args[0].replace(" ", ""))
    if terms is None:
        return None
    first, second, out = terms.groups()
    if len({*first, *second}) != len(out) + 1 or len(out) < 3:
        return None
    batch, row, column, inner = out[:-2], out[-2], out[-1], first[-1]
    if first != batch + row + inner or inner in out:
        return None
    turned = second == batch + column + inner
    return (*node.args[1:], turned) if turned or second == batch + inner + column else None


def _fits(values: list[Any], causal: bool, devices: tuple[str, ...]) -> bool:
    """Whether the kernels take queries, turned keys and values that give such a result."""
    if not all(isinstance(t, Tensor) for t in values):
        return False
    first, second, third, result = values
    if first.device.type not in devices or len({t.device for t in values}) != 1:
        return False
    if len({t.dtype for t in values}) != 1 or first.dtype not in DTYPES:
        return False
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in values[:3])
    if not learns and not causal:
        return False
    if any(not isinstance(n, int) for t in values for n in t.shape) or first.dim() not in (3, 4):
        return False
    if not result.is_contiguous():  # what is made is, for whoever looks at it through a view
        return False
    *batch, length, width = first.shape
    keys, out = third.shape[-2:]
    same = list(second.shape) == [*batch, width, keys] and list(third.shape) == [*batch, keys, out]
    if not same or list(result.shape) != [*batch, length, out]:
        return False
    if causal and length != keys:
        return False  # the mask was made for another number of rows
    return keys >= LEAST_LENGTH and 0 not in (*first.shape, out) and takes(first, width, out)


def _along_rows(node: fx.Node) -> bool:
    """Whether a softmax is over the last dimension, in a precision that the kernels have too."""
    value = _value(node)
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    wide = node.args[3] if len(node.args) > 3 else node.kwargs.get("dtype")
    if not isinstance(value, Tensor) or dim not in (-1, value.dim() - 1):
        return False
    known = {"dim", "dtype", "_stacklevel"}
    return wide in (None, *DTYPES) and not set(node.kwargs) - known


def _through(node: Any, inside: list[fx.Node]) -> Any:
    """What `node` is in another precision, or with a dropout that drops nothing."""
    while isinstance(node, fx.Node):
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or not (_casts(node, source) or _drops_nothing(node)):
            return node
        inside.append(node)
        node = source
    return node


def _casts(node: fx.Node, source: fx.Node) -> bool:
    if node.op != "call_method" or node.target not in CASTS:
        return False
    before, after = _value(source), _value(node)
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return False
    known = before.dtype in DTYPES and after.dtype in DTYPES
    return known and before.device == after.device


def _drops_nothing(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target is not F.dropout:
        return False
    settings = dict(zip(("p", "training", "inplace"), node.args[1:], strict=False)) | node.kwargs
    return bool(settings.get("p", 0.5) == 0.0 or settings.get("training", True) is False)


def _value(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, fx.Node) else node
