"""Fallback: a graph that a stage cannot compile runs eagerly, counted and reported.

In: a backend that may raise. Out: one that does not, unless the request is strict.
Invariant: what stands in is the captured graph itself, run by torch, so that the answer, the
gradients and the user's own exceptions are those of eager.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import flambeau_aot
import flambeau_inductor
from flambeau_aot.sizes import symbolic_parts
from flambeau_capture.observe.records import without_frames
from torch import fx

from flambeau.backends.request import Backend, Request
from flambeau.errors import (
    BackendMissing,
    NotForThisBackend,
    StageError,
    StageFailure,
    WrongAnswer,
    warn,
)
from flambeau.events.records import RecordCollector
from flambeau.events.stage_products import innermost
from flambeau.testing.comparison import observe

LINES_SHOWN = 3


def user_lines(gm: fx.GraphModule) -> str:
    """The last lines of the user's program that the graph comes from, innermost frames only."""
    lines = list(dict.fromkeys(filter(None, map(innermost, gm.graph.nodes))))
    if len(lines) <= LINES_SHOWN:
        return "\n".join(lines)
    return "\n".join([lines[0], f"  ... {len(lines) - 2} more lines", lines[-1]])


def stage_of(error: BaseException, default: str) -> str:
    """The stage that raised, by the class of the error or of one of its causes."""
    import flambeau_prims  # a graph from disk does without the primitives

    stages: tuple[tuple[type[BaseException], str], ...] = (
        (flambeau_inductor.CompilerNotFound, "inductor"),
        (flambeau_prims.PrimError, "prims"),
        (flambeau_prims.NotYetSymbolic, "prims"),
        (flambeau_aot.AotError, "aot"),
    )
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, StageFault):
            return seen.stage
        for kind, stage in stages:
            if isinstance(seen, kind):
                return stage
        seen = seen.__cause__
    return default


class StageFault(Exception):
    """Marks an error with the stage that it came out of; what was raised is its cause."""

    def __init__(self, stage: str, error: Exception) -> None:
        super().__init__(str(error))
        self.stage = stage


@contextmanager
def marking(stage: str) -> Iterator[None]:
    """Mark what is raised inside with a stage; also a decorator."""
    try:
        yield
    except Exception as error:
        raise StageFault(stage, error) from error


def is_refusal(error: BaseException) -> bool:
    """Whether a stage says by an exception of its own that it does not take a graph.

    All else is a fault, unless eager raises it too. What AOT saw while it ran the program on fake
    values is judged by its cause: torch refuses by RuntimeError, NotImplementedError and
    exceptions of its own.
    """
    import flambeau_prims  # a graph from disk does without the primitives

    if type(error) is flambeau_aot.TraceError and error.__cause__ is not None:
        cause = error.__cause__
        return is_refusal(cause) or isinstance(cause, RuntimeError | ValueError)
    if isinstance(error, flambeau_aot.CompilerContractError | flambeau_inductor.CompilerFailed):
        return False
    refusing = (
        flambeau_aot.AotError,
        flambeau_prims.PrimError,
        flambeau_inductor.InductorError,
        NotForThisBackend,
        BackendMissing,
        WrongAnswer,
        NotImplementedError,
    )
    return isinstance(error, refusing) and not isinstance(error, RecursionError)


