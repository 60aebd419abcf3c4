"""CUDA context initialisation of a thread.

In: nothing, or a device's number. Out: nothing; the calling thread has a current context.
Invariant: a context that is current stays so.

torch makes a device's context current with the first call of the CUDA runtime that a thread makes.
A launch goes to the driver, past the runtime: in a thread of autograd whose first work is one of
our kernels, on memory that is there already, it would be the first call of all.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

_POINTER = ctypes.c_void_p


def attach(gpu: int | None = None, library: Any = None) -> None:
    """Give this thread the context that torch uses on a GPU (its current one), if it has none.

    Raises:
        OSError: there is no CUDA driver, or it refuses.
    """
    driver = ctypes.CDLL("libcuda.so.1") if library is None else library

    def call(name: str, *given: Any) -> None:
        status = getattr(driver, name)(*given)
        if status:
            raise OSError(f"{name} failed (error {status} of the CUDA driver)")

    context, device = _POINTER(), ctypes.c_int()
    call("cuCtxGetCurrent", ctypes.byref(context))
    if not context.value:
        number = torch.cuda.current_device() if gpu is None else gpu
        call("cuDeviceGet", ctypes.byref(device), number)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuCtxSetCurrent", context)
