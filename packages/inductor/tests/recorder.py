"""A recorder that runs on the CPU: a replay runs the work again, into the results of the recording.

It never returns memory to the process, and instead writes over what a recording in the same pool
may write over: what another one made, unless it was held when the later of the two was recorded,
and inputs that were copied, once they were read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from flambeau_inductor._torch_compat import storage_handle, storage_users
from flambeau_inductor.runtime.gpu.cuda_graphs import Call, RecordedGraph, Rules
from flambeau_inductor.runtime.gpu.shared_pool import seen_through, spanned
from flambeau_inductor.runtime.gpu.stream_capture import OwnInputs
from flambeau_inductor.tuning import MEASURED

SPOILT = -7


class Recorder:
    device_type = "cpu"
    tuning = MEASURED

    def __init__(self) -> None:
        self.current = 1
        self.recordings = 0
        self.warmed = 0
        self.pools: list[Any] = []
        self.kept: dict[int, Any] = {}
        self.made: dict[int, list[torch.Tensor]] = {}
        self.taken: tuple[float, float] | None = (1.0, 1.0)
        self.refused: str | None = None
        self.recording_elsewhere = False

    def busy(self) -> str | None:
        return "the caller is recording" if self.recording_elsewhere else None

    def refusal(self, rules: Rules) -> str | None:
        return self.refused

    def watch(self) -> Recorder:
        return self

    def stop(self) -> None:
        """All is queued."""

    def seconds(self) -> tuple[float, float] | None:
        return self.taken

    def stream(self) -> int:
        return self.current

    def pool(self) -> str:
        return "shared"

    def warm(self) -> None:
        self.warmed += 1

    def alias(self, tensors: Sequence[torch.Tensor], keep: object) -> torch.Tensor:
        for tensor in tensors:
            self.kept.setdefault(storage_handle(tensor), tensor.untyped_storage())
        first, size = spanned(tensors)
        memory = (ctypes.c_char * size).from_address(first)
        return torch.frombuffer(memory, dtype=torch.uint8)

    def _held(self, memory: torch.Tensor) -> bool:
        """Whether somebody beside this recorder refers to memory that was recorded here."""
        known = {each.data_ptr(): handle for handle, each in self.kept.items()}
        return storage_users(known[memory.data_ptr()]) > 1

    def record(
        self, call: Call, args: list[Any], pool: Any, copied: Mapping[int, torch.Tensor]
    ) -> RecordedGraph:
        self.recordings += 1
        self.pools.append(pool)
        given = [seen_through(self.alias([each], None), each) for each in args]
        buffers = tuple(torch.empty_like(each) for each in copied.values())
        for position, buffer in zip(copied, buffers, strict=True):
            given[position] = seen_through(self.alias([buffer], None), buffer)
        inside = OwnInputs(call, copied)
        at_first = [(seen_through(self.alias([each], None), each), each.clone()) for each in args]
        updated = {each.data_ptr() for k, each in enumerate(args) if k not in copied}
        outputs = inside(args)
        for each, value in at_first:
            each.copy_(value)  # nothing is computed while recording
        made_here = [k for k, each in enumerate(outputs) if each.data_ptr() not in updated]
        pool = [] if pool is None else pool
        earlier = self.made.setdefault(id(pool), []) if pool != "shared" else []
        free = [memory for memory in earlier if not self._held(memory)]
        own = {k: seen_through(self.alias([outputs[k]], None), outputs[k]) for k in made_here}
        memory = [self.alias([outputs[k]], None) for k in made_here]
        earlier.extend(memory)
        for each in own.values():
            each.fill_(SPOILT)

        def replay() -> None:
            made = call(list(given))
            # the first recording of a pool knows nothing of what came to lie in its memory later
            later = [each for each in earlier if all(each is not m for m in memory)]
            spoilt = later if earlier[0] is memory[0] else free
            for each in spoilt:
                each.fill_(0xC0)
            for k, output in own.items():
                output.copy_(made[k])
            for buffer in buffers:
                buffer.fill_(SPOILT)

        return RecordedGraph(replay, outputs, pool, buffers, inside.returned)
