"""The compiled graph as callers hold it.

In: the wrapper's function and what has to live as long as it. Out: a callable of the boxed
convention. Invariant: no autograd graph is built and no autocast happens inside: both are in the
compiled graph already, where they belong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau_inductor._torch_compat import current_device


class CompiledGraph:
    """Call it with one list of inputs, which it empties; it returns the outputs as a tuple.

    `report` says what was compiled; `keep` is whatever the kernels need to stay alive. `gpu` is
    the index of the CUDA device that the kernels run on, which is made the current one.
    `artifact` is the same as data and files, None where it cannot be had in that form.
    """

    __slots__ = ("__weakref__", "_autocasts", "_call", "_gpu", "_keep", "artifact", "report")

    def __init__(
        self,
        call: Callable[[list[Any]], tuple[Any, ...]],
        report: Any,
        devices: tuple[str, ...] = (),
        keep: tuple[object, ...] = (),
        gpu: int | None = None,
        artifact: Any = None,
    ) -> None:
        self._call = call
        self._gpu = gpu
        self._autocasts = devices
        self._keep = keep
        self.report = report
        self.artifact = artifact

    @property
    def recorded(self) -> Any:
        """The `Recorded` that counts replays and plain calls; None where nothing is recorded."""
        return self._call if hasattr(self._call, "replays") else None

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        if self._gpu is not None and self._gpu != current_device():
            with torch.cuda.device(self._gpu):
                return self._without_autocast(args)
        return self._without_autocast(args)

    def _without_autocast(self, args: list[Any]) -> tuple[Any, ...]:
        for device in self._autocasts:
            if torch.is_autocast_enabled(device):
                with torch.autocast(device, enabled=False):
                    return self._without_grad(args)
        return self._without_grad(args)

    def _without_grad(self, args: list[Any]) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self._call(args)
        return self._call(args)
