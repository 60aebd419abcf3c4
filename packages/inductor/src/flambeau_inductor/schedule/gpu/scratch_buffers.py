"""Buffers that a pass adds to a program: partial results that loops hand to each other.

In: a program. Out: `ScratchBuffers`. Invariant: a scratch buffer is contiguous, has a name that no
other one has, and stands for no value of the graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from flambeau_inductor.ir.loops import Loop, Store
from flambeau_inductor.ir.program import Buffer, Layout, Program
from flambeau_inductor.ir.tensors import flat_strides

NewBuffer = Callable[[tuple[int, ...], torch.dtype], str]
"""Makes a contiguous buffer and returns its name."""

LayoutOf = Callable[[str], Layout]


class ScratchBuffers:
    """The buffers of a program, and those that a pass has made."""

    def __init__(self, program: Program) -> None:
        self._buffers = program.by_name
        self._counter = sum(name.startswith("buf") for name in self._buffers)

    def all(self) -> tuple[Buffer, ...]:
        """Those of the program, then the others."""
        return tuple(self._buffers.values())

    def layout_of(self, name: str) -> Layout:
        """The layout of either kind."""
        return self._buffers[name].layout

    def on(self, device: torch.device) -> NewBuffer:
        """What makes buffers on a device."""

        def new_buffer(shape: tuple[int, ...], dtype: torch.dtype) -> str:
            name = f"buf{self._counter}"
            self._counter += 1
            layout = Layout(shape, flat_strides(shape), dtype, device)
            self._buffers[name] = Buffer(name, layout)
            return name

        return new_buffer


def device_of(loop: Loop, layout_of: LayoutOf) -> torch.device | None:
    """The device that a loop stores to; None where it is not one."""
    found = {layout_of(i.buffer).device for i in loop.body if isinstance(i, Store)}
    return found.pop() if len(found) == 1 else None
