"""The public interface: compile, disable, run, reset, markers.

In: functions, methods, modules. Out: callables that behave like them and compile as they run.
Invariant: the wrapped object keeps its signature, attributes, hooks and `isinstance`; nothing is
compiled outside of a compiled callable's dynamic extent.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture import backends
from flambeau_capture._native import FrameCache, compiled, disabled, set_foreign, set_tracing
from flambeau_capture.breaks import REASONS, BreakReport, Unsupported, UserLine
from flambeau_capture.bytecode.stack import GENERATOR_LIKE
from flambeau_capture.errors import CaptureFault
from flambeau_capture.frame.compiler import FrameCompiler
from flambeau_capture.frame.function_marks import DISABLED, MARK
from flambeau_capture.frame.module_twins import ORIGINAL, twin_of
from flambeau_capture.frame.module_twins import notes_of as notes_of
from flambeau_capture.frame.recompile_limits import LimitWarning
from flambeau_capture.frame.sizes.policies import size_policies
from flambeau_capture.frame.skip_rules import skip_code
from flambeau_capture.frame.suspending import in_parts
from flambeau_capture.observe import logs
from flambeau_capture.observe.records import RecordedFault, Records
from flambeau_capture.options import Options
from flambeau_capture.source import FrameCall

_SETTER = compat.callback_setter()
if _SETTER is not None:  # a call of ours may be within a program that torch compiles
    set_foreign(_SETTER)
set_tracing(compat.symbolically_traced)

F = TypeVar("F", bound=Callable[..., Any])

_CACHES: weakref.WeakSet[Any] = weakref.WeakSet()
_CACHES_LOCK = threading.Lock()


MOST_ENTRIES = 64
"""Of a code object, where sizes have a graph for each bucket."""


class Decorator:
    """One compiled callable's cache, with the converter that fills it."""

    def __init__(
        self, backend: str | backends.Backend, options: Options, target: Any = None
    ) -> None:
        logs.from_environment()
        options = options.with_environment()
        name, found = backends.lookup(backend)
        self.converter = FrameCompiler(found, name, options)
        limit = options.cache_size_limit
        policies = size_policies(options.sizes, target, _code_below(target))
        if policies is not None:
            self.converter.dynamics.policies = policies
            limit = MOST_ENTRIES if policies.buckets else limit
        self.cache = FrameCache(self.converter, limit=limit)
        self.cache.guards_always = options.nopython
        self.cache.on_limit = LimitWarning(self.converter, self.cache)
        self.cache.on_stillborn = functools.partial(_note_stillborn, weakref.ref(self))
        observe = getattr(found, "observe", None)
        if observe is not None:  # a profiler
            self.converter.observer = observe(self)
        with _CACHES_LOCK:
            _CACHES.add(self)

    @property
    def records(self) -> Records:
        return self.converter.records

    def reset(self) -> None:
        """Forget every entry, and what was decided on compiling no more."""
        self.cache.clear()
        self.converter.start_again(self.cache)
        self.converter.names.release(in_use=self.cache.running > 0)


def _note_stillborn(compiler: weakref.ref[Decorator], *call: Any) -> None:
    """Note a frame that does not fit the guards made from it: a fault of capture."""
    found, frame = compiler(), FrameCall(*call)
    if found is None:
        return
    converter = found.converter
    name = converter.user_names.get(frame.code, frame.code.co_name)
    guards = converter.records.guards[-1] if converter.records.guards else None
    failure = guards.explain(frame.scope()) if guards else None
    told = failure or "the native check alone refuses it"
    text = f"the guards of {name} do not hold on the frame they were made from: {told}"
    error = CaptureFault(text)
    converter.records.faults.append(
        RecordedFault(name, UserLine.first_of(frame.code), error, "guards")
    )
    if converter.options.nopython or converter.options.raise_internal_errors:
        raise error


def optimize(
    backend: str | backends.Backend = "eager",
    *,
    nopython: bool = False,
    dynamic: bool | None = None,
    options: Options | None = None,
    **choices: Any,
) -> Callable[[F], F]:
    """A decorator for functions, methods and modules.

    backend: a name of `list_backends()` or a function `backend(gm, example_inputs) -> callable`.
    nopython: raise `Unsupported` at the first graph break.
    options: everything else; or give fields of `Options` as keywords.
    """
    base = options or Options()
    chosen = dataclasses.replace(
        base,
        nopython=nopython or base.nopython,
        dynamic=base.dynamic if dynamic is None else dynamic,
        **choices,
    )
    backends.lookup(backend)  # an unknown name is an error now

    def decorate(target: Any) -> Any:
        return _wrap(target, backend, chosen)

    return decorate


def compile(
    fn: Any = None,
    backend: str | backends.Backend = "eager",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: Options | None = None,
    **choices: Any,
) -> Any:
    """`optimize` with the function as first argument; usable as a decorator too."""
    decorate = optimize(backend, nopython=fullgraph, dynamic=dynamic, options=options, **choices)
    return decorate if fn is None else decorate(fn)


