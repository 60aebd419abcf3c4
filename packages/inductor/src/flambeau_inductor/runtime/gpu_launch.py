"""Launching a compiled Triton kernel with as little Python as can be.

In: tensors on the current device. Out: nothing; the kernel is queued on torch's current stream.
Invariant: a kernel compiled for 16-byte aligned buffers is never given others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau_inductor._torch_compat import current_raw_stream

ALIGNMENT_MASK = 15


class Launcher:
    """One kernel on one grid; call it with the kernel's buffers in order."""

    __slots__ = ("_constants", "_prepare", "_programs", "_variants", "name")

    def __init__(
        self,
        name: str,
        programs: int,
        constants: tuple[int, ...],
        prepare: Callable[[bool], Any],
    ) -> None:
        self.name = name
        self._programs = programs
        self._constants = constants
        self._prepare = prepare
        self._variants: dict[bool, Any] = {}

    def prepare(self, *, aligned: bool) -> Any:
        """The kernel compiled for aligned or for any buffers."""
        variant = self._variants.get(aligned)
        if variant is None:
            variant = self._variants[aligned] = self._prepare(aligned)
        return variant

    def __call__(self, *tensors: torch.Tensor) -> None:
        if not self._programs:
            return
        addresses = 0
        for tensor in tensors:
            addresses |= tensor.data_ptr()
        aligned = not addresses & ALIGNMENT_MASK
        kernel = self._variants.get(aligned) or self.prepare(aligned=aligned)
        first = tensors[0]
        if not first.is_cuda:
            kernel(*tensors)  # Triton's interpreter
            return
        device = first.get_device()
        if device != torch.cuda.current_device():
            with torch.cuda.device(device):
                self._queue(kernel, device, tensors)
        else:
            self._queue(kernel, device, tensors)

    def _queue(self, kernel: Any, device: int, tensors: tuple[torch.Tensor, ...]) -> None:
        run = kernel.run  # loads the binary on first access
        run(
            self._programs,
            1,
            1,
            current_raw_stream(device),
            kernel.function,
            kernel.packed_metadata,
            None,
            None,
            None,
            *tensors,
            *self._constants,
        )
