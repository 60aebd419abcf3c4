"""Scores of attention in any spelling: a product times numbers, with a bias, partly hidden.

In: the steps by which scores were made of a product, as the rewriter found them. Out: `Scores`, and
what a mask or bias is known to do. Invariant: what the graph does not show is not assumed: a bias
is finite by the intervals of its operands, or by its value. (Fused kernels give 0 for a row in
which every score is -inf, where the formula gives NaN.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from flambeau_inductor.node_queries import dtype_of, op_of
from flambeau_inductor.passes.constants import Constants
from flambeau_inductor.passes.rewriter import (
    REST,
    Look,
    Match,
    NumberPattern,
    Pattern,
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
