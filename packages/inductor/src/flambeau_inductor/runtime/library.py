"""Loader of shared objects.

In: the path of a shared object that exports `flambeau_kernel(number)`. Out: its kernels as Python
callables that take the addresses of their buffers. Invariant: a library that is loaded stays
loaded, for the callables point into it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

Kernel = Callable[..., Any]


def load_kernels(path: Path, count: int) -> tuple[Kernel, ...]:
    """The first `count` kernels of the library at `path`."""
    library = ctypes.PyDLL(str(path))
    make = library.flambeau_kernel
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_int,)
    return tuple(make(number) for number in range(count))
