"""Context managers of torch: autocast, inference_mode, devices, labels.

In: their constructors' arguments; autocast objects that existed before the frame. Out: a
`ContextManager`. Invariant: while a `GraphMode` is entered under capture, fake tensors are computed
in its state, and the graph holds the calls that enter and leave it; the tracer leaves what is still
entered when interpretation stops; an autocast object is its four settings, which are guarded.
"""

from __future__ import annotations

import inspect
import warnings
from contextlib import _GeneratorContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.effects.side_effects import DeferredCall
from flambeau_capture.polyfills import calling
from flambeau_capture.source import Attr, ConstantSource, Source
from flambeau_capture.values.base import (
    Args,
    Kwargs,
    NotConcrete,
    Tracer,
    Value,
    needing,
    objects_of,
)
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import answers, breaks, handles
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.registry import tracked, wraps_type


class ContextManager(Value):
    """A context manager that capture knows, made by `kind(*arguments)`."""

    described = "{0.kind.__name__}{0.arguments}"
    cls: type
    inside = False  # whether it is entered
    decorates = False  # whether it is a decorator, too

    def __init__(self, kind: type, arguments: tuple[Any, ...] = ()) -> None:
        self.cls = self.kind = kind
        self.arguments = arguments

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in ("__enter__", "__exit__"):
            return BoundMethod(self, name)
        self.unknown(f"attribute {name!r}")

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """As a decorator: the function's calls are each inside one that is made anew."""
        decorated = args[0] if len(args) == 1 and not kwargs else None
        if not self.decorates or not isinstance(decorated, FunctionValue):
            raise Break("FB0013", f"{self.describe()} as a decorator")
        if decorated.code.co_flags & inspect.CO_GENERATOR:
            raise Break("FB0013", f"{self.describe()} as a decorator of a generator")
        given = TupleValue([tx.wrap_new(argument) for argument in self.arguments])
        return tx.call_python(calling.within, [decorated, tx.wrap_new(self.kind), given], {})

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        tx.heap.changed()
        if name == "__enter__":
            return self.enter(tx)
        if name == "__exit__":
            self.leave(tx)
            return Constant(None)
        self.unknown(f"method {name!r}")

    def enter(self, tx: Tracer) -> Value:
        self.inside = True
        return self

    def leave(self, tx: Tracer) -> None:
        self.inside = False

    def reconstruct(self, writer: Any) -> None:
        given = [Constant(argument) for argument in self.arguments]
        with writer.building(self):
            if self.inside:
                writer.call(_entered, [Constant(self.kind), *given])
            else:
                writer.call(self.kind, given)


class GraphMode(ContextManager):
    """A mode that fake tensors are computed in, and that the graph enters and leaves."""

    calls: tuple[Any, Any]  # of the graph, to enter and to leave
    live: Any = None  # torch's own while it is entered
    node: Any = None

    def idle(self) -> bool:
        """Whether entering it changes nothing."""
        return False

    def recorded(self) -> tuple[Any, ...]:
        """The arguments of the call that enters it."""
        return self.arguments

    def enter(self, tx: Tracer) -> Value:
        idle = self.idle()
        self.inside = True
        self.live = self.kind(*self.arguments)
        self.live.__enter__()
        tx.entered.append(self)
        if not idle:
            self.node = tx.graph.record_mode(self.calls[0], self.recorded(), tx.stack_trace())
        return self

    def leave(self, tx: Tracer) -> None:
        tx.entered.remove(self)
        self.live.__exit__(None, None, None)
        self.live, self.inside = None, False
        self.record_exit(tx)

    def record_exit(self, tx: Tracer) -> None:
        """Let the graph leave the mode, if it entered it."""
        if self.node is not None:
            tx.graph.record_mode(self.calls[1], (self.node,), tx.stack_trace())
            self.node = None


class AutocastValue(GraphMode):
    """torch.autocast."""

    decorates = True

    calls = (compat.enter_autocast, compat.exit_autocast)

    def idle(self) -> bool:
        device, _, enabled, _ = self.arguments
        return not enabled and not torch.is_autocast_enabled(device)


class InferenceValue(GraphMode):
    """torch.inference_mode."""

    decorates = True

    calls = (compat.enter_inference, compat.exit_inference)
    grad_before: bool | None = None  # while it is entered
    grad_inside = False

    def enter(self, tx: Tracer) -> Value:
        before = torch.is_grad_enabled()
        found = super().enter(tx)
        self.grad_before, self.grad_inside = before, torch.is_grad_enabled()
        return found

    def leave(self, tx: Tracer) -> None:
        super().leave(tx)
        self.grad_before = None

    def idle(self) -> bool:
        """Entering it sets the grad mode as well."""
        on = torch.is_inference_mode_enabled()
        return bool(self.arguments[0]) == on and torch.is_grad_enabled() != on


