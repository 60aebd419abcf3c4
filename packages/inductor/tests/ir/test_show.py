"""Listings of scheduled programs, held against text."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from flambeau_inductor.ir.show import show_program

from tests.evaluated import against_eager

SOFTMAX = """\
program graph(in0):
    in0: float32[4, 6] strides [6, 1]
    buf0: float32[4, 6] strides [6, 1]
    alloc buf0
    loop loop0 over x(x0: 4) r(r0: 6):
        # amax_default, exp_default, sum_default, div_default
        v0 = in0[6*x0 + r0]
        v1 = reduce.max(v0)
        v2 = sub(v0, v1)
        v3 = exp(v2)
        v4 = reduce.sum(v3)
        v5 = div(v3, v4)
        buf0[6*x0 + r0] = v5
    free in0
    return buf0
"""


def test_softmax() -> None:
    outcome = against_eager(lambda x: x.softmax(1), torch.randn(4, 6))
    assert show_program(outcome.program) == SOFTMAX


def test_lookup_and_product() -> None:
    outcome = against_eager(
        lambda w, i, v: F.relu(F.embedding(i, w)) @ v.t(),
        torch.randn(10, 3), torch.tensor([4, 9]), torch.randn(3, 3),
    )  # fmt: skip
    text = show_program(outcome.program)
    assert "check 0 <= in1 < 10 else IndexError" in text
    assert "= in0[" in text and "[3*v0 + x1]" in text.replace("v0*3", "3*v0")
    assert "aten.mm.out(buf0, in2<float32[3, 3] strides [1, 3]>, out=buf1)" in text
