"""CUDA stream capture, and the cost of launching.

In: a function that queues work, inputs that move. Out: a function that queues all of it again at
once, after those inputs were copied into the recording. Invariant: what is recorded for one stream
shares neither temporary memory nor a library's workspace with what is recorded for another; from
a copy into a recording's memory to the end of the replay nobody else writes there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from flambeau_inductor._torch_compat import current_raw_stream, storage_handle, weak_storage
from flambeau_inductor.runtime.gpu.cuda_graphs import Call, RecordedGraph, Rules
from flambeau_inductor.runtime.gpu.shared_pool import seen_through, spanned
from flambeau_inductor.tuning import machine_of, tuning_for

SHARE_OF_MEMORY = 32
"""Recordings that nobody requested hold at most this part of the device's memory each."""


class CudaRecorder:
    """Records on a device."""

    device_type = "cuda"

    def __init__(self, device: int) -> None:
        self._device = device
        self.tuning = tuning_for(machine_of(device))

    def stream(self) -> int:
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
        return CudaWatch(self._device)

    def record(
        self, call: Call, args: list[Any], pool: Any, copied: Mapping[int, torch.Tensor]
    ) -> RecordedGraph:
        """Record what `call(args)` queues, in memory of its own where `pool` is None. `copied`:
        inputs by position that are replaced by memory of the recording."""
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
                with contextlib.suppress(RuntimeError):  # whoever made it reports what failed
                    graph.capture_end()
                raise
            graph.capture_end()
        return RecordedGraph(graph.replay, outputs, graph.pool())

    def pool(self) -> Any:
        """Memory for recordings of this stream of which nothing is alive between two replays."""
        return _found(_POOLS, (self._device, self.stream()), torch.cuda.graph_pool_handle)

    def warm(self) -> None:
        """Let the library of matrix products have its workspace for the stream, in no recording, by
        two calls. A recording knows its address, and others in the process clear workspaces, so it
        lies in memory that stays."""
        place = self._device, self.stream()
        staying = torch.cuda.use_mem_pool(
            _found(_WORKSPACES, place, torch.cuda.MemPool), self._device
        )
        with staying, torch.cuda.stream(_side_stream(place)):
            one = torch.ones((16, 16), dtype=torch.float16, device=f"cuda:{self._device}")
            torch.addmm(one[0], one, one.mm(one))

    def alias(self, tensors: Sequence[torch.Tensor], keep: object) -> torch.Tensor:
        """The bytes from the first to the last of the tensors' whole memory as a tensor that does
        not own them, nor what lies between; `keep` lives as long as it is referred to."""
        return self._memory(*spanned(tensors), keep)

    def _memory(self, address: int, size: int, keep: object = None) -> torch.Tensor:
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


class CudaWatch:
    """Two events around a run, and the wall clock of the thread that queues it: what that thread
    computes is less than the device waits for it where processors are shared."""

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


Place = TypeVar("Place")


def _found(
    known: dict[tuple[int, int], Place], at: tuple[int, int], make: Callable[[], Place]
) -> Place:
    """What there is for a device and a stream, made where it is not yet."""
    if at not in known:
        with torch.cuda.device(at[0]):
            known[at] = make()
    return known[at]


def _side_stream(at: tuple[int, int]) -> torch.cuda.Stream:
    """Where work for a device and stream is recorded: libraries keep a workspace a stream."""
    return _found(_STREAMS, at, lambda: torch.cuda.Stream(at[0]))


Memory = Callable[[int, int], torch.Tensor]
"""So many bytes at an address, as a tensor that does not keep them."""


@dataclass
class OwnInputs:
    """`call`, which replaces the inputs of `like`. `returned`: its results that lie in these."""

    call: Call
    like: Mapping[int, torch.Tensor]
    returned: frozenset[int] = frozenset()
    places: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        held = []
        for position, value in self.like.items():
            own = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=value.device
            )
            whole = own.untyped_storage()
            self.places.append((whole.data_ptr(), whole.nbytes()))
            held.append(weak_storage(own))
            args[position] = own
            del own, whole
        outputs = self.call(args)
        handles = {each.cdata for each in held}
        self.returned = frozenset(
            position
            for position, output in enumerate(outputs)
            if isinstance(output, torch.Tensor) and storage_handle(output) in handles
        )
        return outputs

    def buffers(self, memory: Memory) -> tuple[torch.Tensor, ...]:
        return tuple(
            seen_through(memory(*place), value, 0)
            for place, value in zip(self.places, self.like.values(), strict=True)
        )
