"""Random numbers by Philox, as functions of a seed and a position.

In: a seed, positions. Out: Triton tensors of the same shape. Invariant: those of
`flambeau_prims.philox`, bit for bit.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def philox_lane(seed, position):
    """Lane `position` mod 4 of Philox4x32-10's block with the counter `position` div 4 (64 bits
    both), as flambeau_prims.philox defines it."""
    counter = position >> 2
    low = (counter & 0xFFFFFFFF).to(tl.uint32)
    high = ((counter >> 32) & 0xFFFFFFFF).to(tl.uint32)
    zero = tl.zeros_like(low)
    a, b, c, d = tl.philox(seed, low, high, zero, zero, n_rounds=10)
    lane = position & 3
    return tl.where(lane < 2, tl.where(lane == 0, a, b), tl.where(lane == 2, c, d))


@triton.jit
def philox_uniform(seed, position, bits):
    """Uniform in [0, 1) with so many bits, in float32, exactly."""
    drawn = philox_lane(seed, position) >> (32 - bits)
    return drawn.to(tl.int32).to(tl.float32) * (1.0 / (1 << bits))


@triton.jit
def philox_bits(seed, position):
    """32 random bits."""
    return philox_lane(seed, position).to(tl.int32, bitcast=True)
