"""Every touch of a torch interface that is private or moves (tried on torch 2.11 and 2.13)."""

from __future__ import annotations

import torch


def current_raw_stream(device: int) -> int:
    """Handle of torch's current CUDA stream on `device`."""
    return int(torch._C._cuda_getCurrentRawStream(device))
