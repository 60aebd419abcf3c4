"""Device synchronisation before a clock is read.

In: the state of the process and its devices. Out: whether a call can be timed, and the wait for
work that was only started. Invariant: nothing is initialized that the program has not. Tried on
torch 2.11, 2.13 and 2.14.
"""

from __future__ import annotations

import torch

from flambeau_capture._torch_compat.state import foreign_modes


def can_be_timed() -> bool:
    """Whether a call may run in either form, and be waited for: not under a mode or a transform,
    not where results are to be the same to the bit from run to run, not where other processes go
    on in step, and not while work is recorded for a CUDA graph."""
    if foreign_modes() or torch.are_deterministic_algorithms_enabled():
        return False
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return False
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def wait_for_devices() -> None:
    """Wait until the work that was given to a device is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
