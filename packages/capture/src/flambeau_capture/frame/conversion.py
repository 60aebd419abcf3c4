"""Frame conversion: symbolic execution, graph compilation, code generation, guards.

In: a code object with the state it is entered in. Out: an `Entry` of the frame cache. Invariant:
what cannot be done leaves as an exception, and nothing of the program has been changed by then.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import itemgetter
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture._native import Entry, disabled, follow
from flambeau_capture.breaks import (
    REASONS,
    Break,
    BreakReport,
    CaptureAgain,
    RunsAsItIs,
    SkipFrame,
    Unsupported,
    UserLine,
)
from flambeau_capture.builtins.autograd.gradients import (
    copy_that_shows,
    leaving_leaf,
    read_before_derivatives,
    separately_undefined,
)
from flambeau_capture.bytecode.listing import listing
from flambeau_capture.bytecode.pools import AssembleError
from flambeau_capture.bytecode.stack import StackError
from flambeau_capture.emit.frame import (
    CompiledGraphCall,
    FramePlan,
    FrameState,
    emit,
    plan_break,
    plan_return,
)
from flambeau_capture.emit.level import emit_original
from flambeau_capture.emit.resume import CannotResume
from flambeau_capture.errors import BackendError, ConstraintViolation, SizePolicyError
from flambeau_capture.frame.entry_lifetimes import Lifetime
from flambeau_capture.frame.outcome.eager_rerun import (
    AsItIs,
    CallsThatRaise,
    Misses,
    expect_less,
    skip_frame,
    what_it_leaves,
)
from flambeau_capture.frame.outcome.graph_calls import Raising, with_inference_state
from flambeau_capture.frame.outcome.heap_at_end import (
    changed_places,
    guard_aliases,
    kept_and_written,
    saw_tensors,
)
from flambeau_capture.frame.outcome.stop_state import generator_level, levels_of
from flambeau_capture.frame.sizes.left_by_breaks import note_what_is_left
from flambeau_capture.frame.sizes.padded_inputs import note_padding
from flambeau_capture.frame.skip_rules import third_party
from flambeau_capture.graph.builder import user_lines
from flambeau_capture.graph.functions import assumes
from flambeau_capture.graph.symbolic_shapes import SymbolicShapes
from flambeau_capture.interp.frame import Frame, Suspended
from flambeau_capture.interp.top_frame import Finished, Restart, Stopped, TopFrame
from flambeau_capture.interp.tracer import SymbolicTracer
from flambeau_capture.observe import logs
from flambeau_capture.observe.records import (
    CapturedGraph,
    EntryRecord,
    FrameRecord,
    RecordedFault,
    without_frames,
)
from flambeau_capture.observe.texts import graph_table, line_of, words_of
from flambeau_capture.source import FrameCall, Local, Source
from flambeau_capture.values.base import Unreconstructible
from flambeau_capture.values.functions.variables import GlobalsScope

if TYPE_CHECKING:
    from flambeau_capture.frame.compiler import FrameCompiler

MAX_RESTARTS = 50
follow(compat.TENSOR_BASE)
#: what may be raised as a size is a symbol: by the frame, by its backend, by capture itself
_MAYBE_OF_SYMBOLS = (SkipFrame, RuntimeError, TypeError, ValueError, AssertionError, LookupError)


class FrameConversion:
    """One frame's conversion."""

    def __init__(self, converter: FrameCompiler, frame: FrameCall, cache: Any) -> None:
        self.cache = cache
        self.converter = converter
        self.options = converter.options
        self.frame = frame
        self.code = frame.code
        self.origin = converter.names.origin(frame.code)
        converter.user_names[frame.code] = self.origin.co_name
        self.place = (self.origin.co_name, self.code.co_filename, self.code.co_firstlineno)
        self.session: SymbolicTracer | None = None
        self.backend_seconds = 0.0
        self.outcome = "nothing to compile"
        self.shapes: SymbolicShapes | None = None
        self.changes: tuple[str, ...] = ()
        self.stopped: BreakReport | None = None
        self.in_parts = False  # it ends at a break, or something in it fell back
        self.whole: Entry | None = None  # of one graph that runs where its caller does
        self._waits = False  # the graph runs on a device with a queue
        self._left_after: int | None = None  # see `Restart`

    def record(self, seconds: float) -> FrameRecord:
        """What this conversion came to."""
        times, now = (seconds, self.backend_seconds), time.perf_counter()
        return FrameRecord(*self.place, *times, self.outcome, now, self.changes, self.stopped)

    def where(self, error: BaseException) -> UserLine | None:
        """The innermost line of the user's that capture was at when it failed."""
        found: Frame | None = None
        trace = error.__traceback__
        while trace is not None:
            met = trace.tb_frame.f_locals.get("self")
            found = met if issubclass(type(met), Frame) else found  # the program's answer anything
            trace = trace.tb_next
        return found.line() if found is not None else None

    def run(self) -> Any:
        stop_at: int | None = None
        reason: BreakReport | None = None
        for _ in range(MAX_RESTARTS):
            try:
                return self._attempt(stop_at, reason)
            except Restart as restart:
                if stop_at is not None and restart.step >= stop_at:
                    raise SkipFrame("interpretation does not repeat itself") from None
                stop_at, reason = restart.step, restart.report
                if restart.left_after is not None:
                    self._left_after = restart.left_after
            except Unreconstructible as missing:
                if missing.step < 1 or (stop_at is not None and missing.step >= stop_at):
                    raise SkipFrame(str(missing)) from None
                report = missing.report()
                stop_at, reason = missing.step, reason or report
            except CaptureAgain as again:
                again.note()
                stop_at = reason = None
            except (ConstraintViolation, SizePolicyError):
                raise
            except _MAYBE_OF_SYMBOLS as error:
                self._without_symbols(error)
                stop_at = reason = None
            finally:
                if self.shapes:  # a backend may have used symbols, too
                    compat.forget_environments()
                if self.session is not None:
                    for take_back in self.session.graph.made_before:
                        take_back()
                    self.session.forget()
                    self.session = None
        raise SkipFrame("too many attempts")

    def _explained(self, report: BreakReport) -> BreakReport:
        """A break by data, with the reason why the graph does not go on with open sizes there."""
        why = self.converter.dynamics.no_data_sizes(self.code)
        if why is None or report.reason.id not in ("FB0002", "FB0003", "FB0004"):
            return report
        return replace(report, what=f"{report.what}, and no size is left open for it here: {why}")

    def _without_symbols(self, error: Exception) -> None:
        """Try again with every size a constant, where what failed had symbols."""
        shapes = self.shapes
        if self.options.raise_internal_errors and is_fault_of_a_stage(error):
            raise error
        if not shapes or self.converter.dynamics.forbidden(self.code) is not None:
            raise error
        why = line_of(error)
        by_data = shapes.by_data and self.converter.dynamics.data_sizes(self.code)
        if by_data and self.session is not None and self.session.could_read_early():
            kept = "reads numbers of tensors of one element before its graphs"
        elif by_data:
            self.converter.dynamics.refuse_data_sizes(self.code, words_of(why))
            kept = "ends its graphs where a size depends on data"
        elif self._without_numbers(shapes, error):
            kept = "keeps its numbers"
        else:
            self.converter.dynamics.forbid(self.code, why)
            kept = "keeps static sizes"
        name = self.origin.co_name
        self.converter.records.static_only.append((name, f"{kept}: {why}"))
        logs.emit("recompiles", lambda: f"{name} {kept}: {why}")
        if kept == "keeps its numbers":
            return
        if not isinstance(error, SkipFrame | Unsupported | BackendError | NotImplementedError):
            where = self.where(error)
            fault = RecordedFault(name, where, error, "capture with open sizes")
            self.converter.records.faults.append(fault)
            if self.options.raise_internal_errors:
                raise error
            without_frames(error)

    def _without_numbers(self, shapes: SymbolicShapes, error: Exception) -> bool:
        """Whether a backend that has failed is to be tried with the numbers as constants first."""
        if not isinstance(error, BackendError):
            return False
        refuse = partial(self.converter.dynamics.refuse, self.code)
        helps = [refuse(source, number) for source, number in shapes.numbers().items()]
        return any(helps)

    def _attempt(self, stop_at: int | None, reason: BreakReport | None) -> Any:
        function = self.frame.func
        scope = GlobalsScope(function.__globals__, True, function.__builtins__)
        converter = self.converter
        grad_mode = torch.is_grad_enabled()
        session = SymbolicTracer(
            self.code,
            self.origin,
            self.options,
            scope,
            converter.user_names,
            converter.bodies,
            converter.dynamics,
        )
        self.shapes = session.shapes
        self.session = session
        session.guards.add_global_state()
        as_it_is: str | None = None
        try:
            session.grad_mode_applies()
            frame = TopFrame(session, self.frame, scope)
            ended = frame.execute(stop_at, reason)
            session.graph.ends_before_more = None  # what the program did comes before what leaves
            if session.open_loops:
                raise CaptureAgain(session.loop_over_all)
            if session.has_counters():
                raise CaptureAgain
            mode_now = session.grad_mode_outside()
            session.close_graph(grad_mode)
        except RunsAsItIs as why:
            as_it_is = str(why)
        except RecursionError:
            raise SkipFrame("calls nested too deep") from None
        finally:
            session.leave_contexts()
            compat.set_grad_enabled(grad_mode)
        if as_it_is is not None:
            return self._uncaptured(session, as_it_is)
        effects = session.heap.effects()
        self.changes = tuple(changed_places(effects))
        effects += session.heap.uses()
        mode = None if mode_now == grad_mode else mode_now
        own_of = session.heap.own_of
        state = FrameState(frame.prepared.body, frame.cells, effects, mode, generator_level, own_of)
        if isinstance(ended, Finished):
            return self._finished(session, state, ended)
        return self._stopped(session, state, ended)

    def _uncaptured(self, session: SymbolicTracer, why: str) -> Entry:
        """Code that runs the frame as it is, while the guards hold."""
        if self.options.nopython:
            report = BreakReport(REASONS["FB0026"], why, (UserLine.first_of(self.origin),))
            raise Unsupported(report)
        self.converter.records.skip(self.origin.co_name, why)
        return self._entry(session, emit_original(self.code, disabled))

    def _finished(self, session: SymbolicTracer, state: FrameState, ended: Finished) -> Any:
        if session.graph.is_empty():
            if not saw_tensors(session.heap):
                if self.options.nopython:  # for these arguments: others may bring a tensor along
                    return self._entry(session, emit_original(self.code, disabled))
                raise SkipFrame("nothing to compile")
            return self._entry(session, self.code)
        number = self.converter.names.reserve()
        with _skipping():
            plan = plan_return(state, ended.value)
        code = self._compile(session, plan, number)
        self.outcome = "graph"
        entry = self._entry(session, code)
        self.whole = None if self._waits else entry
        return entry

    def _stopped(self, session: SymbolicTracer, state: FrameState, ended: Stopped) -> Any:
        report = ended.report
        if ended.left_after is not None:
            self._left_after = ended.left_after
        raises = report.reason.id in ("FB0010", "FB0011")
        if not raises and (self.options.nopython or session.is_break_an_error()):
            raise Unsupported(report)
        if self.options.nopython:
            # the program itself raises here: it does so in Python, uncaptured all the way down
            self.converter.records.skip(self.code.co_name, str(report))
            return self._entry(session, emit_original(self.code, Raising(report)))
        if session.graph.is_empty() and third_party(self.code) and not saw_tensors(session.heap):
            raise SkipFrame(f"no tensor before a break: {report.what}")
        names = self.converter.names
        number = None if session.graph.is_empty() else names.reserve()
        try:
            levels = levels_of(
                ended.chain, state.effects, names.is_resumption(self.code), names.home
            )
            names.latest.clear()
            plan = plan_break(state, levels, names)
        except Unreconstructible as missing:
            if 0 < missing.step < ended.step:
                raise Restart(missing.step, report) from None
            self._stop_further_out(ended, missing)
        except (AssembleError, StackError, CannotResume, Break) as error:
            self._stop_further_out(ended, error)
        if number is None and plan.outputs:  # an input alone, which leaves as another class
            number = names.reserve()
        code = self._compile(session, plan, number, ended.chain)
        note_what_is_left(self.converter.dynamics, names, ended.chain, report)
        self.in_parts = True
        if report.reason.id == "FB0010" and session.graph.calls == self._left_after:
            self.outcome = "raise"  # where the frame ends, nothing being left for a graph
            return self._entry(session, code)
        self.outcome, self.stopped = "break", report
        report = self._explained(report)
        self.converter.records.breaks.append(report)
        self.converter.publish("break", report)
        logs.emit("breaks", lambda: f"{report}\n  try: {report.reason.hint}")
        return self._entry(session, code)

    def _stop_further_out(self, ended: Stopped, error: Exception) -> NoReturn:
        """The frames cannot all be resumed: let the innermost run in Python as a whole."""
        if len(ended.chain) == 1:
            raise SkipFrame(f"{error} ({ended.report})") from error
        raise Restart(ended.chain[-2].step, ended.report) from error

    def _compile(
        self,
        session: SymbolicTracer,
        plan: FramePlan,
        number: int | None,
        chain: Sequence[Suspended] = (),
    ) -> CodeType:
        """The planned code, once the graph that it calls has gone through the backend.

        number: of the graph's name, taken before those of resume functions; None: no graph."""
        kept = kept_and_written(session.heap)
        if kept is not None:
            raise Restart(kept.step, kept.report)
        if number is None:
            with _skipping():
                return emit(plan, None)
        graph, outputs = session.graph, plan.outputs
        codes = [(each.frame.code, each.frame.scope.namespace) for each in chain]
        earlier = (
            leaving_leaf(graph, outputs)
            or copy_that_shows(graph, outputs)
            or separately_undefined(graph, outputs)
            or read_before_derivatives(graph, outputs, codes)
            or min(graph.unfinished.values(), key=itemgetter(0), default=None)
        )
        if earlier is not None:
            raise Restart(*earlier)
        converter, origin = self.converter, self.origin
        name = f"__compiled_fn_{number}"
        module, inputs = graph.finish(outputs, _argument_order(self.code), name)
        results = [node.meta.get("val") for node in outputs]
        self._waits = any(
            isinstance(each, torch.Tensor) and each.device.type != "cpu"
            for each in (*results, *(given.tensor for given in inputs))
        )
        switches = any(node.target is compat.enter_inference for node in module.graph.nodes)
        fixed = session.shapes.constants()
        compat.is_captured(graph.fake_mode)
        check_less = partial(converter.dynamics.check_less, self.code)
        calls_that_raise = CallsThatRaise.of(converter.backend, module)
        if session.assumed and what_it_leaves(
            module.graph, inputs, graph.effects, replace(calls_that_raise, drew=False)
        ):
            raise CaptureAgain(check_less)
        module.meta["assumed"] = tuple(session.assumed)
        module.meta["decides_by_floats"] = session.shapes.decides_by_floats()
        note_padding(converter.dynamics, self.code, graph, module, inputs, bool(chain))
        compiled = self._call_backend(module, [given.tensor for given in inputs])
        fixed = session.shapes.constants() - fixed
        for source, value in session.shapes.numbers().items():
            if source in fixed:  # by an operator's decomposition
                converter.dynamics.note_need(self.code, None, source, value)
        calls_that_raise = CallsThatRaise.of(converter.backend, module)
        checks = bool(session.assumed) or any(map(assumes, module.graph.nodes))
        if checks:
            compiled, calls_that_raise = calls_that_raise.giving_back(
                compiled, module.graph, graph.effects
            )
        left = what_it_leaves(module.graph, inputs, graph.effects, calls_that_raise)
        if left is not None and session.assumed:
            raise CaptureAgain(check_less)
        if left is not None and session.checks_loops:
            raise CaptureAgain(session.loop_over_all)
        if left is not None and checks:
            raise SkipFrame(f"its graph checks what it assumes of data, and {left}")
        if switches:
            compiled = with_inference_state(compiled, [node.meta["val"] for node in outputs])
        installed = converter.names.install(self.frame.func.__globals__, name, disabled(compiled))
        calls = sum(n.op in ("call_function", "call_method") for n in module.graph.nodes)
        shown = tuple(given.source.name() for given in inputs)
        record = CapturedGraph(installed, module, calls, origin.co_name, shown)
        converter.records.graphs.append(record)
        converter.publish("graph", record)
        converter.show("graph", lambda: f"{installed}\n{graph_table(module)}")
        again = None
        libraries = graph.effects.of_libraries
        made = tuple(graph.made_before)
        if left is None or plan.state.effects or graph.effects.switches or libraries or made:
            cache, place = weakref.ref(self.cache), UserLine.first_of(origin)
            skip = partial(skip_frame, cache, self.code)
            less = partial(expect_less, converter, cache, self.code, origin.co_name)
            assumed = Misses(less) if checks else None
            besides = what_it_leaves(
                module.graph, inputs, graph.effects, calls_that_raise, libraries
            )
            again = AsItIs(
                converter, module, place, graph.effects, left, skip, assumed, besides, made
            )
        with _skipping():
            return emit(plan, CompiledGraphCall(installed, inputs, again))

    def _call_backend(
        self, module: fx.GraphModule, inputs: list[torch.Tensor]
    ) -> Callable[..., Any]:
        converter = self.converter
        started = time.perf_counter()
        try:
            compiled = converter.backend(module, inputs)
        except Exception as error:
            compat.end_guards(error)
            lines = "".join(user_lines(module))
            raise BackendError(
                f"backend {converter.backend_name!r} failed: {type(error).__name__}: {error}\n"
                f"the graph comes from\n{lines}"
            ) from error
        finally:
            module.graph.owning_module = None  # it would keep its parameters until a collection
            self.backend_seconds += time.perf_counter() - started
        if module.meta.get("fallback"):  # the backend has left the graph to torch
            self.in_parts = True
        if not callable(compiled):
            raise BackendError(
                f"backend {converter.backend_name!r} gave back a {type(compiled).__name__}, "
                f"which cannot be called"
            )
        return compiled

    def _entry(self, session: SymbolicTracer, code: CodeType) -> Entry:
        forgotten = session.forgotten() if code is not self.code else None
        if forgotten is not None:
            raise SkipFrame(f"{forgotten.describe()} waits where no generated code would end it")
        guard_aliases(session)
        session.shapes.add_guards(session.guards)
        guards = session.guards.finish()
        converter = self.converter
        converter.records.guards.append(guards)
        converter.publish("entry", EntryRecord(*self.place, self.code, code, guards))
        if code is not self.code:
            converter.user_names[code] = self.origin.co_name
        self._show(code, guards)
        session.graph.made_before.clear()
        lifetime = Lifetime(self.cache, self.code, converter)
        lifetime.ends_with(guards)
        return Entry(code, guards.native, keepalive=lifetime, info=guards)

    def _show(self, code: CodeType, guards: Any) -> None:
        line = f"{self.code.co_name} {self.code.co_filename} line {self.code.co_firstlineno}"
        show = self.converter.show
        show("bytecode", lambda: f"ORIGINAL BYTECODE {line}\n{listing(self.code)}")
        show("bytecode", lambda: f"MODIFIED BYTECODE\n{listing(code)}")
        show("guards", lambda: f"GUARDS:\n{guards}")


@contextmanager
def _skipping() -> Iterator[None]:
    """What cannot be written as code is left to Python."""
    try:
        yield
    except (AssembleError, StackError, CannotResume) as error:
        raise SkipFrame(str(error)) from error


def is_fault_of_a_stage(error: Exception) -> bool:
    """Whether a backend says of its error that a stage of its own failed, and refused nothing."""
    return bool(getattr(error.__cause__, "internal_fault", False))


def _argument_order(code: CodeType) -> Callable[[Source], tuple[int, ...]]:
    places = {name: place for place, name in enumerate(code.co_varnames)}

    def key(source: Source) -> tuple[int, ...]:
        root = source.root()
        if isinstance(root, Local):
            return (0, places.get(root.variable, len(places)))
        return (1, 0)

    return key
