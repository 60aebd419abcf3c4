"""A compiled graph recorded once as a CUDA graph and replayed with one launch.

In: a function of the boxed convention whose work is queued on a CUDA stream. Out: one that gives
the same results. Invariant: what a caller still holds is never overwritten, and no input is read at
an address other than the one it has now; whatever does not fit the recording runs as it would
without one, and is counted with its reason.

The rules: an input with a stable address (a parameter, or the output of another recording) is read
where it is, and its address is checked at each call; any other input is copied into a buffer of the
recording. Outputs are handed out as they are: the next replay first makes sure that nobody holds
their memory any more. One that callers keep holding (a loss in a list) is copied out by the next
recording. Recordings of a device share one memory pool, which is sound because they run one after
another on one stream.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from flambeau_inductor._torch_compat import current_raw_stream, storage_handle, storage_users

Call = Callable[[list[Any]], tuple[Any, ...]]

WARM_UP = 2
"""Plain runs before a recording: libraries allocate their workspaces, addresses settle."""
PATIENCE = 3
"""Calls in a row that do not fit a recording before it is made anew."""
MOST_RECORDINGS = 4


class Recorder(Protocol):
    """Where work is recorded."""

    device_type: str

    def stream(self) -> int:
        """The stream that the caller is on."""
        ...

    def record(
        self, run: Callable[[], tuple[Any, ...]]
    ) -> tuple[Callable[[], None], tuple[Any, ...]]:
        """Record what `run` queues: how to replay it, and its results."""
        ...


@dataclass(frozen=True)
class Recording:
    """`pinned` holds the address of each input that is read in place, `buffers` are the others;
    `users` counts the references to the memory of each output that is handed out, by handle."""

    replay: Callable[[], None]
    stream: int
    outputs: tuple[Any, ...]
    users: tuple[tuple[int, int, int], ...]
    copied_out: frozenset[int]
    pinned: tuple[tuple[int, int], ...]
    copied: tuple[int, ...]
    buffers: tuple[torch.Tensor, ...]


class NotRecordable(RuntimeError):
    """The work cannot be recorded; the text says why."""


class Recorded:
    """`call`, recorded after a few runs. `plain` counts the calls that ran without it, by reason.

    static: positions of inputs that keep their addresses.
    """

    def __init__(self, call: Call, static: Sequence[int], recorder: Recorder) -> None:
        self.plain: Counter[str] = Counter()
        self.replays = 0
        self._call = call
        self._static = frozenset(static)
        self._recorder = recorder
        self._recording: Recording | None = None
        self._made = 0
        self._misfits = 0
        self._copied_out: set[int] = set()
        self._refusal: str | None = None
        self._lock = threading.Lock()

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        if self._refusal is not None:
            return self._run(args, self._refusal)
        with self._lock:
            recording = self._recording
            if recording is None:
                return self._before_recording(args)
            reason = self._misfit(recording, args)
            if reason is None:
                self._misfits = 0
                return self._replay(recording, args)
            self._misfits += 1
            if self._misfits >= PATIENCE:
                self._misfits, self._recording = 0, None
                self._copied_out.update(_held(recording))
                if self._made >= MOST_RECORDINGS:
                    self._refusal = f"{MOST_RECORDINGS} recordings did not fit: {reason}"
        return self._run(args, reason)

    def _run(self, args: list[Any], reason: str) -> tuple[Any, ...]:
        self.plain[reason] += 1
        return self._call(args)

    def _before_recording(self, args: list[Any]) -> tuple[Any, ...]:
        if self.plain["warming up"] < WARM_UP * (self._made + 1):
            return self._run(args, "warming up")
        try:
            recording = self._record(args)
        except (NotRecordable, RuntimeError) as error:
            self._refusal = f"it cannot be recorded: {str(error).splitlines()[0]}"
            return self._run(args, self._refusal)
        self._recording = recording
        self._made += 1
        return self._replay(recording, args)

    def _record(self, args: Sequence[Any]) -> Recording:
        inputs: list[Any] = []
        pinned: list[tuple[int, int]] = []
        copied: list[int] = []
        for position, value in enumerate(args):
            if not isinstance(value, torch.Tensor):
                raise NotRecordable(f"input {position} is a {type(value).__name__}")
            if value.device.type != self._recorder.device_type:
                raise NotRecordable(f"input {position} is on {value.device}")
            if position in self._static or is_recorded(value):
                pinned.append((position, value.data_ptr()))
                inputs.append(value)
            else:
                copied.append(position)
                inputs.append(_buffer_like(value))
        buffers = tuple(inputs[position] for position in copied)
        _copy(buffers, [args[position] for position in copied])
        stream = self._recorder.stream()
        replay, outputs = self._recorder.record(lambda: self._call(list(inputs)))
        recording = Recording(
            replay=replay,
            stream=stream,
            outputs=outputs,
            users=tuple(
                (position, handle, storage_users(handle))
                for position, output in enumerate(outputs)
                if isinstance(output, torch.Tensor) and position not in self._copied_out
                for handle in [storage_handle(output)]
            ),
            copied_out=frozenset(self._copied_out),
            pinned=tuple(pinned),
            copied=tuple(copied),
            buffers=buffers,
        )
        tensors = [output for output in outputs if isinstance(output, torch.Tensor)]
        addresses = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        _RECORDED.add(addresses)
        weakref.finalize(recording, _RECORDED.discard, addresses)
        return recording

    def _misfit(self, recording: Recording, args: Sequence[Any]) -> str | None:
        """Why this call cannot be a replay."""
        if self._recorder.stream() != recording.stream:
            return "another stream"
        for position, address in recording.pinned:
            if args[position].data_ptr() != address:
                return f"input {position} has moved"
        return HELD if _held(recording) else None

    def _replay(self, recording: Recording, args: list[Any]) -> tuple[Any, ...]:
        if recording.buffers:
            _copy(recording.buffers, [args[position] for position in recording.copied])
        args.clear()
        recording.replay()
        self.replays += 1
        copied = recording.copied_out
        return tuple(
            _handed_out(output, position in copied)
            for position, output in enumerate(recording.outputs)
        )


HELD = "an output of the last replay is still held"


class _Addresses:
    """Storages that living recordings hand out."""

    def __init__(self) -> None:
        self._found: set[int] = set()
        self._lock = threading.Lock()

    def add(self, addresses: set[int]) -> None:
        with self._lock:
            self._found |= addresses

    def discard(self, addresses: set[int]) -> None:
        with self._lock:
            self._found -= addresses

    def __contains__(self, address: object) -> bool:
        return address in self._found


_RECORDED = _Addresses()


def is_recorded(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory belongs to a recording's outputs."""
    return tensor.untyped_storage().data_ptr() in _RECORDED