def with_fallback(backend: Backend, request: Request, stage: str) -> Backend:
    """The backend; a graph that it cannot compile is left to torch, with one warning a reason.

    Raises StageError instead where the request is strict, and for a graph with open sizes: another
    one with constant sizes takes its place.
    """

    def guarded(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            compiled = backend(gm, example_inputs)
        except StageError:
            raise  # of an inner backend, which has said all
        except Exception as error:
            failure = _failure(gm, error, stage)
            _raise_where_no_graph_may(failure, gm, example_inputs, request)
            gm.meta["fallback"] = str(failure)  # capture reads it
            return EagerGraph(gm, failure, request)
        if isinstance(compiled, flambeau_aot.Compiled):
            compiled.otherwise = partial(otherwise, gm)
        return compiled

    def otherwise(gm: fx.GraphModule, error: Exception) -> Callable[..., Any]:
        """For arguments of a later call that share memory in another way, if that fails."""
        failure = _failure(gm, error, stage)
        failure = replace(failure, graph=f"{failure.graph}_again")
        _raise_where_no_graph_may(failure, gm, None, request)
        return EagerGraph(gm, failure, request)

    return guarded


class EagerGraph:
    """The captured graph, run by torch in the place of a compiled one.

    The failure that it stands in for is a candidate until the first call: what that raises may be
    the program's own error, which is neither a fault nor worth a warning.
    """

    def __init__(self, gm: fx.GraphModule, failure: StageFailure, request: Request) -> None:
        without_frames(failure.error)
        self._run: Callable[..., Any] = gm.forward
        self._failure: StageFailure | None = failure
        self._recorder = request.recorder
        self._lock = threading.Lock()
        self._recorder.suspect(failure)

    def __call__(self, *inputs: Any) -> Any:
        if self._failure is None:
            return self._run(*inputs)
        raised: Exception | None = None
        try:
            return self._run(*inputs)
        except Exception as error:
            raised = error
            raise
        finally:
            with self._lock:
                failure, self._failure = self._failure, None
            if failure is not None and is_of_the_program(failure, raised):
                self._recorder.acquit(failure)
            elif failure is not None:
                _count(failure, self._recorder)


def is_of_the_program(failure: StageFailure, raised: BaseException | None) -> bool:
    """Whether what eager raises in the place of a graph explains a stage's failure: any error a
    refusal, a fault one of its own type or of the type of one of its causes."""
    seen: BaseException | None = failure.error
    while failure.is_fault and seen is not None and type(seen) is not type(raised):
        seen = seen.__cause__
    return raised is not None and seen is not None


def _count(failure: StageFailure, recorder: RecordCollector) -> None:
    """Count and show a graph that runs eagerly from now on."""
    if recorder.fall_back(failure):
        warn(f"{failure}\nThis part of the program runs eagerly.")


def _raise_where_no_graph_may(
    failure: StageFailure, gm: fx.GraphModule, inputs: Sequence[Any] | None, request: Request
) -> None:
    """Raise StageError where no graph may run eagerly, unless it raises the same there.

    Nothing of the program comes after a StageError, so that eager is run on copies of the inputs,
    where these are at hand, to see. A graph with open sizes that is merely refused is not run:
    another one with constant sizes follows in any case.
    """
    # capture makes a graph with open sizes again, with constant ones, while it captures; at a later
    # call nothing else can take its place
    forbidden = inputs is not None and has_open_sizes(gm)
    asked = request.choices.capture.with_environment().raise_internal_errors
    internal = failure.is_fault and asked
    if not (request.strict or internal or forbidden):
        return
    if inputs is not None and (failure.is_fault or not forbidden):
        eager = observe(gm.forward, inputs, modules=[gm], backward=False)
        if is_of_the_program(failure, eager.error):
            if not forbidden:
                return
            failure = replace(failure, is_fault=False)  # with constant sizes it is judged again
    if failure.is_fault:
        request.recorder.fault(failure.as_fault())
    raise StageError(failure) from failure.error


def derivative_failure_hook(request: Request, name: str, lines: str) -> Callable[[Exception], None]:
    """Counts and shows a derivative of a compiled graph, which a backward pass with
    `create_graph=True` needs, as a graph that runs eagerly; called with the reason."""

    def failed(error: Exception) -> None:
        stage, fault = stage_of(error, "aot"), not is_refusal(error)
        _count(StageFailure(stage, f"{name}_derivative", error, lines, fault), request.recorder)

    return failed


def has_open_sizes(gm: fx.GraphModule) -> bool:
    """Whether a captured graph leaves sizes or numbers open."""
    return any(True for node in gm.graph.nodes for _ in symbolic_parts(node.meta.get("val")))


def _failure(gm: fx.GraphModule, error: Exception, stage: str) -> StageFailure:
    name = graph_name(gm)
    cause = error.__cause__ if isinstance(error, StageFault) and error.__cause__ else error
    lines, fault = user_lines(gm), not is_refusal(cause)
    frames = traceback.extract_tb(cause.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return StageFailure(stage_of(error, stage), name, cause, lines, fault, place)


def graph_name(gm: fx.GraphModule) -> str:
    """The name that capture gave the graph's class, for messages and debug folders."""
    return type(gm).__name__
