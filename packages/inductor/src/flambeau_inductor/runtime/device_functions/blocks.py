"""Whole-block operations for loops in device functions.

In: Triton tensors, or single numbers. Out: one bool, or a tensor of the common shape. Invariant: of
a single number the answer is that number's.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def some(condition):
    """Whether it holds anywhere in the block."""
    if len(condition.shape) == 0:
        return condition
    else:
        return tl.max(condition.to(tl.int32), axis=None) != 0


@triton.jit
def like(x, y):
    """`x` in the shape that both have together: what a loop carries keeps its shape, and a constant
    is a block of one."""
    wide, _ = tl.broadcast(x, y)
    return wide
