"""Fallback: a graph that a stage cannot compile runs eagerly, counted and reported.

In: a backend that may raise. Out: one that does not, unless it was asked to.
Invariant: what stands in is the captured graph itself, run by torch, so that the answer, the
gradients and the user's own exceptions are those of eager.
"""

from __future__ import annotations

import opcode
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

import flambeau_aot
import flambeau_inductor
import torch
from torch import fx

from flambeau.backends.request import Backend, Request
from flambeau.errors import (
    BackendMissing,
    Fault,
    NotForThisBackend,
    StageError,
    StageFailure,
    WrongAnswer,
    warn,
)

LINES_SHOWN = 3

Given = TypeVar("Given", bound=Callable[..., Any])


def user_lines(gm: fx.GraphModule) -> str:
    """The last lines of the user's program that the graph comes from, innermost frames only."""
    seen: dict[str, None] = {}
    for node in gm.graph.nodes:
        trace = str(node.meta.get("stack_trace") or "").rstrip()
        head = trace.rfind('  File "')
        if head >= 0:
            seen[trace[head:]] = None
    lines = list(seen)
    if len(lines) <= LINES_SHOWN:
        return "\n".join(lines)
    return "\n".join([lines[0], f"  ... {len(lines) - 2} more lines", lines[-1]])


def stage_of(error: BaseException, default: str) -> str:
    """The stage that raised: told by the class of the error or of one of its causes."""
    seen: BaseException | None = error
    stages = _stages()
    while seen is not None:
        for kind, stage in stages:
            if isinstance(seen, kind):
                return stage
        seen = seen.__cause__
    return default


class StageFault(Exception):
    """Marks an error with the stage that it came out of; what was raised is its cause."""


class CompilerFault(StageFault):
    """Out of the graph compiler, while AOT was driving it."""


class PrepareFault(StageFault):
    """Out of the passes before autograd."""


def _stages() -> tuple[tuple[type[BaseException], str], ...]:
    """Error classes and the stage that raises them; the first that fits counts."""
    import flambeau_prims  # a graph from disk does without the primitives

    return (
        (CompilerFault, "inductor"),
        (PrepareFault, "prepare"),
        (flambeau_inductor.CompilerNotFound, "inductor"),
        (flambeau_prims.PrimError, "prims"),
        (flambeau_prims.NotYetSymbolic, "prims"),
        (flambeau_aot.AotError, "aot"),
    )


def is_refusal(error: BaseException) -> bool:
    """Whether a stage says by an exception of its own that it does not take a graph.

    All else is a fault. What AOT met while it ran the program on fake values is judged by its
    cause: torch refuses by RuntimeError, NotImplementedError and exceptions of its own, a
    decomposition by raising the IndexError that eager raises.
    """
    import flambeau_prims  # a graph from disk does without the primitives

    if type(error) is flambeau_aot.TraceError and error.__cause__ is not None:
        cause = error.__cause__
        eagers = isinstance(cause, IndexError) and _raised_by_a_rule(cause)
        return eagers or is_refusal(cause) or isinstance(cause, RuntimeError | ValueError)
    if isinstance(error, flambeau_aot.CompilerContractError | flambeau_inductor.CompilerFailed):
        return False
    refusing = (
        flambeau_aot.AotError,
        flambeau_prims.PrimError,
        flambeau_inductor.InductorError,
        flambeau_inductor.CompilerNotFound,
        NotForThisBackend,
        BackendMissing,
        WrongAnswer,
        NotImplementedError,
    )
    return isinstance(error, refusing) and not isinstance(error, RecursionError)


def _raised_by_a_rule(error: BaseException) -> bool:
    """Whether a decomposition has raised an error by a statement: an index of its own that is wrong
    raises without one."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code, module = trace.tb_frame.f_code, trace.tb_frame.f_globals.get("__name__", "")
    raised = opcode.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
    return raised and module.startswith("flambeau_prims.decomp.")


def _marking(fault: type[StageFault]) -> Callable[[Given], Given]:
    """A decorator: what the function raises is marked."""

    def mark(function: Given) -> Given:
        @wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                raise fault(str(error)) from error

        return cast(Given, marked)

    return mark


compiling, preparing = _marking(CompilerFault), _marking(PrepareFault)


def with_fallback(backend: Backend, request: Request, stage: str) -> Backend:
    """The backend; a graph that it cannot compile is left to torch, with one warning a reason.

    Raises StageError instead where the request is strict, and for a graph with open sizes: another
    one with constant sizes takes its place.
    """

    def guarded(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            compiled = backend(gm, example_inputs)
            if isinstance(compiled, flambeau_aot.Compiled):
                compiled.otherwise = later_fallback(gm, request, stage)
            return compiled
        except StageError:
            raise  # of a stage behind this one, which has said all
        except Exception as error:
            # capture makes a graph with open sizes again, with constant ones
            failure = _counted(_failure(gm, error, stage), request, has_open_sizes(gm))
            gm.meta["fallback"] = str(failure)  # capture asks for it
            forward: Callable[..., Any] = gm.forward
            return forward

    return guarded


def _counted(failure: StageFailure, request: Request, forbidden: bool = False) -> StageFailure:
    """The failure of a graph that runs eagerly from now on, counted and shown; raises StageError
    where no graph may."""
    fault = not is_refusal(failure.error)
    if fault:
        kind, line = type(failure.error).__name__, failure.user_lines
        request.recorder.fault(Fault(failure.stage, kind, str(failure.error), line))
    internal = fault and request.choices.capture.with_environment().raise_internal_errors
    if request.strict or internal or forbidden:
        raise StageError(failure, fault) from failure.error
    if request.recorder.fall_back(failure):
        warn(f"{failure}\nThis part of the program runs eagerly.")
    return failure


def later_fallback(
    gm: fx.GraphModule, request: Request, stage: str
) -> Callable[[Exception], Callable[..., Any]]:
    """What stands in for a graph that was compiled and has to be compiled again at a later call,
    for arguments that share memory in another way, where that cannot be: the captured graph."""

    def otherwise(error: Exception) -> Callable[..., Any]:
        failure = _failure(gm, error, stage)
        _counted(replace(failure, graph=f"{failure.graph}_again"), request)
        forward: Callable[..., Any] = gm.forward
        return forward

    return otherwise


def derivative_failure_hook(request: Request, name: str, lines: str) -> Callable[[Exception], None]:
    """What is called with why the derivative of a compiled graph, which a backward pass with
    `create_graph=True` asks for, runs eagerly: it is counted and shown as a graph that does."""

    def told(error: Exception) -> None:
        stage = stage_of(error, "aot")
        failure = StageFailure(stage, f"{name}_derivative", error, lines)
        if not is_refusal(error):
            request.recorder.fault(Fault(stage, type(error).__name__, str(error), lines))
        if request.recorder.fall_back(failure):
            warn(f"{failure}\nThis part of the program runs eagerly.")

    return told


def has_open_sizes(gm: fx.GraphModule) -> bool:
    """Whether a captured graph leaves sizes or numbers open."""
    for node in gm.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        sizes = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        if any(isinstance(size, torch.SymInt | torch.SymFloat) for size in sizes):
            return True
    return False


def _failure(gm: fx.GraphModule, error: Exception, stage: str) -> StageFailure:
    name = graph_name(gm)
    cause = error.__cause__ if isinstance(error, StageFault) and error.__cause__ else error
    return StageFailure(stage_of(error, stage), name, cause, user_lines(gm))


def graph_name(gm: fx.GraphModule) -> str:
    """The name that capture gave the graph's class, for messages and debug folders."""
    return type(gm).__name__
