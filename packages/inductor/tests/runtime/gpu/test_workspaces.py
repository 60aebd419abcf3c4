"""Recordings of matrix products, when others clear what the library keeps for them. That each
recording asks for it again is in test_cuda_graphs.py, which needs no GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flambeau_inductor.runtime.gpu.cuda_graphs import WARM_UP, Recorded, Rules
from flambeau_inductor.runtime.gpu.stream_capture import CudaRecorder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def _product(args: list[Any]) -> tuple[Any, ...]:
    x, w = args
    args.clear()
    return (torch.addmm(w[0], x, w) @ w,)


def _clear() -> None:
    """As a library does that records graphs of its own."""
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def test_replays_after_workspaces_were_cleared() -> None:
    x, w = (torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    exact = torch.addmm(w[0], x, w) @ w
    recorder = CudaRecorder(0)
    kinds = [Recorded(_product, Rules((), products=True), recorder) for _ in range(2)]
    others, held = [], []
    for recorded in kinds:  # the second one is recorded after a workspace was cleared
        for _ in range(WARM_UP + 2):
            torch.testing.assert_close(recorded([x, w])[0], exact)
        _clear()
        others.append(torch.full((64 << 20,), 7, dtype=torch.uint8, device="cuda"))
    for _ in range(4):
        for recorded in kinds:
            held.append(recorded([x, w])[0])
            torch.testing.assert_close(held[-1], exact)
    for result in held:  # no replay has written over what is held
        torch.testing.assert_close(result, exact)
    assert all(bool((each == 7).all()) for each in others)
    assert all(recorded.replays > 1 for recorded in kinds)
