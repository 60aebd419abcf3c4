"""The frame compiler: which frames are converted, and what a failure leads to.

In: a frame that no entry fits. Out: an `Entry` of the frame cache, made by `convert.py`, or a word
that the frame runs as it is. Invariant: whatever fails here, the user's program runs as it would
without compiling, and what failed is on record. Where the user wants one graph (`nopython`) no
frame of theirs runs as it is: each of the roads that end so raises, with the reason.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from flambeau_capture import _torch_compat as compat
from flambeau_capture._native import SKIP, Entry, FrameCache, disabled, stance
from flambeau_capture.backends import Backend
from flambeau_capture.breaks import REASONS, BreakReport, SkipFrame, Unsupported, UserLine
from flambeau_capture.builtins.tensors.torch_functions import is_packed_call
from flambeau_capture.emit.level import emit_original
from flambeau_capture.emit.names import EntryNames
from flambeau_capture.errors import (
    BackendError,
    CaptureFault,
    ConstraintViolation,
    RecompileError,
    SizePolicyError,
)
from flambeau_capture.frame.conversion import FrameConversion, is_fault_of_a_stage
from flambeau_capture.frame.entry_lifetimes import Lifetime
from flambeau_capture.frame.recompile_limits import Patience, hint
from flambeau_capture.frame.sizes.dynamism import DynamismTracker
from flambeau_capture.frame.skip_rules import is_made_by_library, runs_uncaptured, skip_code
from flambeau_capture.frame.stance import waits
from flambeau_capture.frame.timing_trials import Clock, EntryTrial, Trial, TrialVerdict
from flambeau_capture.identity import IdentityMap
from flambeau_capture.interp.frame import Prepared
from flambeau_capture.observe import frame_recording, logs
from flambeau_capture.observe.logs import warn
from flambeau_capture.observe.records import RecompileRecord, RecordedFault, Records, without_frames
from flambeau_capture.options import Options
from flambeau_capture.signal_handlers import HANDLERS, raised_by_handler
from flambeau_capture.source import FrameCall, Scope

LONGEST_WAIT = 600.0
"""Seconds that a call of one graph waits for another thread's compilation of it."""

Observer = Callable[..., None]
"""Called with the parts of a `FrameCall` that no entry fits, in place of a conversion."""


