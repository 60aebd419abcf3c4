"""Combine steps of reductions: extremes, products, positions of extremes, softmax in one pass.

In: two partial results. Out: Triton tensors of the same shape. Invariant: their combination, in
which NaN wins over numbers, and the smaller position over ties.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def maximum(a, b):
    """Larger operand; NaN if either is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """Smaller operand; NaN if either is NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def product(a, b):
    """Combine step of a product."""
    return a * b


@triton.jit
def _kept(beats, value, index, other, other_index):
    """Which pair a combine step keeps: NaN beats numbers, ties go to the smaller index."""
    value_nan = value != value
    better = beats | (value_nan & (other == other))
    equal = (value == other) | (value_nan & (other != other))
    keep = better | (equal & (index < other_index))
    return tl.where(keep, value, other), tl.where(keep, index, other_index)


@triton.jit
def argmax_step(value, index, other, other_index):
    """Combine step: the larger value wins."""
    return _kept(value > other, value, index, other, other_index)


@triton.jit
def argmin_step(value, index, other, other_index):
    """Combine step: the smaller value wins."""
    return _kept(value < other, value, index, other, other_index)


LOWEST = tl.constexpr(-3.4028234663852886e38)
"""The least finite number of float32: what a lane of `online_sum` begins with."""


@triton.jit
def online_sum(top, total, value):
    """The larger of `top`, which is not -inf, and `value`, and `total` below that one."""
    higher = maximum(top, value)
    kept = total * tl.exp2((top - higher) * 1.4426950408889634)
    return higher, kept + tl.exp2((value - higher) * 1.4426950408889634)


@triton.jit
def online_share(top, total, highest):
    """What a lane's `total` below its own `top` is below `highest`; NaN where that is infinite."""
    return total * tl.exp2((top - highest) * 1.4426950408889634)


@triton.jit
def online_result(total, highest):
    """The maximum and the sum of a row: -inf and NaN where nothing was larger than -inf."""
    nothing = total == 0
    return tl.where(nothing, float("-inf"), highest), tl.where(nothing, float("nan"), total)
