"""Large CPU tensors in huge pages.

In: the layout of a tensor. Out: the tensor, uninitialised. Invariant: only a hint is given to the
kernel, and no answer depends on it. Mapping new memory page by page takes several times as long as
the kernel that fills it; most distributions leave huge pages to programs that request them
(`madvise` in `/sys/kernel/mm/transparent_hugepage/enabled`).
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")

Advise = Callable[[int, int], object]


def _adviser() -> Advise | None:
    """A function of address and length; None where huge pages are always or never given."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    try:
        asked_for = "[madvise]" in SETTING.read_text()
        call = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):  # another system: its pages are as they are
        return None
    if advice is None or not asked_for:
        return None
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    call.restype = ctypes.c_int
    return lambda address, length: call(address, length, advice)


_advise = _adviser()
_PAGE = mmap.PAGESIZE

RETURNED = 32 << 20
"""Bytes of the largest block that the C library keeps for itself (mallopt(3), M_MMAP_THRESHOLD)."""

AGAIN = 64
"""How often a block that the C library hands out again is given the hint once more: it may have
been returned to the system in between."""

_given: dict[tuple[int, int], int] = {}
"""How often memory has been handed out, by its first and last page."""


def empty_large(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised CPU tensor, in huge pages where the system gives them to those who ask."""
    made = torch.empty_strided(shape, stride, dtype=dtype)
    if _advise is not None:
        begin = made.data_ptr()
        first = -(-begin // _PAGE) * _PAGE
        last = (begin + made.untyped_storage().nbytes()) // _PAGE * _PAGE
        if last > first and _is_new(first, last):
            _advise(first, last - first)
    return made


def _is_new(first: int, last: int) -> bool:
    """Whether the memory may have no hint yet: the system call takes as long as the allocation."""
    if last - first >= RETURNED:
        return True
    if len(_given) > 4096:
        _given.clear()
    times = _given.get((first, last), 0)
    _given[first, last] = times + 1
    return times % AGAIN == 0