class FrameCompiler:
    """The `convert` of one compiled callable's frame cache."""

    def __init__(self, backend: Backend, backend_name: str, options: Options) -> None:
        self.backend = backend
        self.backend_name = backend_name
        self.options = options
        self.names = EntryNames(self)
        self.records = Records()
        self.bodies: IdentityMap[CodeType, Prepared] = IdentityMap()
        self.user_names = self.names.user_names
        self.observer: Observer | None = None
        self.dynamics = DynamismTracker(options.dynamic, backend)
        self.clock: Clock = time.perf_counter
        self.patience = Patience(options.compile_seconds, options.cache_size_limit)
        self._lock = threading.Lock()
        self._owner: int | None = None

    def __call__(self, *call: Any) -> Any:
        """What is to run: is given the parts of a `FrameCall`, and the cache."""
        frame, cache = FrameCall(*call[:-1]), call[-1]
        code, func = frame.code, frame.func
        unseen = compat.is_disabled(func)
        if unseen and (alone := compat.disabled_alone(func)) is not None:
            cache.skip(alone)
            return None  # another function's wrapper has the same code
        if unseen or compat.compiled_by_torch(func) or runs_uncaptured(code):
            return Entry(emit_original(code, disabled), None)
        names = self.names
        if names.runs_natively(code) or (skip_code(code) and not names.is_resumption(code)):
            return SKIP
        if self._left_out(code) or is_made_by_library(code, func.__module__ or ""):
            return SKIP
        if compat.foreign_modes():  # under them tensors are not what they seem
            what = "what is called here is not plain tensors' work"
            return self._as_it_is(code, "FB0027", what + self._why_left_to_python())
        if not self.dynamics.data_sizes(code) and is_packed_call(func, frame.arguments):
            return self._as_it_is(code, "FB0004", f"{func.__qualname__} of a packed sequence")
        if not self._acquire():
            return self._as_it_is(code, "FB0026", "another call is compiling at this moment")
        try:
            return HANDLERS.during(lambda: self._in_own_state(frame, cache))
        finally:
            self._owner = None
            self._lock.release()

    def _in_own_state(self, frame: FrameCall, cache: Any) -> Any:
        """What the frame is to run, made aside from the program's state of the thread."""
        with (
            compat.foreign_modes_left(),
            _garbage_waits(),
            compat.own_saved_tensors(),
            compat.default_device_aside(),
        ):
            return HANDLERS.within(lambda: self._missed(frame, cache))

    def _acquire(self) -> bool:
        """Take the lock; another thread that compiles may run user code, which nobody waits for,
        but where running as it is would be an error."""
        own = threading.get_ident()
        wait = self.options.nopython and self._owner != own
        if not self._lock.acquire(timeout=LONGEST_WAIT if wait else 0):
            return False
        self._owner = own
        return True

    def _as_it_is(self, code: CodeType, id: str, what: str) -> None:
        """This call runs as it is, which is recorded, or raises where `nopython` is set."""
        report = BreakReport(REASONS[id], what, (UserLine.first_of(code),))
        if self.options.nopython:
            raise Unsupported(report)
        self.records.skip(self.user_names.get(code, code.co_name), f"{id} {what}")

    def _why_left_to_python(self) -> str:
        """Where a graph that ended has left a transform, whose function runs now, to Python."""
        stops = self.records.stops
        caller: FrameType | None = sys._getframe(1)
        while stops and caller is not None:
            found = stops.get((caller.f_code.co_filename, caller.f_lineno))
            if found is not None:
                return f", because a graph ended before: {found.reason.id} {found.what}"
            caller = caller.f_back
        return ""

    def _missed(self, frame: FrameCall, cache: Any) -> Any:
        """A call that no entry of the cache fitted."""
        code = frame.code
        known = cache.entries(code)
        entries = [entry for entry in known if not _has_ended(entry)]
        if _fits(entries, frame.scope()):
            return None  # another thread has just made what this one came for
        if self.observer is not None:
            inside = _inside_missed(sys._getframe(1), code, cache)
            if entries and not inside:
                self.observer(*frame)
            if entries or inside:
                return None
        if waits() and not entries and self.dynamics.first_call(code, frame.scope().locals):
            return None
        record = self._note_recompile(frame, entries)
        if entries and "fail_on_recompile" in (stance(), cache.mode):
            raise RecompileError(str(record or f"{code.co_name} is compiled again"))
        call = cache.counters()["calls"]
        first = not entries and code not in self.records.ended
        if first and self.patience.made_again(code, call):
            self._give_up(cache, f"{code.co_name} is made anew in call after call", code)
            return None
        before = self.clock()
        answer = self._convert(frame, cache)
        if self.patience.spend(call, self.clock() - before):
            self._give_up(cache, "something is compiled in call after call")
        return answer

    def _give_up(self, cache: FrameCache, why: str, code: CodeType | None = None) -> None:
        """Compile nothing more: of one code object, or of all."""
        if self.options.nopython:
            raise RecompileError(why)
        if code is not None:
            cache.run_plain(code)
            text = f"{why}: it runs as it is. Try: make the function once, outside of the call"
        elif cache.mode == "default":
            cache.mode = "run_only"
            most = next(iter(self.records.recompiles_by_object().items()), None)
            text = (
                f"{why}, and it took more than {self.options.compile_seconds:g} s "
                f"(compile_seconds): nothing more is compiled"
            )
            if most is not None:
                newest = (record.failures[0] for record in reversed(self.records.recompiles))
                last = next(each for each in newest if str(each.guard).startswith(most[0]))
                times = f"What varied most often ({most[1]} times)"
                text += f". {times}: {last.in_words()}. Try: {hint(last)}"
        else:
            return
        self.settled(text)
        warn(text)

    def start_again(self, cache: FrameCache) -> None:
        """Forget what was decided on compiling no more."""
        self.patience = Patience(self.options.compile_seconds, self.options.cache_size_limit)
        self.records.ended.clear()
        if cache.mode == "run_only":
            cache.mode = "default"

    def settled(self, text: str) -> None:
        """Note that something compiles no more, or runs as it is."""
        self.records.settled.append(text)
        self.publish("settled", text)
        logs.emit("settled", lambda: text)

    def _try(self, code: CodeType, conversion: FrameConversion, cache: FrameCache) -> None:
        """Put a frame on trial: the code of one that capture could not take whole, the entry of
        one that it could, where the backend is made for speed."""
        wanted = self.options.never_slower and not getattr(self.backend, "own_numbers", False)
        if not wanted or self.names.is_resumption(code):
            return
        whole = conversion.whole if getattr(self.backend, "made_for_speed", False) else None
        place = f"{conversion.origin.co_name} ({code.co_filename}:{code.co_firstlineno})"
        decide = functools.partial(_decide, weakref.ref(self), weakref.ref(cache), code)
        if conversion.in_parts:
            count = functools.partial(_compilations, weakref.ref(cache))
            decide_code = functools.partial(decide, None)
            why = "" if conversion.stopped is None else f". {conversion.stopped.as_advice()}"
            cache.set_trial(code, Trial(place, self.clock, count, decide_code, why))
        elif whole is not None:
            whole.trial = EntryTrial(place, decide)

    def _note_recompile(self, frame: FrameCall, entries: Sequence[Entry]) -> RecompileRecord | None:
        """Say why none of a frame's entries fits it."""
        code, scope = frame.code, frame.scope()
        made = {id(guards): number for number, guards in enumerate(self.records.guards)}
        known = [entry.info for entry in entries if entry.info is not None]
        known.sort(key=lambda guards: -made.get(id(guards), -1))
        known.sort(key=lambda guards: guards.misses(scope))
        found = [failure for info in known if (failure := info.explain(scope)) is not None]
        found += self.records.failures_of_ended(code, scope)
        if not found:
            return None
        name = self.user_names.get(code, code.co_name)
        record = RecompileRecord(name, code.co_filename, code.co_firstlineno, tuple(found))
        self.records.recompiles.append(record)
        self.publish("recompile", record)
        logs.emit("recompiles", lambda: str(record))
        return record

    def _left_out(self, code: CodeType) -> bool:
        """Whether `debug_function` names another function."""
        only = self.options.debug_function
        return only is not None and self.user_names.get(code, code.co_name) != only

    def _record_failure(self, frame: FrameCall, error: Exception) -> str:
        """Where the frame was recorded, as a sentence; nothing where no folder is given."""
        folder = self.options.record_failures
        if folder is None:
            return ""
        try:
            path = frame_recording.record(folder, frame, error)
        except OSError as refused:
            return f" Its frame could not be recorded: {refused}."
        return f" Its frame is recorded: flambeau_capture.replay({path!r})."

    def _convert(self, frame: FrameCall, cache: FrameCache) -> Any:
        started, code = time.perf_counter(), frame.code
        conversion = FrameConversion(self, frame, cache)
        try:
            return conversion.run()
        except (ConstraintViolation, SizePolicyError):
            raise
        except (Unsupported, BackendError) as error:
            self._interrupted(conversion, error)
            if isinstance(error, Unsupported) or self.options.nopython:
                raise
            if self.options.raise_internal_errors and is_fault_of_a_stage(error):
                raise
            conversion.outcome, conversion.in_parts = "backend failed", True
            without_frames(error)
            self.records.backend_errors.append(error)
            warn(f"{error}; {code.co_name} runs eagerly")
            return SKIP
        except SkipFrame as reason:
            without_frames(reason)
            conversion.outcome = str(reason)
            conversion.in_parts = str(reason) != "nothing to compile"
            if self.options.nopython:
                line = UserLine.first_of(conversion.origin)
                raise Unsupported(BreakReport(REASONS["FB0026"], str(reason), (line,))) from None
            if conversion.in_parts:
                self.records.skip(code.co_name, str(reason))
            return SKIP
        except Exception as error:
            self._interrupted(conversion, error)
            conversion.outcome = f"capture failed: {type(error).__name__}: {error}"
            conversion.in_parts = True
            recorded = self._record_failure(frame, error)
            fault = RecordedFault(conversion.origin.co_name, conversion.where(error), error)
            first = not self.records.faults
            self.records.faults.append(fault)
            if self.options.raise_internal_errors:
                raise
            text = f"capture failed on {code.co_name} ({type(error).__name__}: {error})"
            if self.options.nopython:
                at = f"\n{fault.line}" if fault.line is not None else ""
                text = f"{text}, which is a fault of flambeau-capture.{recorded}{at}"
                raise CaptureFault(text) from error
            without_frames(error)
            if first:
                warn(f"{text}; it runs eagerly. This is a fault of flambeau-capture.{recorded}")
            return SKIP
        finally:
            self._try(code, conversion, cache)
            record = conversion.record(time.perf_counter() - started)
            self.records.note(record)
            self.publish("frame", record)
            logs.emit("frames", lambda: str(record))

    def _interrupted(self, conversion: FrameConversion, error: Exception) -> None:
        """Raise what a signal handler of the program has raised, which is to stop the call."""
        found = raised_by_handler(error)
        if found is not None:
            conversion.outcome = f"interrupted by {type(found).__name__}"
            raise found

    def publish(self, kind: str, record: object) -> None:
        """Pass a record on to `watch`."""
        if self.options.watch is not None:
            self.options.watch(kind, record)

    def show(self, artifact: str, text: Callable[[], str]) -> None:
        """Print it where `debug` is set, and log it for listeners of the artifact."""
        if self.options.debug:
            self.options.show(text())
        logs.emit(artifact, text)


