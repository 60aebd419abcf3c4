"""Ambient state: random generators, autocast, default dtype.

In: devices, the state of this thread. Out: the same as data, and contexts that restore it.
Invariant: a program run again in a restored ambience draws and records what it did first; after the
block everything is as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

Streams = tuple[tuple[torch.device, torch.Tensor], ...]
"""Generator states by device; empty for a program that draws nothing."""


def streams(devices: Iterable[torch.device]) -> Streams:
    """The present states of the default generators of these devices."""
    return tuple((device, _state(device)) for device in devices)


@contextmanager
def replayed(noted: Streams) -> Iterator[None]:
    """The generators in noted states, for the duration of the block."""
    before = streams(device for device, _ in noted)
    try:
        _restore(noted)
        yield
    finally:
        _restore(before)


def _state(device: torch.device) -> torch.Tensor:
    if device.type == "cpu":
        return torch.get_rng_state()
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    raise NotImplementedError(f"the random stream of a {device.type} device")


def _restore(noted: Streams) -> None:
    for device, state in noted:
        if device.type == "cpu":
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)


_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Ambient:
    """autocast: for each device type, whether it is on and the dtype it casts to."""

    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    cache: bool
    dtype: torch.dtype

    @contextmanager
    def restored(self) -> Iterator[None]:
        """This ambience again, for the duration of the block."""
        before = torch.get_default_dtype()
        with ExitStack() as stack:
            for device, enabled, dtype in self.autocast:
                stack.enter_context(
                    torch.autocast(device, dtype, enabled=enabled, cache_enabled=self.cache)
                )
            torch.set_default_dtype(self.dtype)
            try:
                yield
            finally:
                torch.set_default_dtype(before)


def ambient() -> Ambient:
    """The ambience of this thread now."""
    return Ambient(
        autocast=tuple(
            (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in _DEVICES
        ),
        cache=torch.is_autocast_cache_enabled(),
        dtype=torch.get_default_dtype(),
    )
