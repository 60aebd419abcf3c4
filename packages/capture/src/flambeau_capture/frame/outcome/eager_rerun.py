"""Eager rerun of a call whose graph raises.

In: a finished graph, what its operations did besides computing, the error that a call of it raised.
Out: whether anything of the call is left; the function that runs in its place. Invariant: the
program raises, and handles, what it does without capture, after the effects that come before: a
graph that leaves something is not run again. What torch does not raise when it runs the graph
operation by operator is a failure of the backend, recorded as a fault whatever the program
then does. An error with a true attribute `is_a_finding` is what a backend has found out, and
reaches the program.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Container, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture._native import FrameCache, disabled
from flambeau_capture.breaks import Break, UserLine
from flambeau_capture.errors import BackendError
from flambeau_capture.graph import functions
from flambeau_capture.graph.builder import GraphInput
from flambeau_capture.graph.operator_effects import DRAWS, GraphEffects
from flambeau_capture.observe import logs
from flambeau_capture.observe.logs import warn
from flambeau_capture.observe.records import RecordedFault, without_frames
from flambeau_capture.values.tensors.refused_calls import operator_name

CALL_OF_A_GRAPH = "a call of the compiled graph"
"""What a backend was doing whose failure is no answer to compiling."""

if TYPE_CHECKING:
    from flambeau_capture.frame.compiler import FrameCompiler


@dataclass(frozen=True)
class CallsThatRaise:
    """What a call of a backend's that raises has done by then. Rule: a backend with the attribute
    `writes_last` writes to a graph's inputs once all else is computed, unless it has left the graph
    to torch; and numbers that are not eager's (`own_numbers`) need not be drawn again."""

    wrote: bool
    drew: bool

    @classmethod
    def of(cls, backend: Any, module: fx.GraphModule) -> CallsThatRaise:
        left_to_torch = bool(module.meta.get("fallback"))
        return cls(
            left_to_torch or not getattr(backend, "writes_last", False),
            left_to_torch or not getattr(backend, "own_numbers", False),
        )

    def giving_back(
        self, compiled: Callable[..., Any], graph: fx.Graph, effects: GraphEffects
    ) -> tuple[Callable[..., Any], CallsThatRaise]:
        """What was compiled, so that its calls that raise give back what they can."""
        drew, wrote = self.drew, self.wrote
        if drew and DRAWS in effects.other:
            compiled, drew = _giving_back_draws(compiled), False
        written = _written_inputs(graph, effects) if wrote and effects.writes() else None
        if written is not None:
            compiled, wrote = _giving_back_writes(compiled, written), False
        return compiled, CallsThatRaise(wrote, drew)


def what_it_leaves(
    graph: fx.Graph,
    inputs: Sequence[GraphInput],
    effects: GraphEffects,
    calls: CallsThatRaise,
    harmless: Container[str] = (),
) -> str | None:
    """What of a call of the graph that raises may outlive it, in words, but for what is harmless;
    None: nothing."""
    for other in effects.other:
        if other in harmless:
            continue
        if calls.drew or other != DRAWS:
            return other
    if any(given.is_made() for given in inputs):
        return "takes what is made for it"
    if calls.wrote and any(effects.writes_to([fake]) for fake in _given(graph).values()):
        return "writes to what it was given"
    for node in graph.nodes:
        if node.op not in ("placeholder", "get_attr", "output") and not _is_seen(node.target):
            return f"calls {operator_name(node.target)}"
    return None