def _held(recording: Recording) -> list[int]:
    """Outputs of the last replay whose memory somebody still refers to."""
    return [p for p, handle, users in recording.users if storage_users(handle) != users]


def _handed_out(output: Any, copied: bool) -> Any:
    if not isinstance(output, torch.Tensor):
        return output
    return output.clone() if copied else output.detach()


def _buffer_like(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def _copy(buffers: Sequence[torch.Tensor], values: Sequence[Any]) -> None:
    if buffers:
        torch._foreach_copy_(list(buffers), list(values))


class CudaRecorder:
    """Records on a device, into the memory pool that all its recordings share."""

    device_type = "cuda"

    def __init__(self, device: int) -> None:
        self._device = device

    def stream(self) -> int:
        return current_raw_stream(self._device)

    def record(
        self, run: Callable[[], tuple[Any, ...]]
    ) -> tuple[Callable[[], None], tuple[Any, ...]]:
        torch.cuda.synchronize(self._device)
        try:
            return self._recorded(run)
        except Exception:
            # the random generator of the device still waits for the end of the broken recording
            self._recorded(tuple)
            raise

    def _recorded(
        self, run: Callable[[], tuple[Any, ...]]
    ) -> tuple[Callable[[], None], tuple[Any, ...]]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=_pool(self._device), capture_error_mode="thread_local"):
            outputs = run()
        return graph.replay, outputs


_POOLS: dict[int, Any] = {}


def _pool(device: int) -> Any:
    """The memory pool of a device's recordings."""
    found = _POOLS.get(device)
    if found is None:
        found = _POOLS[device] = torch.cuda.graph_pool_handle()
    return found
