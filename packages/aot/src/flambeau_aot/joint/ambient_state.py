"""Ambient state of a trace: autocast and default dtype.

What comes in: the state of this thread. What goes out: frozen data, and a context that restores it.
Invariant: a program traced again in a restored ambience records the operators it recorded first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

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
