"""Random numbers in kernels: those of the primitives' definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flambeau_inductor
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.ir.program import Extern, RunLoop
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.schedule import schedule
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

prims = torch.ops.flambeau_prims
SEED = torch.tensor(0x123456789ABCDEF)
SHAPES = [(7,), (33, 17), (16, 64)]
"""No multiple of a vector; rows that begin inside of a block; whole blocks."""


CPU = torch.device("cpu")


def graph_of(
    op: str, shape: tuple[int, ...], offset: int, dtype: torch.dtype, device: torch.device = CPU
) -> fx.GraphModule:
    graph = fx.Graph()
    seed = graph.placeholder("seed")
    made = graph.call_function(
        getattr(prims, op).default, (list(shape), seed, offset), {"dtype": dtype, "device": device}
    )
    made.meta["val"] = torch.empty(shape, dtype=dtype, device=device)
    if len(shape) == 2:
        turned = graph.call_function(prims.permute.default, (made, [1, 0]))
        turned.meta["val"] = made.meta["val"].t()
        copy = graph.call_function(prims.clone.default, (turned,))
        copy.meta["val"] = torch.empty(shape[::-1], dtype=dtype, device=device)
        graph.output((made, copy))
    else:
        graph.output((made, made))
    return fx.GraphModule(torch.nn.Module(), graph)


def both(op: str, shape: tuple[int, ...], offset: int, dtype: torch.dtype, cache: Path) -> Any:
    gm = graph_of(op, shape, offset, dtype)
    options = Options(cache_dir=str(cache))
    compiled = flambeau_inductor.compile(gm, [SEED], options=options)
    assert not compiled.report.fallbacks
    assert not compiled.report.externs
    cpu = torch.device("cpu")
    wanted = getattr(prims, op).default(list(shape), SEED, offset, dtype=dtype, device=cpu)
    return compiled([SEED]), wanted


EXACT = [
    ("philox_uniform", torch.float32),
    ("philox_uniform", torch.float64),
    ("philox_uniform", torch.float16),
    ("philox_uniform", torch.bfloat16),
    ("philox_bits", torch.int32),
    ("philox_bits", torch.int64),
]


@pytest.mark.sweep(6)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("op", "dtype"), EXACT)
def test_every_bit_is_that_of_the_definition(
    op: str, dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path
) -> None:
    for offset in (3, 2**33):
        (straight, turned), wanted = both(op, shape, offset, dtype, tmp_path)
        assert torch.equal(straight, wanted)
        assert torch.equal(turned.t() if len(shape) == 2 else turned, wanted)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_normal_numbers_differ_by_the_error_of_functions(
    dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path
) -> None:
    (straight, turned), wanted = both("philox_normal", shape, 5, dtype, tmp_path)
    close = {torch.float32: 1e-6, torch.float64: 1e-15, torch.bfloat16: 2.0**-6}[dtype]
    torch.testing.assert_close(straight, wanted, rtol=close, atol=close)
    torch.testing.assert_close(
        turned.t() if len(shape) == 2 else turned, wanted, rtol=close, atol=close
    )


@pytest.mark.parametrize(("offset", "kernels"), [(0, 1), (2**29, 0)])
def test_a_gpu_computes_them_where_it_can_count_so_far(offset: int, kernels: int) -> None:
    gpu = torch.device("cuda", 0)
    with FakeTensorMode():
        gm = graph_of("philox_uniform", (7,), offset, torch.float32, gpu)
        program = schedule(lower_graph(gm, [torch.empty((), dtype=torch.int64, device=gpu)]))
    assert sum(isinstance(step, RunLoop) for step in program.steps) == kernels
    assert sum(isinstance(step, Extern) for step in program.steps) == 1 - kernels
