"""The text of a few kernels. UPDATE_GOLDEN=1 rewrites the files; look at what changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.cpp.analysis.plan import plan
from flambeau_inductor.codegen.cpp.loop_rewrites import narrow_indices, two_pass_variance
from flambeau_inductor.codegen.cpp.unit import emit_kernel
from flambeau_inductor.ir.loops import Loop

from tests.codegen import loops

GOLDEN = Path(__file__).parent / "golden"
KERNELS: dict[str, Loop] = {
    "softmax": loops.softmax(300, 500),
    "column_sum": loops.column_sum(1000, 600),
    "transpose_add": loops.transpose_add(300, 200),
    "pad": loops.pad(100, 2, 3),
    "total": loops.total(1 << 20),
}


@pytest.mark.parametrize("name", KERNELS)
def test_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)  # how columns are shared out depends on it
    ready = narrow_indices(two_pass_variance(KERNELS[name]))
    text = emit_kernel(plan(ready, 64), lambda buffer: torch.float32).body
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text
