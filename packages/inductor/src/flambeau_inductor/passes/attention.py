"""Pattern matching of written-out attention.

In: `softmax(q @ k^T * scale + bias) @ v` in primitives, products in batches. Out:
`attention(q, k, v, bias)`. Invariant: only where nobody else needs the scores or the weights, and
only what the primitive computes by the same formula: a bias is finite, or hides no row; scores are
replaced by what is so low that no score changes it.

Scores of attention in any spelling: a product times numbers, with a bias, partly hidden. In: the
steps by which scores were made of a product, as the rewriter found them. Out: `Scores`, and what a
mask or bias is known to do. Invariant: what the graph does not show is not assumed: a bias is
finite by the intervals of its operands, or by its value. (Fused kernels give 0 for a row in which
every score is -inf, where the formula gives NaN.)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from flambeau_prims import PRIMS
from torch import Tensor, fx

from flambeau_inductor.ir.nodes import name_of
from flambeau_inductor.node_queries import dtype_of, op_of, static_shape, val_of
from flambeau_inductor.passes.constants import Constants
from flambeau_inductor.passes.rewriter import (
    REST,
    Call,
    Look,
    Match,
    Named,
    NumberPattern,
    Pattern,
    Rule,
    Seen,
    Value,
    ops,
)

HALF = (torch.bfloat16, torch.float16)
DTYPES = (*HALF, torch.float32)
LEAST_LENGTH = 16
"""Fewer keys than this are not worth a kernel's start."""
LOWEST = -1e30
"""Scores are numbers far above this: added to one, or in its place, it gives itself, and powers of
it are zero."""

_MASK, _LOW = Value("mask"), NumberPattern("low")
STEPS: tuple[tuple[str, Pattern], ...] = (
    ("times", ops.mul(REST, NumberPattern("number"))),
    ("over", ops.div(REST, NumberPattern("number"))),
    ("hide", ops.masked_fill(REST, _MASK, _LOW)),
    ("hide", ops.where(_MASK, _LOW, REST)),
    ("show", ops.where(_MASK, REST, _LOW)),
    ("bias", ops.add(REST, Value("bias"))),
)


def scores(product: Pattern, through: Look) -> Seen:
    """Scores that are made of such a product."""
    return Seen(product, through, STEPS)


@dataclass(frozen=True, slots=True)
class Hidden:
    """`low` is in the place of scores where the mask holds, or does not if it is `seen`."""

    mask: fx.Node
    low: float
    seen: bool

    def by_value(self, constants: Constants) -> Tensor | None:
        """Where scores are hidden, if that is the same at every call."""
        found = constants.of(self.mask)
        return None if found is None else found.bool() != self.seen


@dataclass(frozen=True, slots=True)
class Scores:
    """Products times `scale`, plus a bias; some of them replaced. `scaled`: the sum is scaled too,
    so that a bias can only hide, by -inf."""

    scale: float
    bias: fx.Node | None
    hidden: Hidden | None
    scaled: bool = False

    def later(self, constants: Constants, rows: int, keys: int) -> bool:
        """Whether, of as many rows as keys, exactly those that come later are hidden."""
        if self.bias is None:
            found = None if self.hidden is None else self.hidden.by_value(constants)
        elif self.hidden is not None:
            return False
        else:
            found = hidden_by(constants.of(self.bias), -math.inf if self.scaled else LOWEST)
        return hides_later(found, rows, keys)


def scores_of(match: Match) -> Scores | None:
    """What the steps of a match come to, the outermost first; None if it is something else."""
    scale, bias, hidden, scaled = 1.0, None, None, False
    for kind, met in match["steps"]:
        if kind in ("times", "over"):
            number = met["number"]
            if number == 0 or not math.isfinite(number):
                return None
            scale = scale * number if kind == "times" else scale / number
        elif bias is not None or not 0 < scale < math.inf:
            return None
        elif kind == "bias":
            bias, scaled = met["bias"], scale != 1.0
        else:
            low = met["low"]
            if hidden is not None or not (low == -math.inf or (low <= LOWEST and scale == 1.0)):
                return None
            hidden = Hidden(met["mask"], low, kind == "show")
    return Scores(scale, bias, hidden, scaled) if 0 < scale < math.inf else None


# --- masks that are the same at every call ----------------------------------------------------


def hidden_by(bias: Tensor | None, lowest: float = LOWEST) -> Tensor | None:
    """Where a constant bias hides scores, if it does nothing else."""
    if bias is None or not bias.is_floating_point():
        return None
    hidden = bias <= lowest
    return hidden if bool((hidden | (bias == 0)).all()) else None


