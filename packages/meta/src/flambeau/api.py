"""The public interface: `compile`, `report`, `explain` and their relatives.

In: functions, methods and modules. Out: the same, compiled when they are first called.
Invariant: choices are resolved here, once, into frozen options; a wrong name or option raises at
once, before anything is captured.
"""

from __future__ import annotations

import copy
import copyreg
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack, overload

import flambeau_capture
import torch
from flambeau_capture.api import compiler_of, notes_of
from flambeau_capture.frame.outcome.eager_rerun import CALL_OF_A_GRAPH

from flambeau.backends import is_built_in, resolve
from flambeau.backends.request import Request
from flambeau.choices import choose, of_stage
from flambeau.errors import BadOption, Fault
from flambeau.events import logs
from flambeau.events.records import RecordCollector, Report, recorders_of, remember, total
from flambeau.switching.stack import module_of_program
from flambeau.tracing import trace
from flambeau.variables import DISABLE, REPRO_AFTER, check_variables

CALLS = 3
"""Calls of each graph that are checked, unless another number is given."""

Fn = TypeVar("Fn", bound=Callable[..., Any])


class Recipe(TypedDict, total=False):
    """The arguments of `compile` but the function."""

    backend: str | Callable[..., Any]
    fullgraph: bool
    dynamic: bool | None
    sizes: Mapping[str, Any] | None
    mode: str | None
    options: Mapping[str, object] | None
    verify: bool | int


@overload
def compile(fn: Fn, **recipe: Unpack[Recipe]) -> Fn: ...


@overload
def compile(fn: None = None, **recipe: Unpack[Recipe]) -> Callable[[Fn], Fn]: ...


def compile(
    fn: Any = None,
    *,
    backend: str | Callable[..., Any] = "inductor",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    sizes: Mapping[str, Any] | None = None,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    verify: bool | int = False,
) -> Any:
    """Make a function, method or module faster; also a decorator, with or without arguments.

    backend: a name of `list_backends()` or `backend(gm, example_inputs) -> callable`.
    fullgraph: what cannot be captured or compiled is an error that names the user's line, instead
    of a part of the program that runs as before.
    sizes: what is done about sizes of arguments that vary, by parameter, part and dimension:
    "open", "fixed", `Bucket(...)` or `PadTo(...)`, as in `{"tokens": {1: flambeau.Bucket()}}`.
    mode: a named set of options. options: single ones, by name or, where two stages have the same
    name, as `stage.name`; they win over the mode's. A backend that is not built in is given them
    as `options=`, all but those spelled `capture.name`.

    verify: the first calls of each graph (three, or so many) are checked against running it as it
    is, and in double precision; a graph that is wrong is named in a warning and runs as it is.

    With FLAMBEAU_DISABLE=1 in the environment everything runs as it is.

    Raises UnknownBackend, UnknownMode and UnknownOption, each with the names that are known,
    BadOption for a value that an option cannot have, and SizePolicyError for what `sizes` cannot
    say.
    """
    check_variables()
    for follow in (trace.from_environment, logs.from_environment, logs.show_progress):
        follow()
    if not isinstance(options, Mapping | None):
        raise BadOption("options", options, "names with their values, or None")
    if not isinstance(verify, int) or verify < 0:
        raise BadOption("verify", verify, "bool or a number of calls")
    given = dict(options or {})
    recipe: Recipe = {
        "backend": backend,
        "fullgraph": fullgraph,
        "dynamic": dynamic,
        "sizes": sizes,
        "mode": mode,
        "options": given,
        "verify": verify,
    }
    # a backend that is not ours reads its options itself, but for those of capture in full spelling
    own = given if is_built_in(backend) else of_stage(given, "capture")
    theirs = {key: value for key, value in given.items() if key not in own}
    choices = choose(mode, own, nopython=fullgraph, dynamic=dynamic, sizes=sizes)
    recorder = RecordCollector(is_foreign=not is_built_in(backend))
    settings = None
    if os.environ.get(REPRO_AFTER):
        from flambeau.repro.calls import watched_calls  # tools, which a first call need not import
        from flambeau.repro.hook import Settings

        settings = Settings.from_environment()
    request = Request(
        choices,
        recorder,
        strict=fullgraph,
        options=theirs,
        never_slower=mode == "never-slower",
        repro=settings,
        verify=CALLS if verify is True else int(verify),
    )
    chosen = resolve(backend, request)
    watched = replace(choices.capture, watch=recorder.watch.publish)
    decorate = flambeau_capture.optimize(
        chosen, nopython=fullgraph, dynamic=dynamic, options=watched
    )

    def decorator(target: Any) -> Any:
        compiled = decorate(module_of_program(target))
        if os.environ.get(DISABLE, "0") not in ("", "0"):
            compiler = compiler_of(compiled)
            assert compiler is not None, "what decorate makes has one"
            compiler.cache.mode = "off"
        make_copyable(compiled, target, recipe)
        if settings is not None and settings.looks_at_calls:
            compiled = watched_calls(compiled, target, settings.place)
        remember(compiled, recorder)
        return compiled

    return decorator if fn is None else decorator(fn)


