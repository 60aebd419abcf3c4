"""Random primitives: numbers that are functions of a seed and a position.

In: a seed tensor, a counter to begin with, a shape. Out: `Pointwise` nodes of the seed and of each
element's position. Invariant: only the seed is drawn; its numbers are computed where they are used,
and are those that `flambeau_prims.philox` defines.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flambeau_inductor.ir.tensors import Node, Pointwise, Position, dims_of, dot, flat_strides
from flambeau_inductor.lowering.context import Context
from flambeau_inductor.lowering.indexing import single
from flambeau_inductor.lowering.registry import Lowered, rule


@rule("seed")
def seed(ctx: Context, *, device: torch.device) -> Lowered:
    target = "flambeau_prims.seed.default"
    return single(ctx.call(target, (), (("device", torch.device(device)),), impure=True))


@rule("philox_uniform", "philox_normal", "philox_bits")
def philox(
    ctx: Context,
    name: str,
    shape: Sequence[int],
    seed: Node,
    offset: int,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> Lowered:
    place = torch.device(device)
    if place.type != "cpu" or seed.device.type != "cpu":
        kwargs = (("dtype", dtype), ("device", place))
        args = (tuple(shape), seed, offset)
        return single(ctx.call(f"flambeau_prims.{name}.default", args, kwargs))
    # a block has the bits of four elements, or of two that are wide
    block = 2 if dtype == torch.int64 else 4
    flat = dot(dims_of(len(shape)), flat_strides(shape), offset * block)
    position = ctx.node(shape, torch.int64, place, Position(flat))
    return ctx.node(shape, dtype, place, Pointwise(name, (ctx.view(seed, shape, ()), position)))
