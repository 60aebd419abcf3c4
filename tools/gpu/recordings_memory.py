"""Memory of a GPU that recordings hold, as its allocator counts it.

In: recordings, as they are made. Out: the most bytes in use at once in the memory of each, of those
that are still there. Invariant: memory that several recordings share is counted once.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from flambeau_inductor.runtime.gpu.cuda_graphs import RecordedGraph
from flambeau_inductor.runtime.gpu.stream_capture import CudaRecorder


class Pools:
    """Begins to watch when it is made; a figure needs the allocator's peak to be reset."""

    def __init__(self) -> None:
        self.most: dict[Any, int] = {}
        self._graphs: dict[Any, weakref.WeakSet[Any]] = {}
        record = CudaRecorder.record

        def watched(
            recorder: CudaRecorder, call: Any, args: list[Any], pool: Any, copied: Any
        ) -> RecordedGraph:
            torch.cuda.synchronize()
            live = 0 if pool is None else in_use(pool)
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            made = record(recorder, call, args, pool, copied)
            used = live + torch.cuda.max_memory_allocated() - before
            self.most[made.pool] = max(used, self.most.get(made.pool, 0))
            graphs = self._graphs.setdefault(made.pool, weakref.WeakSet())
            graphs.add(made.replay.__self__)  # type: ignore[attr-defined]
            return made

        CudaRecorder.record = watched  # type: ignore[method-assign]

    def bytes(self) -> int:
        """Of all recordings that there are."""
        return sum(size for pool, size in self.most.items() if len(self._graphs[pool]))


def in_use(pool: Any) -> int:
    """Bytes of a pool that tensors hold."""
    segments = torch.cuda.memory_snapshot()
    return sum(each["allocated_size"] for each in segments if each["segment_pool_id"] == pool)