def _compilations(cache: weakref.ref[FrameCache]) -> int:
    """How often anything was compiled."""
    found = cache()
    return 0 if found is None else found.counters()["conversions"]


def _decide(
    converter: weakref.ref[FrameCompiler],
    cache: weakref.ref[FrameCache],
    code: CodeType,
    entry: Entry | None,
    verdict: TrialVerdict,
) -> None:
    """End a frame's trial."""
    ours, found = converter(), cache()
    if ours is None or found is None:
        return
    for tried in found.entries(code) if entry is None else [entry]:
        tried.verdict = (verdict, tried.hits)
    if entry is not None:
        entry.trial, entry.plain = None, verdict.slower
    else:
        found.set_trial(code, None)
        if verdict.slower:
            found.run_plain(code)
    if verdict.slower:
        ours.settled(str(verdict))
    else:
        logs.emit("settled", lambda: str(verdict))


def _inside_missed(frame: FrameType | None, code: CodeType, cache: Any) -> bool:
    """Whether a frame that has entries, none of which fits, has called this one: it
    runs as it is, and what it calls is no matter of its own."""
    while frame is not None and (frame.f_code.co_filename == __file__ or frame.f_code is code):
        frame = frame.f_back
    while frame is not None and not cache.entries(frame.f_code):
        frame = frame.f_back
    return frame is not None


def _has_ended(entry: Entry) -> bool:
    return isinstance(entry.keepalive, Lifetime) and entry.keepalive.end_if_over()


def _fits(entries: Sequence[Entry], scope: Scope) -> bool:
    return any(entry.info is not None and entry.info.check(scope) for entry in entries)


@contextmanager
def _garbage_waits() -> Iterator[None]:
    """Capture makes many objects that live on: to collect among them costs more than it frees."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
