"""Random primitives: a seed drawn once from torch's generator, then numbers by counting.

In: a device, or a seed tensor. Out: see `flambeau_prims.philox`, which defines the numbers.
Invariant: only `seed` is impure; everything else is a function of its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flambeau_prims import philox
from flambeau_prims._op import define, flops_per_output, require
from flambeau_prims.layout import Size, TensorMeta, contiguous_strides
from flambeau_prims.ops.pointwise import FLOATS

_SEED_END = 2**63 - 1


def _seed_rule(*, device: torch.device) -> TensorMeta:
    return TensorMeta((), (), torch.int64, torch.device(device))


def _seed(*, device: torch.device) -> torch.Tensor:
    return torch.randint(_SEED_END, (), dtype=torch.int64, device=device)


seed = define(
    "seed(*, Device device) -> Tensor",
    rule=_seed_rule,
    eager=_seed,
    tags=("random", "creation"),
    doc="A fresh int64 drawn from the device's default generator, which it advances.",
)


def _philox_rule(
    shape: Sequence[Size],
    seed: TensorMeta,
    offset: int,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> TensorMeta:
    require(seed.dtype == torch.int64 and seed.ndim == 0, "philox: the seed is a 0-d int64")
    require(dtype in FLOATS, f"philox: not defined for {dtype}")
    require(offset >= 0, f"philox: offset {offset}")
    return TensorMeta(tuple(shape), contiguous_strides(shape), dtype, torch.device(device))


def _philox_uniform(
    shape: Sequence[int],
    seed: torch.Tensor,
    offset: int,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    return philox.uniform(shape, seed.to(device), offset, dtype)


def _philox_normal(
    shape: Sequence[int],
    seed: torch.Tensor,
    offset: int,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    return philox.normal(shape, seed.to(device), offset, dtype)


philox_uniform = define(
    "philox_uniform(SymInt[] shape, Tensor seed, int offset, *, ScalarType dtype, Device device)"
    " -> Tensor",
    rule=_philox_rule,
    eager=_philox_uniform,
    tags=("random", "creation"),
    doc="Uniform numbers in [0, 1) by Philox4x32-10, defined in `flambeau_prims.philox`.",
    flops=flops_per_output(20),
)

philox_normal = define(
    "philox_normal(SymInt[] shape, Tensor seed, int offset, *, ScalarType dtype, Device device)"
    " -> Tensor",
    rule=_philox_rule,
    eager=_philox_normal,
    tags=("random", "creation"),
    doc="Normal numbers (mean 0, variance 1) by Philox4x32-10 and Box-Muller.",
    flops=flops_per_output(40),
)
