"""Static input buffers of a recording.

In: a call of the boxed convention, and inputs that are elsewhere at each call. Out: the same call,
which takes memory for them where it is made and lets go of it as of any other input. Invariant:
between a copy into that memory and the end of the replay that follows nobody else writes there; who
reads it later finds values of the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from flambeau_inductor._torch_compat import storage_handle, weak_storage

Memory = Callable[[int, int], torch.Tensor]
"""So many bytes at an address, as a tensor that does not keep them."""


class OwnInputs:
    """`call`, which replaces the inputs of `like`. `returned`: its results that lie in these."""

    def __init__(
        self, call: Callable[[list[Any]], tuple[Any, ...]], like: Mapping[int, torch.Tensor]
    ) -> None:
        self.returned: frozenset[int] = frozenset()
        self._call = call
        self._like = dict(like)
        self._places: list[tuple[int, int]] = []

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        held = []
        for position, value in self._like.items():
            own = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=value.device
            )
            whole = own.untyped_storage()
            self._places.append((whole.data_ptr(), whole.nbytes()))
            held.append(weak_storage(own))
            args[position] = own
            del own, whole
        outputs = self._call(args)
        handles = {each.cdata for each in held}
        self.returned = frozenset(
            position
            for position, output in enumerate(outputs)
            if isinstance(output, torch.Tensor) and storage_handle(output) in handles
        )
        return outputs

    def buffers(self, memory: Memory) -> tuple[torch.Tensor, ...]:
        """Where the inputs go, in the order of `like`."""
        return tuple(
            _laid_out(memory(*place), value)
            for place, value in zip(self._places, self._like.values(), strict=True)
        )


def _laid_out(memory: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Memory as a tensor of the layout of `value`."""
    made = torch.empty(0, dtype=value.dtype, device=memory.device)
    return made.set_(memory.untyped_storage(), 0, value.size(), value.stride())  # type: ignore[call-overload,no-any-return]
