"""CUDA graphs: record once, replay by one launch.

In: a function of the boxed convention whose work is queued on a CUDA stream. Out: one that gives
the same results. Invariant: what a caller still refers to is never overwritten, and no input is
read at an address other than its present one; what does not fit the recording runs as it would
without one, counted with its reason.

An input with a stable address (a parameter, another recording's output, what an optimizer updates)
is read and written in place; any other is copied into the recording's memory. Outputs are handed
out as they are: the next replay makes sure that nobody refers to them; one that callers keep is
copied out by the next recording. What a recording saves for another is lent (`shared_pool`), so
that the memory of a forward and its backward graph is that of the larger. A recording that nobody
requested (`Rules.automatic`) is made only where launching took most of a run. Recordings that copy
everything out share the memory of a stream.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from flambeau_inductor._torch_compat import lie_at, storage_handle, storage_users
from flambeau_inductor.runtime.gpu.recording_policy import Launching, Steady
from flambeau_inductor.runtime.gpu.shared_pool import (
    RECORDED,
    Loan,
    address_of,
    best_loan,
    is_recorded,
    lendable,
    seen_through,
)

if TYPE_CHECKING:
    from flambeau_inductor.runtime.gpu.stream_capture import CudaRecorder

Call = Callable[[list[Any]], tuple[Any, ...]]

WARM_UP = 2
"""Plain runs before a recording: libraries allocate their workspaces, addresses settle."""
PATIENCE = 3
"""Calls in a row that do not fit a recording before it is made anew."""
MOST_RECORDINGS = 4
LASTING = 32
"""Replays that pay for a recording: inputs that are elsewhere after so many, as a new cache for
each text is, are read where they are now by another recording, which counts as none of the most."""


@dataclass(frozen=True)
class RecordedGraph:
    """How to replay a recording, its results, and the memory that they are in. `buffers` is where
    the inputs that are copied go before each replay, `returned` the results that lie there."""

    replay: Callable[[], None]
    outputs: tuple[Any, ...]
    pool: Any
    buffers: tuple[torch.Tensor, ...] = ()
    returned: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Rules:
    """What may be recorded.

    static: inputs that keep their addresses. inside: outputs that no caller sees (saved for a
    backward graph, or copied into an input afterwards). automatic: only where launches dominate.
    copies: small results that callers see are copied out. size: bytes that a recording holds.
    reusable: inputs that nobody reads afterwards. products: it multiplies matrices. updates:
    (output, input): outputs that may be that input, written where it is.
    """

    static: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()
    automatic: bool = False
    copies: bool = False
    size: int = 0
    reusable: tuple[int, ...] = ()
    products: bool = False
    updates: tuple[tuple[int, int], ...] = ()

    def data(self) -> dict[str, Any]:
        return asdict(self)


def rules_from(data: Mapping[str, Any]) -> Rules:
    """The rules of `Rules.data`, whose tuples JSON made lists."""
    return Rules(**{name: tuples_of(value) for name, value in data.items()})


def tuples_of(value: Any) -> Any:
    """Lists, as JSON gives them, as the tuples they were."""
    return tuple(map(tuples_of, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class CudaGraphRecording:
    """`places` are the inputs that are read in place, `addresses` where each of them is, `copied`
    those that go to the buffers of what was `made`; `written` has the input of each result that is
    one, written in place; `handed_out` are the outputs that are given as they are, `handles` the
    storages of their memory and `users` the references to each; `copies` copy the others out;
    `loan` is what another recording may put its values into."""

    made: RecordedGraph
    stream: int
    handed_out: tuple[int, ...]
    handles: tuple[int, ...]
    users: list[int]
    copies: tuple[Copies, ...]
    places: list[int]
    addresses: list[int]
    copied: tuple[int, ...]
    written: Mapping[int, int]
    loan: Loan | None = None


class NotRecordable(RuntimeError):
    """The work cannot be recorded; the text says why."""


class Recorded:
    """`call`, recorded after a few runs. `plain` counts calls without the recording, by reason."""

    def __init__(self, call: Call, rules: Rules, recorder: CudaRecorder) -> None:
        self.plain: Counter[str] = Counter()
        self.replays = 0
        self.rules = rules
        self._call = call
        self._steady = Steady(rules.static, rules.updates, recorder.tuning.copied_bytes)
        self._launching: Launching | None = None
        self._results: dict[int, int] = {}
        self._recorder = recorder
        self._recording: CudaGraphRecording | None = None
        self._made = 0
        self._misfits = self._served = 0
        self._lends, self._overwritable = True, 0
        self._copied_out: set[int] = set()
        self._refusal: str | None = None
        self._lock = threading.Lock()

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        if self._refusal is not None:
            return self._run(args, self._refusal)
        if (busy := self._recorder.busy()) is not None:
            return self._run(args, busy)
        with self._lock:
            recording = self._recording
            if recording is None:
                return self._before_recording(args)
            reason = self._misfit(recording, args)
            if reason is None:
                self._misfits = 0
                return self._replay(recording, args)
            self._misfits += 1
            if self._stays_elsewhere(recording, args):
                return self._recorded(args)
            self._overwritable += reason == LENT
            if PATIENCE in (self._misfits, self._overwritable):
                self._lends = self._lends and reason != LENT
                self._misfits, self._overwritable, self._recording = 0, 0, None
                self._copied_out.update(_live_outputs(recording))
                if self._made >= MOST_RECORDINGS:
                    self._refusal = f"{MOST_RECORDINGS} recordings did not fit: {reason}"
        return self._run(args, reason)

    def _run(self, args: list[Any], reason: str) -> tuple[Any, ...]:
        self.plain[reason] += 1
        return self._call(args)

    def _before_recording(self, args: list[Any]) -> tuple[Any, ...]:
        if self.plain["warming up"] < WARM_UP * (self._made + 1):
            given = self._steady.before(args)
            made = self._run(args, "warming up")
            self._steady.after(given, made)
            self._results = {  # whose sizes those of the recording will have
                position: value.untyped_storage().nbytes()
                for position, value in enumerate(made)
                if isinstance(value, torch.Tensor)
            }
            return made
        if self.rules.automatic and not self._made:
            if (reason := self._judge()) is not None:
                return self._watched(args, reason)
        if self.rules.automatic and self._moving(args) > self._recorder.tuning.moving_bytes:
            return self._run(args, MOVING)
        self._made += 1
        return self._recorded(args)

    def _recorded(self, args: list[Any]) -> tuple[Any, ...]:
        """The results, by a new recording."""
        self._recording = None
        self._misfits = self._served = 0
        try:
            recording = self._record(args)
        except (NotRecordable, RuntimeError) as error:
            self._refusal = f"it cannot be recorded: {str(error).splitlines()[0]}"
            return self._run(args, self._refusal)
        self._recording = recording
        return self._replay(recording, args)

    def _stays_elsewhere(self, recording: CudaGraphRecording, args: list[Any]) -> bool:
        """Whether inputs are elsewhere than in a recording that paid, where they were at the call
        before; those that move sooner, or at each call, are copied from then on."""
        moved = _moved(recording, args)
        stay = self._steady.elsewhere(moved, args) and self._misfits > 1
        if self._served < LASTING or (not stay and self._misfits == PATIENCE):
            self._steady.moved(moved)
        return bool(moved) and stay and self._served >= LASTING

    def _judge(self) -> str | None:
        """Why there is no recording yet, or None where launches were seen to dominate."""
        if self._launching is None:
            self._refusal = self._recorder.refusal(self.rules)
            self._launching = Launching()
        if self._refusal is not None or self._launching.dominates():
            return self._refusal
        return MEASURED if self._launching.undecided else BUSY

    def _watched(self, args: list[Any], reason: str) -> tuple[Any, ...]:
        if self._launching is None or self._refusal is not None or not self._launching.due():
            return self._run(args, reason)
        watch = self._recorder.watch()
        made = self._run(args, reason)
        watch.stop()
        self._launching.measure(watch)
        return made

    def _moving(self, args: Sequence[Any]) -> int:
        return sum(
            value.untyped_storage().nbytes()
            for position, value in enumerate(args)
            if isinstance(value, torch.Tensor)
            and not self._steady(position, value)
            and not is_recorded(value)
        )

    def _record(self, args: Sequence[Any]) -> CudaGraphRecording:
        stream = self._recorder.stream()
        pinned, copied = self._places(args)
        if self.rules.copies:
            small = (k for k, n in self._results.items() if n <= self._recorder.tuning.copied_bytes)
            self._copied_out.update(k for k in small if k not in self.rules.inside)
        if self.rules.products:
            self._recorder.warm()
        found = best_loan(args, self.rules.reusable, stream)
        loan, taken = (None, {}) if found is None else (found[0], found[0].take(found[1]))
        given = list(args)
        for position, at in pinned:
            if at in taken:
                given[position] = seen_through(taken[at], given[position])
        kept = [args[position] for position, at in pinned if at not in taken]
        places = tuple(position for position, _ in pinned)
        here = frozenset(places)
        written = {out: at for out, at in self._steady.written.items() if at in here}
        shared = bool(self._results) and self._copied_out >= self._results.keys() - written.keys()
        pool = loan.pool if loan is not None and taken else None
        taken.clear()  # only `given` holds what was lent, and the call gives it up as it goes
        own = self._recorder.pool() if shared and pool is None else pool
        own_inputs = {position: args[position] for position in copied}
        made = self._recorder.record(self._call, given, own, own_inputs)
        self._copied_out.update(made.returned)
        outputs = (None if k in written else output for k, output in enumerate(made.outputs))
        made = replace(made, outputs=tuple(outputs))  # without inputs that are written in place
        memory = {storage_handle(each) for each in kept}
        results = (each for each in made.outputs if isinstance(each, torch.Tensor))
        if any(storage_handle(each) in memory for each in results):
            raise NotRecordable("a result is an input as it came")
        where, lent = self._lent(made, stream) if self._lends else (made.outputs, None)
        made = replace(made, outputs=where)
        # it is known now which outputs are handed out as they are
        handed_out = [
            (position, output)
            for position, output in enumerate(made.outputs)
            if isinstance(output, torch.Tensor) and position not in self._copied_out
        ]
        handles = tuple(dict.fromkeys(storage_handle(output) for _, output in handed_out))
        copies = _copies(made.outputs, self._copied_out)  # of which some are references
        recording = CudaGraphRecording(
            made,
            stream,
            tuple(position for position, _ in handed_out),
            handles,
            [*map(storage_users, handles)],
            copies,
            [*places],
            [args[at].data_ptr() if at in here else 0 for at in range(len(args))],
            tuple(copied),
            written,
            lent,
        )
        handed = frozenset(address_of(output) for _, output in handed_out)
        handed |= frozenset() if lent is None else lent.owners.keys()
        RECORDED.add(handed, lent)
        weakref.finalize(recording, RECORDED.discard, handed, lent)
        if loan is not None and pool is not None:
            loan.held = lambda: _is_live(recording)
        return recording

    def _places(self, args: Sequence[Any]) -> tuple[list[tuple[int, int]], list[int]]:
        """Inputs that are read where they are, with where their memory begins, and the others."""
        pinned: list[tuple[int, int]] = []
        copied: list[int] = []
        for position, value in enumerate(args):
            if not isinstance(value, torch.Tensor):
                raise NotRecordable(f"input {position} is a {type(value).__name__}")
            if value.device.type != self._recorder.device_type:
                raise NotRecordable(f"input {position} is on {value.device}")
            if self._steady(position, value) or is_recorded(value):
                pinned.append((position, RECORDED.home(value)))
            else:
                copied.append(position)
        return pinned, copied

    def _lent(self, made: RecordedGraph, stream: int) -> tuple[tuple[Any, ...], Loan | None]:
        """The outputs, of those that are saved for another recording only where they are, and the
        loan that keeps their memory."""
        outputs = list(made.outputs)
        found = lendable(outputs, self.rules.inside, self._copied_out)
        if not found:
            return made.outputs, None
        owners = {at: outputs[positions[0]] for at, positions in found.items()}
        memory = self._recorder.alias(list(owners.values()), made.replay)
        for positions in found.values():
            for position in positions:
                outputs[position] = seen_through(memory, outputs[position])
        loan = Loan(stream, made.pool, owners, storage_handle(memory), tuple(sorted(owners)))
        return tuple(outputs), loan

    def _misfit(self, recording: CudaGraphRecording, args: list[Any]) -> str | None:
        if self._recorder.stream() != recording.stream:
            return "another stream"
        if moved := _moved(recording, args):
            return f"input {moved[0]} has moved"
        if recording.loan is not None and recording.loan.in_use():
            return LENT
        return HELD if _is_live(recording) else None

    def _replay(self, recording: CudaGraphRecording, args: list[Any]) -> tuple[Any, ...]:
        if recording.made.buffers:
            values = [args[position] for position in recording.copied]
            torch._foreach_copy_(list(recording.made.buffers), values)
        written = {out: args[position] for out, position in recording.written.items()}
        args.clear()
        recording.made.replay()
        self.replays += 1
        self._served += 1
        results = list(recording.made.outputs)
        for position in recording.handed_out:
            results[position] = results[position].detach()
        for copies in recording.copies:
            copies.into(results)
        for position, value in written.items():
            results[position] = value
        return tuple(results)


HELD = "an output of the last replay is still held"
LENT = "what was made in its memory, a gradient, is still held"
MEASURED = "what launching takes is measured"
MOVING = "inputs of many bytes are elsewhere at each call"
BUSY = "the device takes longer than launching does"


def _moved(recording: CudaGraphRecording, args: list[Any]) -> list[int]:
    """Inputs that the recording reads in place and that are elsewhere now."""
    if lie_at(args, recording.addresses, recording.places):
        return []
    return [at for at in recording.places if args[at].data_ptr() != recording.addresses[at]]


def _is_live(recording: CudaGraphRecording) -> bool:
    """Whether an output of the last replay is live: somebody refers to it."""
    return [*map(storage_users, recording.handles)] != recording.users


def _live_outputs(recording: CudaGraphRecording) -> list[int]:
    """Which outputs of the last replay somebody refers to."""
    known = zip(recording.handles, recording.users, strict=True)
    live = {handle for handle, users in known if storage_users(handle) != users}
    return [at for at in recording.handed_out if storage_handle(recording.made.outputs[at]) in live]


class Copies:
    """Copies of outputs of one dtype, made together: a kernel for many, not one for each."""

    def __init__(self, places: Sequence[int], outputs: Sequence[torch.Tensor]) -> None:
        self._places = places
        self._seen = [(output.shape, output.stride()) for output in outputs]
        self._sources = list(map(_memory, outputs))
        self._laid_out = [
            (source.shape, source.stride(), source.dtype, source.device) for source in self._sources
        ]

    def into(self, results: list[Any]) -> None:
        """Put copies, each with its output's strides, at the outputs' places."""
        made = [
            torch.empty_strided(size, stride, dtype=dtype, device=device)
            for size, stride, dtype, device in self._laid_out
        ]
        torch._foreach_copy_(made, self._sources)
        for place, copy, (size, stride) in zip(self._places, made, self._seen, strict=True):
            results[place] = copy if copy.shape == size else copy.as_strided(size, stride)


def _memory(value: torch.Tensor) -> torch.Tensor:
    """A dense tensor itself; of one with gaps, or whose elements overlap, all its memory."""
    if torch.empty_like(value, device="meta").stride() == value.stride():
        return value
    last = sum((n - 1) * stride for n, stride in zip(value.shape, value.stride(), strict=True))
    return value.as_strided((last + 1,), (1,))


def _copies(outputs: Sequence[Any], places: Collection[int]) -> tuple[Copies, ...]:
    by_dtype: dict[torch.dtype, list[int]] = {}
    for place, output in enumerate(outputs):
        if place in places and isinstance(output, torch.Tensor):
            by_dtype.setdefault(output.dtype, []).append(place)
    return tuple(Copies(each, [outputs[place] for place in each]) for each in by_dtype.values())