class KernelChoice(GraphMode):
    """Which kernels torch may choose: `sdpa_kernel`, `cudnn.flags`, by calls of the graph."""

    calls = (compat.enter_choice, compat.exit_choice)

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        super().__init__(compat.CHOICES[name][1], arguments)
        self.cls = _GeneratorContextManager
        self.name = name
        self.outside: dict[Any, Any] = {}  # while it is entered: what was the case before

    def enter(self, tx: Tracer) -> Value:
        self.outside = {question: question() for question in _CHOSEN}
        super().enter(tx)
        return Constant(None)

    def recorded(self) -> tuple[Any, ...]:
        return self.name, self.arguments


_CHOSEN: tuple[Any, ...] = (
    torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.cudnn_sdp_enabled,
)  # fmt: skip


def answered_outside(tx: Tracer, question: Any, answer: Any) -> Any:
    """What a question was answered before the program chose kernels, if it has."""
    first = next((context for context in tx.entered if isinstance(context, KernelChoice)), None)
    return answer if first is None else first.outside.get(question, answer)


def _choice(name: str) -> None:
    maker = compat.CHOICES[name][0]

    @handles(maker)
    def make(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        try:
            given, named = objects_of(args, kwargs)
            bound = inspect.signature(maker).bind(*given, **named)
        except (NotConcrete, TypeError) as error:
            raise Break("FB0013", f"{name} with {error}") from None
        bound.apply_defaults()
        plain = [compat.plain_choice(value) for value in bound.arguments.values()]
        return KernelChoice(name, tuple(plain))


for _name in compat.CHOICES:
    _choice(_name)


class Label(ContextManager):
    """A range that profilers show. Rule: nothing happens in it while no profiler records; where one
    does, the graph ends at its border, so that the profile has the range, unless the user wants one
    graph."""

    def enter(self, tx: Tracer) -> Value:
        _assume_no_profiler(tx, self)
        return super().enter(tx)

    def reconstruct(self, writer: Any) -> None:
        if not self.inside:
            super().reconstruct(writer)
            return
        with writer.building(self):
            writer.call(nullcontext, [])  # a label does not last beyond a graph break


def _assume_no_profiler(tx: Tracer, label: Value) -> None:
    module, variable = compat.PROFILING
    if not tx.options.nopython:
        profiling = tx.get_attr(tx.wrap(module, ConstantSource(module)), variable)
        if profiling.truth(tx):
            raise Break("FB0013", f"{label.describe()}, a range for the profiler that records")


@dataclass(eq=False)
class EnteredLabel:
    """That a label which outlives the call is entered, where it still is when the graph ends."""

    label: Value
    times: int = 0
    source = None

    @staticmethod
    def of(tx: Tracer, label: Value) -> EnteredLabel:
        found: EnteredLabel
        found = tx.heap.answers.setdefault(("label", id(label)), EnteredLabel(label))
        return found

    def replay(self, writer: Any) -> None:
        for _ in range(self.times):
            writer.do(torch.profiler.record_function.__enter__, [self.label])


@handles(torch.profiler.record_function.__enter__)
def _enter_label(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _assume_no_profiler(tx, args[0])
    entered = EnteredLabel.of(tx, args[0])
    entered.times += 1
    tx.heap.log(entered)
    return args[0]


@handles(torch.profiler.record_function.__exit__)
def _leave_label(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    entered = EnteredLabel.of(tx, args[0])
    if entered.times:
        entered.times -= 1
        tx.heap.changed()
    else:  # it was entered before the frame, or before a graph break
        nothing = Constant(None)
        leave = torch.profiler.record_function.__exit__
        tx.heap.log(DeferredCall(leave, [args[0], nothing, nothing, nothing]))
    return Constant(None)


class DeviceMode(ContextManager):
    """`with torch.device(...)`: the device of tensors that are made without one."""

    described = "with {0.device}"

    before: torch.device | None = None

    def __init__(self, device: torch.device) -> None:
        super().__init__(torch.device, (str(device),))
        self.device = device

    def enter(self, tx: Tracer) -> Value:
        graph = tx.graph.outermost
        self.before, graph.device, self.inside = graph.device, self.device, True
        return Constant(self.device)

    def leave(self, tx: Tracer) -> None:
        tx.graph.outermost.device, self.inside = self.before, False

    def reconstruct(self, writer: Any) -> None:
        if self.inside:
            super().reconstruct(writer)
        else:
            writer.load_const(self.device)


def manager_of(value: Value) -> ContextManager | None:
    """The context manager that a value is, where it is one of torch's own."""
    if isinstance(value, ContextManager):
        return value
    if isinstance(value, Constant) and isinstance(value.value, torch.device):
        return DeviceMode(value.value)
    return None


# Modes that turn `x[i]`, with tensors of no dimension for i, into aten's `index`.
INDEXING_MODES = frozenset({"TransformGetItemToIndex", "IndexedByTensors"})


class IndexingMode(ContextManager):
    """A mode of `INDEXING_MODES`."""

    def enter(self, tx: Tracer) -> Value:
        tx.indexing += 1
        return super().enter(tx)

    def leave(self, tx: Tracer) -> None:
        super().leave(tx)
        tx.indexing -= 1


class PlainTensors(ContextManager):
    """`DisableTorchFunctionSubclass`: subclasses of tensors are as plain tensors."""

    def enter(self, tx: Tracer) -> Value:
        super().enter(tx)
        tx.as_plain += 1
        return Constant(None)

    def leave(self, tx: Tracer) -> None:
        super().leave(tx)
        tx.as_plain -= 1


# what torch's own tracers note of a region is nothing to the program
answers({torch.fx.traceback.annotate: lambda tx, args, kwargs: tx.call_python(nullcontext, [])})

_PLAIN: Any = compat.disable_torch_function_subclass
answers({_PLAIN: lambda tx, args, kwargs: PlainTensors(_PLAIN)})


def _entered(kind: Any, *arguments: Any) -> Any:
    made = kind(*arguments)
    made.__enter__()
    return made


def autocast_settings(autocast: Any) -> tuple[Any, ...]:
    """Device, dtype, whether it is on, whether casts are kept: the arguments that make it."""
    return tuple(getattr(autocast, name) for name in compat.AUTOCAST_SETTINGS)


def autocast_arguments(args: Args, kwargs: Kwargs) -> tuple[list[Any], dict[str, Any]]:
    """What an autocast object is made of, in Python."""
    with needing("FB0013", lambda error: f"autocast with {error}"):
        return objects_of(args, kwargs)


@handles(torch.autocast)
def _autocast(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    plain, named = autocast_arguments(args, kwargs)
    made = evaluate(tx, torch.autocast, *plain, **named)
    return AutocastValue(torch.autocast, autocast_settings(made))


@handles(torch.inference_mode)
def _inference_mode(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = [*args, *kwargs.values()]
    if not given:
        return InferenceValue(torch.inference_mode, (True,))
    if not isinstance(given[0], Constant) or not isinstance(given[0].value, bool):
        raise Break("FB0013", "inference_mode as a decorator")
    return InferenceValue(torch.inference_mode, (given[0].value,))


@handles(*compat.labels())
def _label(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    with needing("FB0013", lambda error: f"record_function with {error}"):
        plain = tuple(value.as_python() for value in [*args, *kwargs.values()])
    return Label(torch.profiler.record_function, plain)


@handles(torch.get_default_device)
def _default_device(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    inside = tx.graph.outermost.device
    return tx.wrap_new(torch.get_default_device() if inside is None else inside)


OLDER = {torch.cuda.amp.autocast: "cuda", compat.CPU_AUTOCAST: "cpu"}


class ExistingAutocast(AutocastValue):
    """One that outlives the call."""

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(torch.autocast, autocast_settings(real))
        self.cls = type(real)
        self.source = source

    def enter(self, tx: Tracer) -> Value:
        if self.live is not None:  # it keeps one state to return to, not two
            raise Break("FB0013", "an autocast object that is entered already")
        return super().enter(tx)

    def reconstruct(self, writer: Any) -> None:
        if self.live is None:
            writer.load_source(self.source)
        else:
            super().reconstruct(writer)


@wraps_type(torch.autocast, *OLDER)
@tracked
def wrap_autocast(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", type(obj))
    for name, setting in zip(compat.AUTOCAST_SETTINGS, autocast_settings(obj), strict=True):
        tx.guard(Attr(source, name), "CONSTANT_MATCH", setting)
    return ExistingAutocast(obj, source)


# what leaves one that was entered before a break: torch's own, in one piece
breaks("FB0013", torch.autocast.__enter__, torch.autocast.__exit__)


def _older(kind: Any, device: str) -> None:
    @handles(kind)
    def make(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        plain, named = autocast_arguments(args, kwargs)
        text = getattr(kind, "__deprecated__", None)
        if text is not None:
            tx.call_python(warnings.warn, [Constant(text), tx.wrap_new(FutureWarning)])
        bound = evaluate(tx, inspect.signature(kind.__init__).bind, None, *plain, **named)
        bound.apply_defaults()
        settings = dict(list(bound.arguments.items())[1:])
        return AutocastValue(torch.autocast, autocast_settings(torch.autocast(device, **settings)))


for _kind, _device in OLDER.items():
    _older(_kind, _device)
