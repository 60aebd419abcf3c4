"""Programs large and odd enough that threads, partial vectors, blocks and split rows all run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor.ir import evaluate
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.passes.primitive_passes import rewrite
from flambeau_inductor.schedule import schedule
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import fx

from tests.codegen.cpp.test_programs import kernels_of

Case = tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def turned(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


CASES: dict[str, Case] = {
    "softmax, rows for every thread": (lambda x: x.softmax(-1), lambda: (r(301, 517),)),
    "softmax, three long rows": (lambda x: x.softmax(-1), lambda: (r(3, 70_001),)),
    "softmax, over the outer dimension": (lambda x: x.softmax(0), lambda: (r(517, 301),)),
    "layer norm and gelu": (
        lambda x, w, b: F.gelu(F.layer_norm(x, (391,), w, b)),
        lambda: (r(211, 391), r(391), r(391)),
    ),
    "cross entropy": (
        lambda x, t: F.cross_entropy(x, t),
        lambda: (r(97, 3001), torch.randint(0, 3001, (97,))),
    ),
    "rope": (
        lambda x, c, s: x * c + turned(x) * s,
        lambda: (r(3, 5, 67, 48), r(67, 48), r(67, 48)),
    ),
    "batch norm": (
        lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, True)),
        lambda: (r(9, 17, 21, 19), r(17), r(17)),
    ),
    "batch norm, channels last": (
        lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, True)),
        lambda: (r(9, 21, 19, 20).to(memory_format=torch.channels_last), r(21), r(21)),
    ),
    "one column per lane": (lambda x: x.sum(0), lambda: (r(1031, 77),)),
    "columns side by side": (lambda x: (x.sum(0), x.amax(0)), lambda: (r(613, 530),)),
    "columns side by side, with positions": (
        lambda x: (x.argmax(0), (x * x).sum(0)),
        lambda: (r(211, 800),),
    ),
    "everything": (lambda x: ((x * x).sum(), x.amax(), x.var()), lambda: (r(511, 1023),)),
    "position in everything": (lambda x: x.argmin(), lambda: (r(311_111),)),
    "transposed sum": (lambda x, y: x.t() + y, lambda: (r(517, 301), r(301, 517))),
    "to channels last": (
        lambda x: (x * 2).permute(0, 2, 3, 1).contiguous(),
        lambda: (r(5, 37, 29, 31),),
    ),
    "half precision": (
        lambda x, w: F.silu(F.layer_norm(x, (333,), w)),
        lambda: (r(205, 333).bfloat16(), r(333).bfloat16()),
    ),
    "doubles": (lambda x: x.softmax(-1) @ x.t(), lambda: (r(65, 333).double(),)),
    "rows looked up": (
        lambda t, i: F.embedding(i, t).tanh(),
        lambda: (r(500, 133), torch.randint(0, 500, (37, 29))),
    ),
    "padded and cut": (lambda x: F.pad(x, (3, 5, 2, 1))[..., 1:-2] * 2, lambda: (r(7, 91, 203),)),
}


def check(
    function: Callable[..., Any], inputs: list[torch.Tensor], folder: Path, terms: int = 0
) -> None:
    """Every output against eager on doubles, beside eager's own error.

    What is left of `terms` numbers that cancel has their roundings, eager's by luck fewer.
    """
    gm = rewrite(flambeau_prims.lower(fx.symbolic_trace(function), inputs))
    program = schedule(lower_graph(gm, inputs))
    own, evaluate.run_loop = evaluate.run_loop, kernels_of(program, folder)
    try:
        results = evaluate.run_program(program, inputs)
    finally:
        evaluate.run_loop = own
    exact = function(*[x.double() if x.is_floating_point() else x for x in inputs])
    eager = function(*inputs)
    if not isinstance(eager, tuple):
        exact, eager = (exact,), (eager,)
    for true, want, got in zip(exact, eager, results, strict=True):
        assert want.stride() == got.stride() and want.dtype == got.dtype
        if not want.is_floating_point():
            assert torch.equal(want, got)
            continue
        scale = true.square().mean().sqrt() + 1e-30
        ours, theirs = ((v - true).square().mean().sqrt() / scale for v in (got, want))
        slack = 3 if want.dtype in (torch.bfloat16, torch.float16) else 2
        rounding = 2.0**-24 * (16 + 2 * terms**0.5)
        assert ours <= slack * theirs + rounding, (float(ours), float(theirs))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", CASES)
def test_against_doubles(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    function, make = CASES[name]
    check(function, list(make()), tmp_path)


UNARY = [torch.sigmoid, torch.tanh, torch.neg, torch.relu, lambda v: v * v, lambda v: v + 1]
SHAPES = st.sampled_from([1, 2, 3, 5, 8, 16, 17, 31, 40, 65])


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shape=st.tuples(SHAPES, SHAPES, SHAPES),
    order=st.permutations([0, 1, 2]),
    steps=st.lists(st.integers(0, len(UNARY) - 1), max_size=3),
    dims=st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
    kind=st.sampled_from(["sum", "mean", "amax", "var", "softmax", "none"]),
    stride=st.integers(1, 2),
)
def test_random_programs(
    shape: tuple[int, int, int],
    order: list[int],
    steps: list[int],
    dims: list[int],
    kind: str,
    stride: int,
    tmp_path: Path,
) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for step in steps:
            x = UNARY[step](x)
        x = x.permute(order) + y
        if kind == "softmax":
            return x.softmax(dims[0]) * y
        if kind == "var":
            return x - x.var(dims, correction=0, keepdim=True)
        return x if kind == "none" else x - getattr(x, kind)(dims, keepdim=True)

    x = torch.randn(shape[0] * stride, shape[1], shape[2])[::stride]
    y = torch.randn([shape[d] for d in order])
    check(function, [x, y], tmp_path, terms=x.numel())
