"""Output cache: memory of large results, reused by the next call.

In: the layout of a CPU tensor. Out: the tensor, uninitialised. Invariant: memory is handed out
again only when nobody else refers to it, by any tensor, view, array or storage, and it is still
what was allocated (not resized, nor moved to shared memory). The C library returns large blocks to
the system, which clears every page before handing it out: as slow as a kernel that fills it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from flambeau_inductor._torch_compat import handle_of_storage, storage_users
from flambeau_inductor.runtime.cpu.huge_pages import RETURNED, empty_large

SHARE = 32
"""What is kept is at most this part of the machine's memory."""


@dataclass(frozen=True, slots=True)
class _Block:
    storage: torch.UntypedStorage
    address: int

    def holders(self) -> tuple[int, int]:
        return storage_users(handle_of_storage(self.storage)), sys.getrefcount(self.storage)


class KeptMemory:
    """Call it with a layout. `most`: bytes that it may hold while nobody uses them; None: a
    thirty-second of the machine's memory. `reused` counts the blocks that were used again."""

    def __init__(self, most: int | None = None) -> None:
        self.most = _memory() // SHARE if most is None else most
        self.held = 0
        self.reused = 0
        self._lock = threading.Lock()
        self._blocks: list[tuple[int, _Block, tuple[int, int]]] = []

    def __call__(
        self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype
    ) -> torch.Tensor:
        last = sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
        size = (last + 1) * dtype.itemsize
        if not RETURNED <= size <= self.most:
            return empty_large(shape, stride, dtype)
        with self._lock:
            block = self._free(size) or self._new(size)
            # from here on somebody holds it
            made = torch.empty(0, dtype=dtype)
            return made.set_(block.storage, 0, tuple(shape), tuple(stride))

    def _free(self, size: int) -> _Block | None:
        """A block of this size that nobody else holds."""
        for position, (length, block, alone) in enumerate(self._blocks):
            if length != size or block.holders() != alone:
                continue
            self._blocks.append(self._blocks.pop(position))
            if block.storage.data_ptr() == block.address and block.storage.nbytes() == size:
                self.reused += 1
                return block
            self._blocks.pop()  # it has become something else
            self.held -= size
            return None
        return None

    def _new(self, size: int) -> _Block:
        """Another block, for which those that were used longest ago are forgotten."""
        while self.held + size > self.most:
            length, _, _ = self._blocks.pop(0)
            self.held -= length
        storage = empty_large((size,), (1,), torch.uint8).untyped_storage()
        block = _Block(storage, storage.data_ptr())
        del storage
        self._blocks.append((size, block, block.holders()))
        self.held += size
        return block


def _memory() -> int:
    """Bytes of the machine's memory; 0, so that nothing is kept, where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