def _is_seen(target: Any) -> bool:
    """Whether the dispatcher has seen all that a call does: it is a method of tensors, an operator,
    Python's own on numbers, or a function of torch's or of ours that is made of these."""
    if isinstance(target, str | torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    if target in compat.MODE_CALLS:  # these are left
        return True
    module = getattr(target, "__module__", None) or type(target).__module__
    return module in _MODULES or module.startswith("torch._C")


_MODULES = frozenset(
    {
        "torch", "_operator", "math", "builtins", functions.__name__,
        *(getattr(place, "__name__", "torch") for place in compat.operator_namespaces()),
    }
)  # fmt: skip


def _given(graph: fx.Graph) -> dict[fx.Node, torch.Tensor]:
    """The fake tensors of a graph's inputs and attributes."""
    given = [node for node in graph.nodes if node.op in ("placeholder", "get_attr")]
    return {
        node: value for node in given if isinstance(value := node.meta.get("val"), torch.Tensor)
    }


def _written_inputs(graph: fx.Graph, effects: GraphEffects) -> list[int] | None:
    """The places of the inputs that a graph writes to; None where a copy does not give all of them
    back what they had."""
    places = {node: k for k, node in enumerate(graph.find_nodes(op="placeholder"))}
    written = [pair for pair in _given(graph).items() if effects.writes_to([pair[1]])]
    beyond = any("as_strided" in operator_name(node.target) for node in graph.nodes)
    plain = all(node in places and _takes_a_copy(fake) for node, fake in written)
    return [places[node] for node, _ in written] if plain and not beyond else None


def _takes_a_copy(fake: torch.Tensor) -> bool:
    if fake.layout is not torch.strided or compat.flattens(fake) or fake.is_inference():
        return False
    steps = zip(fake.shape, fake.stride(), strict=True)
    return all(isinstance(step, int) and (step or size == 1) for size, step in steps)


def _giving_back_draws(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """What was compiled; where it raises, the random state is as before: the program runs again."""

    def call(*inputs: Any) -> Any:
        devices = {x.device for x in inputs if isinstance(x, torch.Tensor) and x.is_cuda}
        before = torch.get_rng_state(), {d: torch.cuda.get_rng_state(d) for d in devices}
        try:
            return compiled(*inputs)
        except Exception:
            torch.set_rng_state(before[0])
            for device, state in before[1].items():
                torch.cuda.set_rng_state(state, device)
            raise

    return call


def _giving_back_writes(compiled: Callable[..., Any], written: Sequence[int]) -> Callable[..., Any]:
    """What was compiled; where it raises, the inputs at these places are as before: the program
    runs again. For backends that write before all else is computed."""

    def call(*inputs: Any) -> Any:
        before = [inputs[k].detach().clone(memory_format=torch.preserve_format) for k in written]
        try:
            return compiled(*inputs)
        except Exception:
            with torch.no_grad():
                for place, copy in zip(written, before, strict=True):
                    inputs[place].copy_(copy)
            raise

    return call


def errors_of(
    module: fx.GraphModule, inputs: Sequence[Any], effects: GraphEffects
) -> list[Exception]:
    """What torch raises where it runs the graph operation by operation, of every operation that
    does not need the result of one that raises: a backend may run them in another order. What the
    graph writes to is copied first, and the random state is as it was afterwards."""
    found: list[Exception] = []
    given = module.graph.find_nodes(op="placeholder")
    values: dict[fx.Node, Any] = dict(zip(given, inputs, strict=True))
    interpreter = fx.Interpreter(module, garbage_collect_values=False)
    interpreter.env = values
    random_state = torch.random.fork_rng() if effects.other else nullcontext()
    with compat.own_saved_tensors(), warnings.catch_warnings(), random_state:
        warnings.simplefilter("ignore")  # the frame itself is yet to warn
        for node, fake in _given(module.graph).items():
            if effects.writes_to([fake]):
                original = values[node] if node in values else interpreter.run_node(node)
                copy = original.detach().clone(memory_format=torch.preserve_format)
                values[node] = copy.requires_grad_(original.requires_grad)
        for node in module.graph.nodes:
            if node.op in ("placeholder", "output") or node in values:
                continue
            if all(needed in values for needed in node.all_input_nodes):
                try:
                    values[node] = interpreter.run_node(node)
                except Exception as error:
                    found.append(error.with_traceback(None))
    return found


class Misses:
    """Calls in which what a graph assumes of data does not hold. Rule: from MANY on, the function
    is to assume less if these are most of its calls: `expect_less` is given their number."""

    MANY = 8

    def __init__(self, expect_less: Callable[[int], None]) -> None:
        self.expect_less = expect_less
        self.count = 0

    def another(self) -> None:
        """One more call."""
        self.count += 1
        if self.count >= self.MANY:
            self.expect_less(self.count)


def skip_frame(cache: weakref.ref[FrameCache], code: CodeType) -> None:
    found = cache()
    if found is not None:
        found.skip(code)


def expect_less(
    converter: FrameCompiler, cache: weakref.ref[FrameCache], code: CodeType, name: str, misses: int
) -> None:
    """Compile a function again whose graphs have assumed of data what does not hold in most calls;
    `misses`: in so many."""
    found = cache()
    if found is None or 2 * misses <= sum(entry.hits for entry in found.entries(code)):
        return
    for entry in found.entries(code):
        found.remove(code, entry, False)
    kept = converter.dynamics.expect_less(code)
    why = f"{kept}: what was assumed of data did not hold in most calls"
    converter.records.static_only.append((name, why))
    logs.emit("recompiles", lambda: f"{name} {why}")


class AsItIs:
    """Makes of a frame's function one that runs uncaptured, after its graph has raised. left: what
    forbids that, which is then on record with the error. skip: lets the frame run uncaptured at
    later calls, too, where it was the backend that failed. misses: of what it assumes of data.
    besides: what forbids it where it is a fake of an operator that was wrong: the program's
    operators may run again, once, for what they say they write to is as it was. made: before the
    graph's first call; each takes it back."""

    def __init__(
        self,
        converter: FrameCompiler,
        module: fx.GraphModule,
        place: UserLine,
        effects: GraphEffects,
        left: str | None,
        skip: Callable[[], None],
        misses: Misses | None = None,
        besides: str | None = None,
        made: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.besides = besides
        self.made = made
        self.skip = skip
        self.misses = misses
        self.records = converter.records
        self.options = converter.options
        self.backend_name = converter.backend_name
        # the records keep the graph, and its parameters, as long as the program does
        self.module = weakref.ref(module)
        self.place = place
        self.effects = effects
        self.left = left
        self.grad_mode = torch.is_grad_enabled()
        self.told: set[type[Exception]] = set()

    def __call__(
        self, function: Callable[..., Any], error: BaseException, *inputs: Any
    ) -> Callable[..., Any]:
        for take_back in self.made:
            take_back()
        if self.effects.switches:
            compat.leave_modes(error)
            compat.set_grad_enabled(self.grad_mode)
        if not isinstance(error, Exception) or getattr(error, "is_a_finding", False):
            raise error
        wrong = getattr(error, "wrong_fake", None)
        if wrong is not None:
            return self._by_the_operator(function, error, wrong)
        if self.left is not None:
            text = f"its graph raised {type(error).__name__} and {self.left}: what the program"
            self.records.skip(self.place.function, f"{text} did to its objects before is lost")
            raise error
        module = self.module()
        raised = [error] if module is None else disabled(errors_of)(module, inputs, self.effects)
        compat.set_grad_enabled(self.grad_mode)  # the graph may end where it has switched it
        # what hooks of the program's make of saved tensors was not looked at
        if not compat.saved_tensors_hooked() and not any(_alike(error, x) for x in raised):
            self._record_failure(error, raised)
        run, records, name = disabled(function), self.records, self.place.function
        misses = self.misses
        told = f"its graph raised {type(error).__name__}, and the program did not end by it"

        def again(*args: Any) -> Any:
            answer = run(*args)
            records.skip(name, told)
            if misses is not None:
                misses.another()
            return answer

        return disabled(again)

    def _by_the_operator(
        self, function: Callable[..., Any], error: Exception, operator: str
    ) -> Callable[..., Any]:
        """A fake was wrong, by which all was compiled, and what Python decided by it: the frame
        runs uncaptured from now on, unless no graph may."""
        told = Break("FB0031", str(error), named=operator)
        text = f"{told}; {told.reason.hint}"
        if self.options.nopython or self.besides is not None:
            instead = "" if self.besides is None else f"; it does not run again: it {self.besides}"
            raise BackendError(f"{text}{instead}") from error
        without_frames(error)
        self.records.skip(self.place.function, text)
        self.skip()
        warn(f"{text}; {self.place.function} runs eagerly from now on")
        return disabled(function)

    def _record_failure(self, error: Exception, raised: Sequence[Exception]) -> None:
        """A failure of the backend: torch raises nothing of the kind."""
        first = type(error) not in self.told
        if first:
            self.told.add(type(error))
            self.records.faults.append(
                RecordedFault(self.place.function, self.place, error, CALL_OF_A_GRAPH)
            )
        if self.options.raise_internal_errors:
            raise error
        instead = ", ".join(sorted({type(other).__name__ for other in raised})) or "nothing"
        text = (
            f"backend {self.backend_name!r} failed in a call of what it had compiled: "
            f"{type(error).__name__}: {error}; torch raises {instead} there"
        )
        if self.options.nopython:
            raise BackendError(text) from error
        without_frames(error)
        self.skip()
        if first:
            warn(f"{text}; {self.place.function} runs eagerly from now on")


def _alike(one: Exception, other: Exception) -> bool:
    return isinstance(one, type(other)) or isinstance(other, type(one))
