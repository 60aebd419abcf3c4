"""Memory layout of a library call's operands.

In: an argument and the layouts of all buffers. Out: its layout, as numbers where that is asked.
Invariant: only what lies on a GPU and has no open size is given as numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from flambeau_inductor.ir.program import Argument, Layout, Ref

Static = tuple[tuple[int, ...], tuple[int, ...], int]
"""Shape, strides and offset, in elements."""


def layout_of(argument: Argument, layouts: Mapping[str, Layout]) -> Layout | None:
    """The layout as which the argument is seen; None if it is no tensor."""
    if not isinstance(argument, Ref):
        return None
    return argument.layout or layouts[argument.buffer]


def dtype_of(argument: Argument, layouts: Mapping[str, Layout]) -> torch.dtype | None:
    """Its dtype; None if it is no tensor."""
    layout = layout_of(argument, layouts)
    return None if layout is None else layout.dtype


def static_of(argument: Argument, layouts: Mapping[str, Layout]) -> Static | None:
    """Its layout in numbers."""
    layout = layout_of(argument, layouts)
    if layout is None or layout.device.type != "cuda":
        return None
    try:
        return layout.static()
    except TypeError:  # a size is open
        return None


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor that is dense, the last dimension first."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
