"""The symbolic tracer: graph, guards, side effects and frame stack of one capture.

In: the frame under capture. Out: a `SymbolicTracer`, the `Tracer` of values.
Invariant: a session changes nothing outside itself, except torch's grad mode, which `convert`
restores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any, NoReturn
from weakref import WeakMethod, WeakSet

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import (
    Break,
    BreakReport,
    CaptureAgain,
    RunsAsItIs,
    SkipFrame,
    UserLine,
)
from flambeau_capture.builtins.classes.construction import instantiate, new_object
from flambeau_capture.builtins.iteration import MADE_INSIDE
from flambeau_capture.builtins.operations import operators
from flambeau_capture.builtins.tensors.rules import TENSOR_RULES
from flambeau_capture.bytecode.decode import UnknownOpcode
from flambeau_capture.bytecode.opcodes import PREPARES_CALL
from flambeau_capture.bytecode.stack import GENERATOR_LIKE
from flambeau_capture.frame.sizes.dynamism import DynamismTracker
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.graph.symbolic_shapes import SymbolicShapes
from flambeau_capture.identity import IdentityMap
from flambeau_capture.interp.assumptions import Assumptions
from flambeau_capture.interp.binding import before_inlining, bind
from flambeau_capture.interp.frame import (
    Before,
    ErrorState,
    Frame,
    Prepared,
    Suspended,
    make_cells,
    narrated,
    prepare,
)
from flambeau_capture.observe import logs
from flambeau_capture.observe.logs import warn
from flambeau_capture.options import Options
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import (
    Args,
    Caller,
    IteratorValue,
    Kwargs,
    MadeBy,
    UserError,
    Value,
)
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import TupleValue, index_of
from flambeau_capture.values.functions.call_rules import CallRule, rule_of
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.functions.variables import GlobalsScope
from flambeau_capture.values.iterators.builtin import RangeIterator, SequenceIterator
from flambeau_capture.values.iterators.coroutines import generator_of
from flambeau_capture.values.iterators.generators import GeneratorValue
from flambeau_capture.values.objects.answers import ask_length_hint
from flambeau_capture.values.objects.attributes import assume_entry, lacks, refuse_assignment
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exception_groups import GROUP_METHODS
from flambeau_capture.values.objects.exceptions import (
    ExceptionValue,
    new_exception,
    raised_by_python,
)
from flambeau_capture.values.registry import wrap_object
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.tensor import TensorValue
from flambeau_capture.values.wrap import wrap_new


class Reached(Exception):
    """Interpretation stops here: the frames to be resumed, the innermost before its instruction.
    `earlier`: the step to stop at instead, as more has happened since."""

    def __init__(self, chain: tuple[Suspended, ...], earlier: int | None = None) -> None:
        super().__init__()
        self.chain = chain
        self.earlier = earlier


#: opcodes that generated code does not run by themselves: a stop there moves on to the next
_NO_PLACES = PREPARES_CALL | {
    "JUMP", "RETURN_VALUE", "RETURN_CONST", "PUSH_NULL", "LOAD_FAST", "STORE_FAST", "DELETE_FAST",
}  # fmt: skip


class SymbolicTracer(Assumptions):
    tensor_rules = TENSOR_RULES
    group_methods = GROUP_METHODS
    made_inside = MADE_INSIDE

    def __init__(
        self,
        code: CodeType,
        origin: CodeType,
        options: Options,
        scope: GlobalsScope,
        names: IdentityMap[CodeType, str],
        bodies: IdentityMap[CodeType, Prepared],
        dynamics: DynamismTracker,
    ) -> None:
        super().__init__(code, origin, options, names, dynamics)
        self.graph = GraphBuilder(device=compat.default_device())
        self.graph.clock = WeakMethod(self.step)
        self.shapes = SymbolicShapes(self.graph)
        self.shapes.returned = dynamics.returns_numbers
        self.shapes.known = WeakMethod(self.known_number)
        self.steps = 0
        self.stop_at: int | None = None
        self._idle_since = 0
        self._calls_seen = 0
        self.raised_at: int | None = None
        self.own_from = 0  # the step from which on the program's own code runs
        self.error: Value | None = None
        self.entered: list[Any] = []  # torch's context managers that are entered and not left
        #: where the graph checks what the program does, if the call can be run as it is
        self.assumed: list[BreakReport] = []
        self.indexing = 0  # how many modes that index with tensors of no dimension are entered
        #: how many calls of `Tensor.__torch_function__` are under way
        self.as_plain = int(compat.torch_function_state() > 0)
        self.has_generators = False  # whether the program has made any
        self.run_later = ""  # what autograd is to run later, while it is interpreted
        self.unheld: list[GeneratorValue] = []
        self._generators: WeakSet[GeneratorValue] = WeakSet()
        self._bodies = bodies
        self.builtins = scope.builtins  # the names that the frame sees after its globals
        self.open_loops: list[Value] = []  # over positions, of which some may not be there
        self.checks_loops = False  # whether the graph checks what it assumes of such loops
        self._scopes: dict[int, GlobalsScope] = {id(scope.namespace): scope}
        self._rules: dict[int, tuple[Any, CallRule]] = {}

    # -- frames ---------------------------------------------------------------------------------

    def prepared(self, code: CodeType) -> Prepared:
        found = self._bodies.find(code)
        if found is None:
            try:
                found = prepare(code)
            except UnknownOpcode as error:
                raise self._unreadable(code, error) from None
            if logs.wanted("instructions"):
                found = narrated(found)
            self._bodies[code] = found
        return found

    def begin(self, frame: Frame) -> None:
        """Note a frame as it is before its next instruction."""
        step = self.steps = self.steps + 1
        frame.before = Before(
            step, tuple(frame.stack), self.heap.version, self.graph.outermost.calls, self.error
        )
        if step == self.stop_at:
            frame.current = frame.prepared.body.instructions[frame.position]
            if frame.current.opname not in _NO_PLACES:
                same = self.is_as_before(self._linked()[-1])
                raise Reached(self.chain(), None if same else self.step())
            self.stop_at = step + 1
        try:
            self._limit_steps()
        except Break as error:
            frame.current = frame.prepared.body.instructions[frame.position]
            self.locate(error)
            raise

    def _unreadable(self, code: CodeType, error: UnknownOpcode) -> Exception:
        if self.frames:
            return Break("FB0008", f"{error} in {code.co_name}")
        warn(f"{code.co_name} runs eagerly: {error}")
        return SkipFrame(str(error))

    def _limit_steps(self) -> None:
        if self.graph.calls != self._calls_seen:
            self._calls_seen = self.graph.calls
            self._idle_since = self.steps
        if self.steps - self._idle_since > self.options.idle_step_limit:
            if self.graph.is_empty():
                raise SkipFrame(f"{self.steps} instructions without an operation on a tensor")
            raise Break("FB0022", f"{self.options.idle_step_limit} without a tensor")
        if self.steps > self.options.step_limit:
            raise Break("FB0022", f"{self.steps} instructions")

    def _linked(self) -> list[Frame]:
        """The frames that can be resumed, all at once, if the last of them stops."""
        found = self.frames[:1]
        for frame in self.frames[1:]:
            if not frame.linked:
                break
            found.append(frame)
        return found

    def step(self) -> int:
        """The instruction at which all could stop, counted from the start."""
        return self._linked()[-1].before.step

    def chain(self) -> tuple[Suspended, ...]:
        """The frames as they stand, for resumption; the last before its instruction."""
        frames = self._linked()
        last = frames[-1]
        error = last.before.error
        found: list[Suspended] = []
        instead: Value | None = None
        for frame in reversed(frames):
            stack = last.before.stack if frame is last else tuple(frame.stack)
            errors: dict[int, Value] = {}
            for place in range(len(stack) - 1, -1, -1):
                state = stack[place]
                if isinstance(state, ErrorState) and error is not None:
                    errors[place] = error
                    error = state.value
            found.append(Suspended(frame, frame.current, stack, frame.before.step, errors, instead))
            instead = frame.instead
        return tuple(reversed(found))

    def locate(self, error: Break) -> None:
        """Give a break its lines, and the step at which interpretation has to stop for it."""
        if not error.lines:
            error.lines = self.user_lines()
        if error.stop is None:
            last = self._linked()[-1]
            error.stop = Reached(self.chain()) if self.is_as_before(last) else last.before.step

    def is_as_before(self, frame: Frame) -> bool:
        """Whether the instruction that a frame is at has changed nothing so far."""
        before = frame.before
        return (self.heap.version, self.graph.outermost.calls) == (before.effects, before.calls)

    def before_raising(self, raised: ExceptionValue) -> Reached | None:
        """Where to stop if a new exception leaves all frames, as far as that is known already."""
        if self.has_generators or self.error is not None or raised.raised or self.is_handled():
            return None
        if self.shapes:
            return None  # what refuses an open number may have fixed it, which the rest need not
        return Reached(self.chain()) if self.is_as_before(self._linked()[-1]) else None

    def leave_contexts(self) -> None:
        """Leave what the program has entered and not left when interpretation stops."""
        while self.entered:
            self.entered.pop().live.__exit__(None, None, None)

    def grad_mode_outside(self) -> bool:
        """The grad mode around the contexts that set it themselves when they are entered again."""
        inside = [c for c in self.entered if getattr(c, "grad_before", None) is not None]
        if not inside:
            return torch.is_grad_enabled()
        if torch.is_grad_enabled() != inside[-1].grad_inside:
            raise SkipFrame("a graph break where the grad mode is not that of inference_mode")
        before: bool = inside[0].grad_before
        return before

    def grad_mode_applies(self) -> None:
        """Raise RunsAsItIs where torch records nothing though the grad mode is on: a backend, which
        goes by that, would."""
        if torch.is_grad_enabled() and torch.is_inference_mode_enabled():
            raise RunsAsItIs("gradients are enabled in inference mode, which records none")

    def close_graph(self, grad_mode: bool) -> None:
        """Let the graph leave torch's modes as it found them: the code after it sets them."""
        for context in reversed(self.entered):
            context.record_exit(self)
        if torch.is_grad_enabled() != grad_mode and not self.graph.is_empty():
            self.graph.record_mode(compat.set_grad_enabled, (grad_mode,))

    def frame_code(self) -> CodeType:
        return self.frames[-1].code

    def forget(self) -> None:
        """Let go of the program's objects: they may have to end with the program's frames."""
        self.heap.forget()
        compat.forget_tensors(self.graph.fake_mode)
        self.has_generators = False
        self.unheld.clear()
        self._scopes.clear()
        self._stored.clear()
        self._rules.clear()
        self.entered.clear()
        self.error = None

    def end_unheld(self, frame: Frame) -> None:
        """End the generators that nothing holds any more, in the order in which they were let go.

        CPython does so when the last reference goes: their `finally` runs then. The values that
        stand for objects hold each other as those do, so the last reference to a value goes where
        that to its object would.
        """
        frame.before = Before(frame.before.step, (), -1, -1, None)  # it holds what is on the stack
        self._end(self.unheld)

    def _end(self, unheld: list[GeneratorValue]) -> None:
        while unheld:
            made = unheld.pop(0)
            inner = self.unheld = []
            try:
                made.drop(self)
            except UserError as error:
                raise Break("FB0021", f"{error.value.describe()} in {made.describe()}") from None
            self._end(inner)  # what only that one referred to goes with it

    def forgotten(self) -> GeneratorValue | None:
        """A generator that waits, and that the generated code has not: nothing would end it."""
        waiting = (made for made in self._generators if made.waits() and not made.rebuilt)
        return next(waiting, None)

    def is_handled(self) -> bool:
        """Whether a handler of a frame is around the instruction that it is at."""
        return any(frame.current in frame.prepared.regions for frame in self.frames)

    def caller(self, level: int) -> Caller | None:
        """The frame that many levels up, the one that is calling being the first."""
        if not 1 <= level <= len(self.frames):
            return None
        frame = self.frames[-level]
        line = frame.line()
        return Caller(line.filename, line.lineno, line.function, frame.scope.namespace)

    def variables(self) -> Mapping[str, Value]:
        """The variables of the frame that makes a call."""
        frame = self.frames[-1]
        held = {name: cell.content for name, cell in frame.cells.items()}
        filled = {name: value for name, value in held.items() if value is not None}
        return {**frame.read_variables(), **filled}

    def user_lines(self) -> tuple[UserLine, ...]:
        """Where the program is, the innermost line last."""
        return tuple(frame.line() for frame in self.frames)

    # -- values ---------------------------------------------------------------------------------

    wrap = wrap_object
    wrap_new = wrap_new
    binary = operators.binary
    index_of = index_of
    ask_length_hint = ask_length_hint
    graph_call = graph_call

    def wrap_evaluated(self, obj: Any, by: MadeBy) -> Value:
        """The same; an iterator becomes one of the program's, over its items."""
        if not hasattr(type(obj), "__next__"):
            return self.wrap_new(obj)
        items = SequenceIterator(TupleValue([self.wrap_new(item) for item in obj]))
        items.made_by, items.kind = by, type(obj)
        return items

    def bound_method(self, receiver: Value, name: str) -> Value:
        """A method of a built-in kind: the receiver itself knows how to run it."""
        return BoundMethod(receiver, name)

    def new_exception(self, kind: type[BaseException], args: Sequence[Value]) -> Value:
        return new_exception(kind, list(args))

    def new_tuple(self, items: Sequence[Value]) -> Value:
        return TupleValue(list(items))

    def iterator_of(self, items: Value) -> IteratorValue:
        """An iterator over what has items by index, or over the numbers of a range."""
        if isinstance(items, Constant) and isinstance(items.value, range):
            return RangeIterator(items.value)
        return SequenceIterator(items)

    def is_break_an_error(self) -> bool:
        """What `torch._dynamo.error_on_graph_break` says, by what the program has set by now."""
        namespace, name = compat.errs_on_breaks() or ({}, "")
        now = self.scope_of(namespace).written.get(name) if namespace else None
        return now.value is True if isinstance(now, Constant) else namespace.get(name) is True

    def scope_of(self, namespace: dict[str, Any]) -> GlobalsScope:
        """The global variables that a dict holds: one scope per dict."""
        scope = self._scopes.get(id(namespace))
        if scope is None:
            scope = self._scopes[id(namespace)] = GlobalsScope(namespace)
        return scope

    def get_attr(self, obj: Value, name: str) -> Value:
        missing = lacks(obj, name)
        if missing is not None:
            assume_entry(self, obj.cls, name)
            self._of_attribute(obj, name, self.new_exception(AttributeError, [Constant(missing)]))
        try:
            found = obj.get_attr(self, name)
        except UserError as error:
            self._of_attribute(obj, name, error.value, error)
        if self.heap.reads is not None:
            self.heap.reads(obj, name, found)
        return found

    def set_attr(self, obj: Value, name: str, value: Value) -> None:
        refuse_assignment(self, obj, setattr, name, None)
        obj.set_attr(self, name, value)

    def del_attr(self, obj: Value, name: str) -> None:
        refuse_assignment(self, obj, delattr, name)
        obj.del_attr(self, name)

    def _of_attribute(
        self, obj: Value, name: str, error: Value, raised: UserError | None = None
    ) -> NoReturn:
        """Raise what a look-up raised: an AttributeError says of what, if it does not yet."""
        if issubclass(error.cls, AttributeError) and isinstance(error, ExceptionValue):
            if error.real is None and not error.fields.keys() & {"name", "obj"}:
                error.fields.update(name=Constant(name), obj=obj)
        raise UserError(error) if raised is None else raised

    def raise_as_python(self, error: BaseException) -> NoReturn:
        """Raise in the program what Python raised at capture time."""
        raise UserError(raised_by_python(self, error))

    def raise_error(self, kind: type[BaseException], *args: Any) -> NoReturn:
        """Raise an exception of the program."""
        raise UserError(self.new_exception(kind, [self.wrap_new(arg) for arg in args]))

    def current_error(self) -> Value | None:
        return self.error

    def known_number(self, node: fx.Node, dim: int | None) -> int | float | None:
        """What a node of the graph is, or a size of its tensor, where guards can say it."""
        found = self.tensor_rules.known_number(self, node, dim)
        if found is None and dim is None:
            self.tensor_rules.number_for_python(self, TensorValue(node.all_input_nodes[0]))
        return found

    def could_read_early(self) -> bool:
        """Whether a number of the graph that depends on data could be read before it, which it is
        from the next attempt on."""
        try:
            for node, dim in self.shapes.places_by_data():
                if dim is None:
                    tensor = TensorValue(node.all_input_nodes[0])
                    self.tensor_rules.number_for_python(self, tensor)
        except CaptureAgain as again:
            again.note()
            return True
        return False

    # -- calls ----------------------------------------------------------------------------------

    def rule_of(self, fn: Any) -> CallRule:
        """What a call of a callable is."""
        known = self._rules.get(id(fn))
        if known is None or known[0] is not fn:
            known = self._rules[id(fn)] = (fn, rule_of(fn))
        return known[1]

    def call(self, fn: Value, args: Args, kwargs: Kwargs) -> Value:
        """Call a value."""
        return fn.call(self, args, kwargs)

    def instantiate(self, kind: Value, args: Args, kwargs: Kwargs, plain: bool = False) -> Value:
        """Call a class; `plain`: as `type` does, whatever its metaclass does."""
        assert isinstance(kind, ClassValue)
        return instantiate(self, kind, args, kwargs, plain)

    def new_object(self, kind: Value) -> Value:
        """An instance of a class, before its `__init__`."""
        assert isinstance(kind, ClassValue)
        return new_object(self, kind)

    def call_python(self, fn: Any, args: Args, kwargs: Kwargs | None = None) -> Value:
        """Call a Python function of capture's own (a polyfill), interpreted like the user's."""
        return self.call(self.wrap(fn, ConstantSource(fn, fn.__name__)), args, kwargs or {})

    def inline(
        self,
        fn: FunctionValue,
        args: Args,
        kwargs: Kwargs,
        linked: bool = False,
        instead: Value | None = None,
    ) -> Value:
        """Interpret a Python function's code."""
        answer = before_inlining(self, fn, args, kwargs)
        if answer is not None:
            return answer
        if len(self.frames) > self.options.inline_depth:
            raise Break("FB0018", f"{len(self.frames)} frames deep in {fn.name}")
        code = fn.code
        variables = bind(self, fn, args, kwargs)
        frame = Frame(self, code, fn.scope, variables, {}, fn, linked, instead)
        make_cells(frame)
        if code.co_flags & GENERATOR_LIKE:
            frame.linked = False
            self.has_generators = True
            made = generator_of(frame, self.step())
            self._generators.add(made)
            return made
        return frame.run()
