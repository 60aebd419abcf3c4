"""CUDA stream capture, and the cost of launching.

In: a function that queues work. Out: a function that queues all of it again at once. Invariant:
what is recorded for one stream shares neither temporary memory nor a library's workspace with what
is recorded for another.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from flambeau_inductor._torch_compat import current_raw_stream
from flambeau_inductor.runtime.gpu.cuda_graphs import Call, RecordedGraph, Rules
from flambeau_inductor.runtime.gpu.static_input_buffers import OwnInputs
from flambeau_inductor.tuning import machine_of, tuning_for

SHARE_OF_MEMORY = 32
"""Recordings that nobody asked for hold at most this part of the device's memory each."""


class CudaRecorder:
    """Records on a device."""

    device_type = "cuda"

    def __init__(self, device: int) -> None:
        self._device = device
        self.tuning = tuning_for(machine_of(device))

    def stream(self) -> int:
        """The stream that the caller is on."""
        return current_raw_stream(self._device)

    def busy(self) -> str | None:
        """A replay cannot be part of what somebody else records."""
        return "the caller is recording" if torch.cuda.is_current_stream_capturing() else None

    def refusal(self, rules: Rules) -> str | None:
        """Why a recording is not made unasked."""
        most = torch.cuda.get_device_properties(self._device).total_memory // SHARE_OF_MEMORY
        if rules.size > most:
            return f"it would hold {rules.size >> 20} MiB"
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return "other streams read gradients when processes work together"
        return None

    def watch(self) -> CudaWatch:
        """Begin to measure."""
        return CudaWatch(self._device)

    def record(
        self, call: Call, args: list[Any], pool: Any, copied: Mapping[int, torch.Tensor]
    ) -> RecordedGraph:
        """See `Recorder`."""
        place = self._device, self.stream()
        torch.cuda.synchronize(self._device)
        own = OwnInputs(call, copied)
        try:
            made = self._recorded(own, args, place, pool)
        except Exception:
            # the random generator of the device still waits for the end of the broken recording
            self._recorded(tuple, [], place, pool)
            raise
        return replace(made, buffers=own.buffers(self._memory), returned=own.returned)

    def _recorded(
        self, call: Call, args: list[Any], place: tuple[int, int], pool: Any
    ) -> RecordedGraph:
        # `torch.cuda.graph` would also collect garbage and empty the allocator's cache each time
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(_side_stream(place)):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                outputs = call(args)
            except BaseException:
                _abandoned(graph)
                raise
            graph.capture_end()
        return RecordedGraph(graph.replay, outputs, graph.pool())

    def pool(self) -> Any:
        """See `Recorder`."""
        return _pool((self._device, self.stream()))

    def warm(self) -> None:
        """See `Recorder`: two calls that ask for a workspace, if this thread has none for the
        stream. A recording knows its address, and others in the process clear workspaces, so it
        lies in memory that stays."""
        place = self._device, self.stream()
        staying = torch.cuda.use_mem_pool(_workspaces(place), self._device)
        with staying, torch.cuda.stream(_side_stream(place)):
            one = torch.ones((16, 16), dtype=torch.float16, device=f"cuda:{self._device}")
            torch.addmm(one[0], one, one.mm(one))

    def alias(self, tensor: torch.Tensor, keep: object) -> torch.Tensor:
        """See `Recorder`."""
        whole = tensor.untyped_storage()
        return self._memory(whole.data_ptr(), whole.nbytes(), keep)

    def _memory(self, address: int, size: int, keep: object = None) -> torch.Tensor:
        """Bytes that are there, as a tensor."""
        if not size:
            return torch.empty(0, dtype=torch.uint8, device=f"cuda:{self._device}")
        return torch.as_tensor(_Memory(address, size, keep), device=f"cuda:{self._device}")


class _Memory:
    """Bytes of a device, as other libraries hand them to torch: it refers to this object for as
    long as it refers to them (https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html).
    """

    def __init__(self, address: int, size: int, keep: object) -> None:
        self.keep = keep
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def _abandoned(graph: torch.cuda.CUDAGraph) -> None:
    """End a recording that failed; that it failed is known, and told by whoever made it."""
    with contextlib.suppress(RuntimeError):
        graph.capture_end()


class CudaWatch:
    """Two events around a run, and the clock on the wall for the thread that queues it: what that
    thread computes is less than the device waits for it where processors are shared."""

    def __init__(self, device: int) -> None:
        stream = torch.cuda.current_stream(device)
        self._before, self._after = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        )
        self._stream = stream
        self._before.record(stream)
        self._started = time.perf_counter()
        self._taken = 0.0

    def stop(self) -> None:
        """All is queued."""
        self._taken = time.perf_counter() - self._started
        self._after.record(self._stream)

    def seconds(self) -> tuple[float, float] | None:
        """Of queueing, and between the events; None while the second has not been reached."""
        if not self._after.query():
            return None
        return self._taken, float(self._before.elapsed_time(self._after)) * 1e-3


_POOLS: dict[tuple[int, int], Any] = {}
_WORKSPACES: dict[tuple[int, int], torch.cuda.MemPool] = {}
_STREAMS: dict[tuple[int, int], torch.cuda.Stream] = {}


def _pool(place: tuple[int, int]) -> Any:
    """The memory that recordings for a device and stream share."""
    found = _POOLS.get(place)
    if found is None:
        found = _POOLS[place] = torch.cuda.graph_pool_handle()
    return found


def _workspaces(place: tuple[int, int]) -> torch.cuda.MemPool:
    """Where the library's workspaces for what is recorded lie: what is freed there stays mapped."""
    found = _WORKSPACES.get(place)
    if found is None:
        with torch.cuda.device(place[0]):
            found = _WORKSPACES[place] = torch.cuda.MemPool()
    return found


def _side_stream(place: tuple[int, int]) -> torch.cuda.Stream:
    """Where work for a device and stream is recorded: libraries keep a workspace a stream."""
    found = _STREAMS.get(place)
    if found is None:
        found = _STREAMS[place] = torch.cuda.Stream(place[0])
    return found