def hides_later(hidden: Tensor | None, rows: int, keys: int) -> bool:
    """Whether column j of row i is hidden exactly where j > i, of as many rows as columns."""
    if hidden is None or rows != keys or hidden.shape[-2:] != (rows, keys):
        return False
    for dim in range(hidden.dim() - 2):
        if hidden.stride(dim) == 0 and hidden.shape[dim] > 1:
            hidden = hidden.narrow(dim, 0, 1)  # it is repeated
    return bool((hidden == torch.ones(rows, keys, dtype=torch.bool).triu(1)).all())


def every_row_sees(hidden: Tensor | None) -> bool:
    """Whether a constant mask leaves every row of scores a key."""
    return hidden is not None and bool((~hidden).any(-1).all())


def finite_rows(bias: Tensor | None) -> bool:
    """Whether a constant bias hides no row and is else numbers."""
    if bias is None or not bias.is_floating_point():
        return False
    numbers = bias.isfinite()
    return bool((numbers | (bias == -math.inf)).all() and numbers.any(-1).all())


# --- intervals --------------------------------------------------------------------------------

Interval = tuple[float, float]
ANYTHING = (-math.inf, math.inf)


def _hull(*parts: Interval) -> Interval:
    return min(low for low, _ in parts), max(high for _, high in parts)


def _product(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


INTERVALS: Mapping[str, Callable[..., Interval]] = {
    **dict.fromkeys(
        ["broadcast_in_dim", "reshape", "permute", "slice", "cat", "clone", "cast", "device_put"],
        _hull,
    ),
    "where": lambda _, *parts: _hull(*parts),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0.0, max(map(abs, a))),
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
}
"""Primitive: where its results are, by where its operands are."""


def interval(node: fx.Node, known: dict[fx.Node, Interval] | None = None) -> Interval:
    """Bounds of all elements of a primitive's result; both are finite, or nothing is known."""
    known = {} if known is None else known
    if node not in known:
        dtype, name = dtype_of(node), op_of(node) or ""
        if dtype is None:
            return ANYTHING
        whole = not dtype.is_floating_point
        least, most = _limits(dtype)
        made = (least, most) if whole else ANYTHING
        if name == "full" and isinstance(node.args[1], int | float):
            made = (float(node.args[1]),) * 2
        elif name in INTERVALS:
            parts = [interval(part, known) for part in node.all_input_nodes]
            if all(math.isfinite(end) for part in parts for end in part):
                made = INTERVALS[name](*_operands(node, parts))
        held = least <= made[0] and made[1] <= most
        known[node] = made if held else (least, most) if whole else ANYTHING
    return known[node]


def _operands(node: fx.Node, parts: list[Interval]) -> list[Interval]:
    """The intervals of the operands as they are written: one may occur twice."""
    places: dict[Any, Interval] = dict(zip(node.all_input_nodes, parts, strict=True))
    flat = node.args[0] if isinstance(node.args[0], list | tuple) else node.args
    return [places[part] for part in flat if isinstance(part, fx.Node)]


def _limits(dtype: torch.dtype) -> Interval:
    if dtype == torch.bool:
        return 0.0, 1.0
    info: Any = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return float(info.min), float(info.max)


def is_finite(bias: fx.Node) -> bool:
    """Whether the graph shows that no element of a bias is infinite or NaN."""
    return math.isfinite(interval(bias)[0])


CUDA_WIDTHS = 8
"""The kernel on a GPU reads so many elements at a time."""


def _shows(node: fx.Node) -> Sequence[fx.Node] | None:
    """The nodes by which a matrix of scores is seen in other shapes or another precision."""
    name, source = name_of(node), node.args[0]
    if not isinstance(source, fx.Node):
        return None
    if name == "cast":
        return (node,) if {dtype_of(node), dtype_of(source)} <= {*DTYPES} else None
    if name == "permute":
        return _inverse_permutations(node)
    shapes = static_shape(node), static_shape(source)
    if name not in ("reshape", "broadcast_in_dim") or None in shapes:
        return None
    new, old = ([n for n in shape or () if n != 1] for shape in shapes)
    return (node,) if new[-2:] == old[-2:] and math.prod(new) == math.prod(old) else None


def _inverse_permutations(node: fx.Node) -> list[fx.Node] | None:
    """Permutations that together leave the order of all dimensions longer than one."""
    found: list[fx.Node] = []
    order = list(range(len(static_shape(node) or ())))
    while name_of(node) == "permute":
        source, step, shape = node.args[0], node.args[1], static_shape(node.args[0])
        if not isinstance(source, fx.Node) or not isinstance(step, Sequence) or shape is None:
            return None
        order = [int(str(step[d])) for d in order]
        found.append(node)
        long = [d for d in order if shape[d] != 1]
        if long == sorted(long):
            return found
        node = source
    return None


