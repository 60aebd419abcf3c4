"""Random numbers of a seed and a position in Triton: those of the primitives' definition."""

from __future__ import annotations

from pathlib import Path

import flambeau_prims
import pytest
import torch
from flambeau_inductor.codegen.triton.pointwise import spell_random
from flambeau_inductor.errors import TritonUnsupported
from flambeau_inductor.indexing import Var, as_expr
from flambeau_inductor.ir.loops import Axis, IndexValue, Load, Loop, Point, Store

from tests.codegen.triton.run import run_loop
from tests.poison import poisoned

SEED = 0x123456789ABCDEF
DRAWN = [
    ("philox_uniform", torch.float32),
    ("philox_uniform", torch.float16),
    ("philox_uniform", torch.bfloat16),
    ("philox_bits", torch.int32),
]


@pytest.mark.parametrize(("op", "dtype"), DRAWN)
@pytest.mark.parametrize("offset", [0, 3, 2**24 + 1])
def test_every_bit_is_that_of_the_definition(
    op: str, dtype: torch.dtype, offset: int, tmp_path: Path
) -> None:
    count = 1003
    body = (
        Load("seed", as_expr(0), torch.int64),
        IndexValue(Var("x0") + 4 * offset, torch.int64),
        Point(op, (0, 1), dtype),
        Store("out", Var("x0"), 2),
    )
    loop = Loop("drawn", (Axis("x0", count),), (), body)
    buffers = {"seed": torch.tensor([SEED]), "out": poisoned(count, dtype=dtype)}
    run_loop(loop, buffers, tmp_path)
    define = getattr(torch.ops.flambeau_prims, op).default
    assert flambeau_prims.prim_of(define) is not None
    cpu = torch.device("cpu")
    wanted = define([count], torch.tensor(SEED), offset, dtype=dtype, device=cpu)
    assert torch.equal(buffers["out"], wanted)


def test_what_is_not_spelled_is_refused() -> None:
    with pytest.raises(TritonUnsupported, match="philox_bits"):
        spell_random("philox_bits", "seed", "position", torch.int64)
