"""New memory filled with what shows, so that a result that nobody wrote is seen."""

from __future__ import annotations

from typing import Any

import pytest
import torch

REAL = torch.empty_strided


def poisoned_strided(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.empty_strided`, full of NaN or of a number that is none of the results."""
    tensor = REAL(*args, **kwargs)
    if tensor.numel():
        reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        fill = float("nan") if tensor.dtype.is_floating_point else 113
        tensor.as_strided((reach,), (1,)).fill_(True if tensor.dtype == torch.bool else fill)
    return tensor


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Such a tensor of `shape`, its rows behind one another."""
    return poisoned_strided(shape, torch.empty(shape, device="meta").stride(), dtype=dtype)


@pytest.fixture
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrappers that are loaded from now on allocate poisoned memory."""
    monkeypatch.setattr(torch, "empty_strided", poisoned_strided)