def _row(reduction: str, of: Pattern) -> Pattern:
    """A reduction along the last dimension, as it is repeated there."""

    def is_last(node: fx.Node) -> bool:
        return list(node.args[1]) == [len(static_shape(node.args[0]) or ()) - 1]  # type: ignore[arg-type]

    def is_repeated(node: fx.Node) -> bool:
        return list(node.args[2]) == list(range(len(static_shape(node) or ()) - 1))  # type: ignore[arg-type]

    made = getattr(ops, reduction)(of, where=is_last)
    return Call(frozenset({"broadcast_in_dim"}), (made,), is_repeated)


_LOGITS = Named("logits", scores(ops.bmm(Value("q"), Value("k")), _shows))
_POWERS = Named("powers", ops.exp(_LOGITS - _row("amax", _LOGITS)))
_WEIGHTS = _POWERS / _row("sum", _POWERS)


def _attention(m: Match) -> fx.Node | None:
    q, k, v, last = m["q"], m["k"], m["v"], m.root
    found, shape = scores_of(m), static_shape(m["logits"])
    sizes = [static_shape(x) for x in (q, k, v)]
    dtype = dtype_of(q)
    if found is None or shape is None or None in sizes or len(shape) < 3:
        return None
    if dtype is None or {dtype_of(x) for x in (k, v, last)} != {dtype} or dtype not in DTYPES:
        return None
    (batch, length, width), (_, _, keys), (_, _, out) = (s for s in sizes if s is not None)
    outer = (math.prod(shape[:-3]), shape[-3]) if len(shape) > 3 else (batch, 1)
    if math.prod(outer) != batch or shape[-2:] != (length, keys) or keys < LEAST_LENGTH:
        return None
    if val_of(q).device.type == "cuda" and (width % CUDA_WIDTHS or out % CUDA_WIDTHS):
        return None
    added = _added(m, found, shape, dtype)
    if added is None:
        return None
    bias, causal = added
    prim = {name: PRIMS[name].overload for name in ("reshape", "permute", "attention")}
    turned = m.call(prim["reshape"], k, [*outer, width, keys])
    if bias is not None and len(shape) != 4:
        bias = m.call(prim["reshape"], bias, [*outer, length, keys])
    attended = m.call(
        prim["attention"],
        m.call(prim["reshape"], q, [*outer, length, width]),
        m.call(prim["permute"], turned, [0, 1, 3, 2]),
        m.call(prim["reshape"], v, [*outer, keys, out]),
        bias,
        0.0,
        causal,
        scale=found.scale,
    )
    return m.call(prim["reshape"], m.call(operator.getitem, attended, 0), [batch, length, out])


def _added(
    m: Match, found: Scores, shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[fx.Node | None, bool] | None:
    """The bias of scores in the dtype of the product, and whether later ones are hidden."""
    bias, hidden, constants = found.bias, found.hidden, m.constants
    if found.later(constants, *shape[-2:]) and (hidden is None or _fits(hidden, dtype)):
        return None, True
    if bias is not None:
        if name_of(bias) == "cast" and isinstance(bias.args[0], fx.Node):
            bias = bias.args[0]
        if dtype_of(bias) != dtype or static_shape(bias) != shape or found.scaled:
            return None
        if not is_finite(bias) and not finite_rows(constants.of(bias)):
            return None
    if hidden is None:
        return bias, False
    if static_shape(hidden.mask) != shape or not _fits(hidden, dtype):
        return None
    if hidden.low == -math.inf and not every_row_sees(hidden.by_value(constants)):
        return None
    like = {"dtype": dtype, "device": val_of(m["q"]).device}
    low = hidden.low if math.isinf(hidden.low) else max(hidden.low, torch.finfo(dtype).min)
    full = partial(m.call, PRIMS["full"].overload, list(shape))
    replaced = full(low, **like)
    kept = full(0.0, **like) if bias is None else bias
    pair = (kept, replaced) if hidden.seen else (replaced, kept)
    return m.call(PRIMS["where"].overload, hidden.mask, *pair), False


def _fits(hidden: Hidden, dtype: torch.dtype) -> bool:
    """Whether what is in the place of scores hides them in this precision."""
    return hidden.low == -math.inf or torch.finfo(dtype).min <= LOWEST


RULES = (Rule("written_out_attention", (ops.bmm(Seen(_WEIGHTS, _shows), Value("v")),), _attention),)
