"""Creation and random primitives.

In: sizes and numbers; a device, or a seed tensor. Out: contiguous tensors; `flambeau_prims.philox`
defines the random numbers.
Invariant: dtype and device are always explicit; only `seed` is impure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from flambeau_prims import philox
from flambeau_prims._op import Rule, define, flops_per_output, primitive, require
from flambeau_prims.ops.pointwise import FLOATS
from flambeau_prims.shape_rules import Size, Sizes, TensorMeta, contiguous_strides


def _created(shape: Sizes, dtype: torch.dtype, device: torch.device) -> TensorMeta:
    return TensorMeta(tuple(shape), contiguous_strides(shape), dtype, torch.device(device))


def _full(
    shape: Sizes, value: complex, *, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    limits = torch.finfo(dtype) if dtype.is_floating_point and type(value) is float else None
    if limits is not None and not limits.min <= value <= limits.max:  # type: ignore[operator]
        return torch.full(tuple(shape), value, dtype=torch.float64, device=device).to(dtype)
    return torch.full(tuple(shape), value, dtype=dtype, device=device)


@primitive(
    "full(SymInt[] shape, Scalar value, *, ScalarType dtype, Device device) -> Tensor",
    _full,
    tags=("creation",),
    shape="`shape`, contiguous",
    edge_cases={"out of range": "a float is rounded; an integer is an error in eager"},
    source="constant tensor",
)
def full_(shape: Sizes, *, dtype: torch.dtype, device: torch.device) -> TensorMeta:
    """Every element is `value`."""
    require(all(size >= 0 for size in shape), f"shape {list(shape)}")
    return _created(shape, dtype, device)


def _iota(
    length: Size, start: float, step: float, *, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    if dtype.is_floating_point:
        positions = torch.arange(length, dtype=torch.float64, device=device)
        return (start + positions * step).to(dtype)
    positions = torch.arange(length, dtype=torch.int64, device=device)
    return (int(start) + positions * int(step)).to(dtype)


@primitive(
    "iota(SymInt length, Scalar start, Scalar step, *, ScalarType dtype, Device device) -> Tensor",
    _iota,
    tags=("creation",),
    shape="(length,)",
    edge_cases={"integers": "start and step are truncated first; the sum wraps"},
    source="iota: Iverson, A Programming Language, 1962",
    flops=flops_per_output(2),
    differentiable=False,
)
def iota(length: Size, *, dtype: torch.dtype, device: torch.device) -> TensorMeta:
    """start + i * step for i below `length`; formed in int64 or float64, then rounded."""
    require(length >= 0, f"length {length}")
    return _created((length,), dtype, device)


_SEED_END = 2**63 - 1
_SALMON = "Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011"
_BITS = frozenset({torch.int32, torch.int64})


@primitive(
    "seed(*, Device device) -> Tensor",
    lambda *, device: torch.randint(_SEED_END, (), dtype=torch.int64, device=device),
    family="random",
    tags=("random", "creation"),
    shape="0-d int64",
    edge_cases="two calls give different numbers; never merged, never computed again",
    source="torch.Generator",
    differentiable=False,
)
def seed(*, device: torch.device) -> TensorMeta:
    """A fresh int64 drawn from the device's default generator, which it advances."""
    return _created((), torch.int64, device)


def _philox_rule(kind: frozenset[torch.dtype]) -> Rule:
    def rule(
        shape: Sizes, seed: TensorMeta, offset: int, *, dtype: torch.dtype, device: torch.device
    ) -> TensorMeta:
        good = seed.dtype == torch.int64 and seed.ndim == 0
        require(good, f"the seed is {seed.dtype}{list(seed.shape)}, not a 0-d int64")
        require(dtype in kind, f"not defined for {dtype}")
        require(offset >= 0, f"offset {offset} is negative")
        require(all(size >= 0 for size in shape), f"shape {list(shape)}")
        return _created(shape, dtype, device)

    return rule


def _philox(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda shape, seed, offset, *, dtype, device: function(
        shape, seed.to(device), offset, dtype
    )


def _bits(
    shape: Sequence[int], seed: torch.Tensor, offset: int, dtype: torch.dtype
) -> torch.Tensor:
    total = math.prod(shape)
    if dtype == torch.int32:
        lanes = philox.philox_blocks(seed, offset, (total + 3) // 4).view(-1)[:total]
        return (lanes - ((lanes >> 31) << 32)).to(torch.int32).view(tuple(shape))
    pairs = philox.philox_blocks(seed, offset, (total + 1) // 2).view(-1, 2)[:total]
    return ((pairs[:, 1] << 32) | pairs[:, 0]).view(tuple(shape))


# name: (function, dtypes, doc, cost, edge cases)
_PHILOX: dict[str, tuple[Callable[..., torch.Tensor], frozenset[torch.dtype], str, int, str]] = {
    "philox_uniform": (philox.uniform, FLOATS,
        "Uniform numbers in [0, 1) by Philox4x32-10, defined in `flambeau_prims.philox`.", 20,
        "0 is drawn, 1 never, in any dtype"),
    "philox_normal": (philox.normal, FLOATS,
        "Normal numbers (mean 0, variance 1) by Philox4x32-10 and Box-Muller.", 40,
        "always finite: the logarithm is never taken of 0"),
    "philox_bits": (_bits, _BITS,
        "Uniform bits by Philox4x32-10: int32 element i is lane i mod 4 of block i div 4 + offset;"
        " int64 element i is lanes 2i mod 4 (low half) and 2i mod 4 + 1 of block i div 2 + offset.",
        20, "every bit pattern is drawn, negative numbers too"),
}  # fmt: skip

for _name, (_function, _kind, _doc, _cost, _edge) in _PHILOX.items():
    define(
        f"{_name}(SymInt[] shape, Tensor seed, int offset, *, ScalarType dtype, Device device)"
        " -> Tensor",
        rule=_philox_rule(_kind),
        eager=_philox(_function),
        family="random",
        tags=("random", "creation"),
        doc=_doc,
        shape="`shape`",
        edge_cases=_edge,
        source=_SALMON,
        flops=flops_per_output(_cost),
        differentiable=False,
    )