def optimize(
    backend: str | Callable[..., Any] = "inductor", nopython: bool = False
) -> Callable[[Fn], Fn]:
    """A decorator: `compile` by its first name. `nopython` is `fullgraph`."""
    return compile(backend=backend, fullgraph=nopython)


def report(compiled: Any = None) -> Report:
    """What compiling did so far: of one compiled callable, or of all that are alive.

    Raises TypeError for what `compile` did not return.
    """
    return total(_report_of(*each) for each in recorders_of(compiled))


def _report_of(compiled: Any, recorder: RecordCollector) -> Report:
    compiler = compiler_of(compiled)
    if compiler is None:
        return recorder.report()
    seen = compiler.records
    faults = [
        Fault(f.while_doing, type(f.error).__name__, str(f.error), str(f.line or "").strip("\n"))
        for f in seen.faults
    ]
    # what a backend of the user's own gave back is none of ours
    foreign = [each for each in faults if recorder.is_foreign and each.stage == CALL_OF_A_GRAPH]
    return recorder.report(
        breaks=tuple(dict.fromkeys(map(str, seen.breaks))),
        guards=sum(len(each.items) for each in seen.guards),
        skipped=tuple(f"{name}: {why}" for name, why in seen.skipped),
        faults=[each for each in faults if each not in foreign],
        backend_errors=(*map(str, seen.backend_errors), *map(str, foreign)),
        settled=tuple(seen.settled),
        narrowed=tuple(f"{name} {why}" for name, why in seen.static_only),
    )


MADE_OF = "__flambeau_made_of__"


def make_copyable(compiled: Any, target: Any, recipe: Recipe) -> None:
    """Let `compiled` be copied and pickled as `compile(target, **recipe)`."""
    notes_of(compiled)[MADE_OF] = target, recipe
    if not isinstance(compiled, torch.nn.Module):
        copyreg.pickle(type(compiled), _reduce)
        return
    kind: Any = type(compiled)  # a class of its own
    kind.__reduce_ex__, kind.__deepcopy__ = _reduce_module, _copy_module


def _reduce_module(compiled: Any, protocol: Any) -> Any:
    return compiled_again, notes_of(compiled)[MADE_OF]


def _copy_module(compiled: Any, memo: dict[int, Any]) -> Any:
    target, recipe = notes_of(compiled)[MADE_OF]
    return compiled_again(copy.deepcopy(target, memo), recipe)


def compiled_again(target: Any, recipe: Recipe) -> Any:
    """`compile(target, **recipe)`: what copies and pickles are made by."""
    return compile(target, **recipe)


def _reduce(compiled: Any) -> Any:
    """A global name, or the target and the recipe."""
    name = str(getattr(compiled, "__qualname__", ""))
    found: Any = sys.modules.get(str(getattr(compiled, "__module__", "")))
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is compiled:
        return name
    if MADE_OF not in compiled.__dict__:
        raise TypeError(f"{compiled!r} was not made by flambeau.compile: it cannot be copied")
    return compiled_again, compiled.__dict__[MADE_OF]
