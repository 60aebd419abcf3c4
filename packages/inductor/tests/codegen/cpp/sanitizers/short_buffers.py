"""Kernels that are given less memory than they use, which `sanitized.py` is to see."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.codegen import loops
from tests.codegen.cpp.run import run_loop
from tests.codegen.cpp.sanitizers.sanitized import ReportedError


@pytest.mark.xfail(raises=ReportedError, strict=True)
@pytest.mark.parametrize("short", ["in0", "out"])
def test_one_element_is_missing(short: str, tmp_path: Path) -> None:
    size = 2 * 64 + 5
    buffers = {name: torch.zeros(size - (name == short)) for name in ("in0", "in1", "out")}
    loop = loops.pointwise("add", 2, size, torch.float32, torch.float32)
    run_loop(loop, buffers, tmp_path)
