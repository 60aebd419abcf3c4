"""Random number state of each device, saved and restored for rematerialisation.

What comes in: devices. What goes out: the states of their default generators, and a context in
which those generators are back in them.
Invariant: after the block the generators are where they were before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

Streams = tuple[tuple[torch.device, torch.Tensor], ...]
"""Generator states by device; empty for a program that draws nothing."""


def streams(devices: Iterable[torch.device]) -> Streams:
    """The present states of the default generators of these devices."""
    return tuple((device, _state(device)) for device in devices)


@contextmanager
def replayed(noted: Streams) -> Iterator[None]:
    """The generators in noted states, for the duration of the block."""
    if not noted:
        yield
        return
    before = streams(device for device, _ in noted)
    try:
        for device, state in noted:
            _restore(device, state)
        yield
    finally:
        for device, state in before:
            _restore(device, state)


def _state(device: torch.device) -> torch.Tensor:
    if device.type == "cpu":
        return torch.get_rng_state()
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    raise NotImplementedError(f"the random stream of a {device.type} device")


def _restore(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)