def _wrap(target: Any, backend: str | backends.Backend, options: Options) -> Any:
    if isinstance(target, torch.nn.Module):
        compiler = Decorator(backend, options, target)
        return twin_of(target, lambda call: compiled(call, compiler.cache), compiler)
    if isinstance(target, type):
        raise TypeError("compile an instance or a function, not a class")
    if not callable(target):
        raise TypeError(f"{type(target).__name__} cannot be compiled: it cannot be called")
    compiler = Decorator(backend, options, target)
    sight = _in_sight(target, options.nopython)
    made = compiled(_suspending(sight, compiler.cache), compiler.cache)
    try:
        functools.update_wrapper(made, target)
    except AttributeError:
        functools.update_wrapper(made, type(target).__call__)
    made.__dict__["__flambeau_compiler__"] = compiler
    made.__dict__[compat.UNSEEN] = True  # torch's own compiler calls it, and does not look inside
    return made


def _suspending(target: Callable[..., Any], cache: FrameCache) -> Callable[..., Any]:
    """The target; of a coroutine function, or a generator function, one with compiled parts."""
    if isinstance(target, types.MethodType):
        return types.MethodType(_suspending(target.__func__, cache), target.__self__)
    if not isinstance(target, types.FunctionType) or not target.__code__.co_flags & GENERATOR_LIKE:
        return target
    return in_parts(target, cache) or target


def _in_sight(target: Callable[..., Any], nopython: bool) -> Callable[..., Any]:
    """The target, or a function that calls it, where it has no code of its own that capture would
    look at: what torch.func.vmap answers, an optimizer's `step`, an operator. `nopython`: nothing
    is called unseen, an object made in C neither; a generator or a coroutine is refused."""
    code = _code_of(target)
    if code is not None:
        left_alone = skip_code(code)
        if nopython and code.co_flags & GENERATOR_LIKE:
            return _refusing(code)
    else:
        unseen = nopython and not isinstance(target, compiled)
        left_alone = unseen or isinstance(target, types.BuiltinFunctionType)
    if not left_alone:
        return target
    name = getattr(target, "__name__", type(target).__name__)

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_filename=f"<call of {name}>", co_name=name)
    return call


def _refusing(code: types.CodeType) -> Callable[..., Any]:
    """What stands for a function whose frames run in pieces, none of which is captured."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        what = f"{code.co_name} is a generator, or a coroutine"
        raise Unsupported(BreakReport(REASONS["FB0021"], what, (UserLine.first_of(code),)))

    return disabled(refuse)


def _code_of(target: Any) -> types.CodeType | None:
    """The code of the first frame that a call of the target enters; None where there is none."""
    while isinstance(target, functools.partial):
        target = target.func
    if isinstance(target, compiled | disabled):  # which answers for the function below it
        return None
    if not hasattr(target, "__code__"):
        target = getattr(target, "__func__", None) or type(target).__call__
    code = getattr(target, "__code__", None)
    return code if isinstance(code, types.CodeType) else None


def _code_below(target: Any) -> types.CodeType | None:
    """The code whose parameters a call of the target names."""
    return _code_of(target.forward if isinstance(target, torch.nn.Module) else target)


def compiler_of(target: Any) -> Decorator | None:
    """The compiler of a compiled callable."""
    found = getattr(target, "__flambeau_compiler__", None)
    return found if isinstance(found, Decorator) else None


def uncompiled(target: Any) -> Any:
    """What a compiled callable was made of; what is not compiled is itself. It is how those that
    capture a function anew see it: the cache of the compiled one would take its frames."""
    while True:
        if isinstance(target, compiled):
            target = target.__dict__["__wrapped__"]
        elif isinstance(target, types.MethodType) and isinstance(target.__func__, compiled):
            target = types.MethodType(uncompiled(target.__func__), target.__self__)
        elif not isinstance(target, torch.nn.Module):
            return target
        elif compiler_of(target) is not None:
            target = getattr(target, ORIGINAL)
        elif isinstance(target._compiled_call_impl, compiled):  # `Module.compile`
            return _as_written(target)
        elif isinstance(target.__dict__.get("forward"), compiled):
            target = copy.copy(target)
            target.forward = uncompiled(target.forward)
        else:
            return target


def _as_written(module: torch.nn.Module) -> torch.nn.Module:
    return twin_of(module, lambda _: type(module)._call_impl)


def live_compilers() -> list[Decorator]:
    """Those of all compiled callables that are alive."""
    with _CACHES_LOCK:
        return list(_CACHES)


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function (usable as decorator) that runs, with all it calls, without compiling. Of a module
    it makes another that shares its state, as `compile` does.

    recursive: False leaves what it calls to be compiled. reason: a word for whoever reads it.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, torch.nn.Module):
        return twin_of(fn, functools.partial(disable, recursive=recursive, reason=reason))
    if not recursive:

        @functools.wraps(fn)
        def alone(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        compat.mark_disabled_alone(alone)
        return alone
    made = disabled(fn)
    functools.update_wrapper(made, fn)
    made.__dict__[MARK] = DISABLED
    made.__dict__[compat.UNSEEN] = True
    return made


def reset() -> None:
    """Forget all that was compiled."""
    with _CACHES_LOCK:
        for compiler in list(_CACHES):
            compiler.reset()
