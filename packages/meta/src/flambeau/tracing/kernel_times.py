"""Kernel times of a trace, each kernel alone, beside the memory roofline.

In: a compilation whose kernels are built. Out: seconds by loop, and the bandwidth of a copy.
Invariant: kernels run on memory of their own, never on the program's; what cannot be run that way
(symbolic sizes, too much memory) has no time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from flambeau.events.stage_products import nbytes

MOST_BYTES = 1 << 30


def kernel_times(work: Any) -> dict[str, float]:
    """The best of a few runs of each generated kernel, in seconds by the loop's name."""
    layouts = {buffer.name: buffer.layout for buffer in work.scheduled().buffers}
    functions = {name: each for built in work.built for name, each in built.functions.items()}
    times: dict[str, float] = {}
    for text in work.kernels:
        for loop, launch in text.launches.items():
            function = functions.get(launch.kernel)
            sizes = [nbytes(layouts[name]) for name in launch.buffers if name in layouts]
            known = [size for size in sizes if size is not None]
            whole = len(known) == len(launch.buffers) and sum(known) <= MOST_BYTES
            if function is not None and whole and launch.by_address:
                times[loop] = _timed(function, launch, layouts)
    return times


def _timed(function: Callable[..., Any], launch: Any, layouts: Any) -> float:
    from flambeau_inductor.debug.roofline import best_seconds  # a warm start loads no such module

    tensors = []
    for name in launch.buffers:
        shape, stride, _ = layouts[name].static()
        layout = {"dtype": layouts[name].dtype, "device": layouts[name].device}
        tensors.append(torch.empty_strided(shape, stride, **layout).zero_())
    device = tensors[0].device
    given = [tensor.data_ptr() for tensor in tensors]
    if launch.queued:
        given.insert(0, torch.cuda.current_stream(device).cuda_stream)
    return best_seconds(partial(function, *given), device)


def roof(work: Any) -> float:
    """Bytes a second that a copy moves (read and written) on the device of a compilation."""
    from flambeau_inductor.debug.roofline import copy_rate  # a warm start loads no such module

    devices = [buffer.layout.device for buffer in work.scheduled().buffers]
    return copy_rate(devices[0] if devices else torch.device("cpu"))
