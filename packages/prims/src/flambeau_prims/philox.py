"""Counter-based random numbers (Philox), in integer tensor operations.

In: a shape, a 64-bit seed tensor, an offset. Out: random numbers; the same for the same arguments
on every device. Invariant: this file is the definition that compiled kernels must reproduce.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
- key: (seed mod 2^32, seed div 2^32), the seed read as an unsigned 64-bit number;
- element i of the row-major result reads lane i mod 4 of the block with 128-bit counter
  (c mod 2^32, c div 2^32, 0, 0), c = i div 4 + offset.
Uniform numbers in [0, 1), u being the 32-bit lane:
- float32: (u >> 8) * 2^-24;  float64: u * 2^-32;  float16: (u >> 21) * 2^-11;
  bfloat16: (u >> 24) * 2^-8.  Each is exact in its dtype.
Normal numbers by Box and Muller on lane pairs (0, 1) and (2, 3), u and v being the even and the
odd lane: r = sqrt(-2 ln(((u >> 8) + 1) * 2^-24)), t = 2 pi ((v >> 8) * 2^-24); the even lane gets
r cos t, the odd one r sin t, computed in float32 and converted. For float64 u and v are not
shifted, 2^-32 is the unit, and everything is computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

# dtype: (bits dropped from a lane, unit)
_UNIFORM = {
    torch.float16: (21, 2.0**-11),
    torch.bfloat16: (24, 2.0**-8),
    torch.float32: (8, 2.0**-24),
    torch.float64: (0, 2.0**-32),
}


def philox_blocks(seed: torch.Tensor, first: int, count: int) -> torch.Tensor:
    """Blocks first .. first+count-1 as int64 lanes below 2^32, shape [count, 4]."""
    # An int64 product of two 32-bit numbers wraps, but its 64 bits are those of the exact one.
    block = torch.arange(count, dtype=torch.int64, device=seed.device) + first
    c0, c1 = block & _MASK, (block >> 32) & _MASK
    c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0)
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((p1 >> 32) & _MASK) ^ c1 ^ k0,
            p1 & _MASK,
            ((p0 >> 32) & _MASK) ^ c3 ^ k1,
            p0 & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return torch.stack((c0, c1, c2, c3), dim=1)


def _lanes(shape: Sequence[int], seed: torch.Tensor, offset: int) -> tuple[torch.Tensor, int]:
    total = math.prod(shape)
    return philox_blocks(seed, offset, (total + 3) // 4), total


def uniform(
    shape: Sequence[int], seed: torch.Tensor, offset: int, dtype: torch.dtype
) -> torch.Tensor:
    """Uniform numbers in [0, 1), as defined above."""
    lanes, total = _lanes(shape, seed, offset)
    drop, unit = _UNIFORM[dtype]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return ((lanes.view(-1)[:total] >> drop).to(wide) * unit).to(dtype).view(tuple(shape))


def normal(
    shape: Sequence[int], seed: torch.Tensor, offset: int, dtype: torch.dtype
) -> torch.Tensor:
    """Normal numbers of mean 0 and variance 1, as defined above."""
    lanes, total = _lanes(shape, seed, offset)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    drop, unit = _UNIFORM[wide]
    pairs = (lanes.view(-1, 2, 2) >> drop).to(wide)
    radius = torch.sqrt(-2.0 * torch.log((pairs[..., 0] + 1.0) * unit))
    angle = pairs[..., 1] * (unit * 2.0 * math.pi)
    both = torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), dim=-1)
    return both.view(-1)[:total].to(dtype).view(tuple(shape))
