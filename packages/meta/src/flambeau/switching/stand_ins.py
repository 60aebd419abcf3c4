"""Stand-ins of `torch.compile`, `torch.compiler` and `torch._dynamo` while it is installed.

In: the function that is stood in for, and a program's arguments. Out: what torch's would answer,
done by Flambeau. Invariant: each name here is one of `install.NAMES`, and takes the arguments of
torch's; where a program has torch's compiler loaded, what concerns functions that it has compiled
before is said to it too.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakValueDictionary

import flambeau_capture
import torch
from flambeau_capture._native import compiled
from flambeau_capture.api import compiler_of, notes_of
from flambeau_capture.frame.module_twins import twin_of

from flambeau import _torch_compat as compat
from flambeau import api, cache
from flambeau.backends import by_name, is_built_in
from flambeau.backends import list_backends as known_backends
from flambeau.errors import UnknownBackend
from flambeau.events import logs
from flambeau.switching import translation
from flambeau.switching.optimized_module import INSIDE, OptimizedModule
from flambeau.switching.stack import loaded
from flambeau.switching.translation import say_once

Original = Callable[..., Any]

#: torch's names of backends that differ from a built-in one in nothing that Flambeau has
SAME = {
    "eager_noexcept": "eager",
    "eager_debug": "eager",
    "pre_dispatch_eager": "eager",
    "aot_eager_decomp_partition": "aot_eager",
    "aot_eager_default_partitioner": "aot_eager",
    "flambeau": "inductor",
}


# --- torch.compile --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Context:
    """One call of `torch.compile` but its function: it compiles any number of them so."""

    recipe: api.Recipe
    fails_on_recompile: bool = False
    is_isolated: bool = False

    def __call__(self, target: Any) -> Any:
        """What `torch.compile(target)` answers: of the same target and recipe, while it is alive,
        what it answered before, with its entries. Programs compile where they call."""
        target = innermost(target)
        if isinstance(target, type):
            return self._class(target)
        made = self._made(target) if self.is_isolated else self._kept(target)
        return OptimizedModule(target, made, self) if isinstance(target, torch.nn.Module) else made

    def _kept(self, target: Any) -> Any:
        owner = target.__self__ if isinstance(target, MethodType) else None
        place = id(target if owner is None else target.__func__), id(owner)
        made = _MADE.get(place)
        if made is None or not _alike(vars(notes_of(made)[CONTEXT]), vars(self)):
            made = _MADE[place] = self._made(target)
            if isinstance(target, FunctionType):
                target.__dict__[KEPT] = _Kept(made)
        return made

    def _made(self, target: Any) -> Any:
        made = api.compile(target, **self.recipe)
        compiler = compiler_of(made)
        if self.fails_on_recompile and compiler is not None:
            compiler.cache.mode = "fail_on_recompile"
        notes = notes_of(made)
        notes.pop(KEPT, None)  # of the function, whose attributes it has: what was made before
        notes.update({MADE_OF: target, CONTEXT: self})
        return made

    def _class(self, target: type) -> type:
        """A class whose instances run compiled."""
        kind: Any = target
        kind.__call__ = self(kind.__call__)
        return target


def innermost(target: Any) -> Any:
    """What a callable that `torch.compile` made was made of: to compile that again is to choose
    anew."""
    around = (OptimizedModule, getattr(loaded("dynamo"), "OptimizedModule", OptimizedModule))
    while True:
        if type(target) in around:
            target = getattr(target, INSIDE)
        elif isinstance(target, FunctionType | compiled) and _is_compiled(target):
            target = target.__dict__[MADE_OF]
        else:
            return target


MADE_OF, CONTEXT, KEPT = "_torchdynamo_orig_callable", "dynamo_ctx", "__flambeau_kept__"
#: what was last made of a function or module, or of a method and its object
_MADE: WeakValueDictionary[tuple[int, int], Any] = WeakValueDictionary()


class _Kept:
    """What was made of a function, an attribute of it: it lives as long. A function that is pickled
    with its attributes takes nothing of it along."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def __reduce__(self) -> Any:
        return type(None), ()


def _alike(one: Any, other: Any) -> bool:
    """Whether two arguments say the same; of an object that is not plain, only itself does."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return one is other or (isinstance(one, str | int | float | MethodType) and one == other)


def _is_compiled(function: Any) -> bool:
    """Whether a function, not one that has copied its attributes, is what `torch.compile` made."""
    own = function.__dict__
    made = isinstance(function, compiled) or own.get("_torchdynamo_wrapper_id") == id(function)
    return made and MADE_OF in own and not own.get("_torchdynamo_disable_recursive")


def compile(original: Original, model: Any = None, **given: Any) -> Any:
    """`torch.compile`: its arguments as Flambeau's."""
    try:
        inspect.signature(original).bind(model, **given)
    except TypeError as error:  # what torch has no argument for
        raise TypeError(f"compile() {error}") from None
    if given.get("mode") is not None and given.get("options") is not None:
        raise RuntimeError("compile() takes mode= or options=, not both")
    if model is None and "model" not in given:
        context = _context(given)
        return (lambda target: target) if context is None else context
    if torch.compiler.is_exporting():
        return model
    context = _context(given)
    return model if context is None else context(model)


def optimize(original: Original, backend: Any = "inductor", **given: Any) -> Any:
    """`torch._dynamo.optimize`, the older form of `torch.compile`."""
    given = dict(given, fullgraph=given.pop("nopython", False) or given.pop("error_on", False))
    known = {"fullgraph", "dynamic", "disable", "recompile_limit", *translation.ARGUMENTS}
    for name in sorted(given.keys() - known):
        if given.pop(name) is not None:
            say_once(f"{name}= of the optimize call has no counterpart in Flambeau")
    context = _context(dict(given, backend=backend))
    return (lambda target: target) if context is None else context


def optimize_assert(original: Original, backend: Any = "inductor", **given: Any) -> Any:
    """`torch._dynamo.optimize_assert`: one graph or an error."""
    return optimize(original, backend, **{**given, "nopython": True})


def _context(given: Mapping[str, Any]) -> Context | None:
    """The recipe for the arguments of `torch.compile`; None where nothing is to be compiled."""
    artifacts = translation.artifacts_of_environment()
    if artifacts and not os.environ.get(logs.VARIABLE):
        logs.set_logs(artifacts)
    options = dict(given.get("options") or {})
    for name, text in translation.ARGUMENTS.items():
        if given.get(name) is not None:
            say_once(f"{name}= of the compile call has no counterpart in Flambeau: {text}")
    if given.get("disable") or translation.is_disabled():
        return None
    filtered = {
        name: options.pop(name) for name in ("guard_filter_fn", "use_aoti") & options.keys()
    }
    translation.options_of(filtered)
    backend, mode = given.get("backend"), given.get("mode")
    backend = _found(_default_backend() if backend is None else backend)
    own = translation.options_of_config() | translation.options_of_environment()
    if backend == "inductor":
        mode, chosen = translation.mode_of(mode), own | translation.options_of(options)
    else:
        chosen = {key: value for key, value in own.items() if key.startswith("capture.")}
        if is_built_in(backend):
            if options or mode not in (None, "default"):
                say_once(f"backend {backend!r} takes no mode and no options: they mean nothing")
        else:
            chosen |= options
            backend = _with_mode(backend, mode)
        mode = None
    limit = given.get("recompile_limit")
    if limit is not None:
        chosen["capture.cache_size_limit"] = translation.entries(limit)
    dynamic = given.get("dynamic")
    return Context(
        {
            "backend": backend,
            "fullgraph": bool(given.get("fullgraph")),
            "dynamic": translation.dynamism_of_config() if dynamic is None else dynamic,
            "mode": mode,
            "options": chosen,
        },
        translation.fails_on_recompile(),
        bool(given.get("isolate_recompiles")),
    )


def _found(backend: Any) -> Any:
    """A backend as `flambeau.compile` takes it: a name of its own, or a callable.

    Raises UnknownBackend, with all that there are.
    """
    if not isinstance(backend, str):
        return backend
    if backend in SAME:
        return SAME[backend]
    if is_built_in(backend) or backend in known_backends():  # those installed are slow to list
        return backend
    theirs = loaded("dynamo")
    if theirs is None:
        raise UnknownBackend("backend", backend, known_backends())
    names = theirs.list_backends(())
    if backend not in names:
        raise UnknownBackend("backend", backend, {*known_backends(), *names})
    return theirs.lookup_backend(backend)


def _with_mode(backend: Any, mode: str | None) -> Any:
    """A program's backend, which torch gives the mode as an argument."""
    if mode in (None, "default"):
        return backend
    if isinstance(backend, str):
        backend = by_name(backend)

    def of_mode(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
        return backend(gm, example_inputs, mode=mode, **options)

    return update_wrapper(of_mode, backend)


# --- backends -------------------------------------------------------------------------------------


class _Default:
    """The backend of `torch.compile` where the program names none."""

    backend: Any = None


def set_default_backend(original: Original, backend: Any) -> None:
    """`torch.compiler.set_default_backend`."""
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise TypeError(f"backend must be a string or callable, got {type(backend)}")
    _Default.backend = backend
    if loaded("dynamo") is not None:
        original(backend)


def get_default_backend(original: Original) -> Any:
    """`torch.compiler.get_default_backend`."""
    return _default_backend()


def _default_backend() -> Any:
    theirs = getattr(torch.compiler, "get_default_backend", None)
    if _Default.backend is not None or theirs is None or loaded("dynamo") is None:
        return _Default.backend or "inductor"
    return theirs.__wrapped__()  # it was set before the installation


def list_backends(original: Original, exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """`torch.compiler.list_backends`: Flambeau's, and those that the program gave to torch."""
    theirs = original(exclude_tags) if loaded("dynamo") is not None else []
    return sorted({*map(str, known_backends()), *theirs})


# --- what is compiled, and when -------------------------------------------------------------------


def reset(original: Original) -> None:
    """`torch.compiler.reset`."""
    flambeau_capture.reset()
    if loaded("dynamo") is not None:
        original()


def run(original: Original, fn: Any = None) -> Any:
    """`torch._dynamo.run`: what is compiled runs, and nothing more is compiled."""
    return flambeau_capture.run(fn)


def explain(original: Original, f: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch._dynamo.explain`: what torch's compiler says, of what `torch.compile` was given."""
    return original(innermost(f), *args, **kwargs)


class set_stance:
    """`torch.compiler.set_stance`: at once, as a context manager, or as a decorator."""

    def __init__(self, original: Original, stance: str = "default", **given: Any) -> None:
        if given.get("force_backend") is not None:
            if stance != "default":
                raise RuntimeError("non-default stance cannot have force_backend set")
            say_once("set_stance(force_backend=...) has no counterpart in Flambeau")
        if given.get("skip_guard_eval_unsafe"):
            say_once("set_stance(skip_guard_eval_unsafe=True): Flambeau checks every guard")
        self._theirs = None
        self._stance = flambeau_capture.set_stance(stance)  # first: it knows every name, and raises
        if loaded("dynamo") is not None:
            try:
                self._theirs = original(stance, **given)
            except BaseException:
                self._stance.__exit__()
                raise

    def __enter__(self) -> None:
        if self._theirs is not None:
            self._theirs.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._stance.__exit__(*error)
        if self._theirs is not None:
            self._theirs.__exit__(*error)

    def __call__(self, fn: Any) -> Any:
        within = self._stance(fn)
        theirs = self._theirs
        if isinstance(within, torch.nn.Module) and theirs is not None:
            return twin_of(within, theirs)
        return within if theirs is None else theirs(within)


def adopt_stance(stance: str) -> None:
    """Let a stance hold that was set before the installation."""
    flambeau_capture.set_stance(stance)


# --- marks ----------------------------------------------------------------------------------------


def disable(
    original: Original, fn: Any = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """`torch.compiler.disable`. Of classes and modules torch makes something else, which capture
    takes for what it is."""
    if fn is None:
        return lambda target: disable(original, target, recursive, reason=reason)
    if isinstance(fn, type | torch.nn.Module):
        return original(fn, recursive, reason=reason)
    return flambeau_capture.disable(fn, recursive, reason=reason)


def allow_in_graph(original: Original, fn: Any) -> Any:
    """`torch.compiler.allow_in_graph`, of one function or several."""
    return _marked(flambeau_capture.allow_in_graph, original, fn)


def disallow_in_graph(original: Original, fn: Any) -> Any:
    """`torch._dynamo.disallow_in_graph`, of one function or several."""
    return _marked(flambeau_capture.disallow_in_graph, original, fn)


def assume_constant_result(original: Original, fn: Any) -> Any:
    """`torch.compiler.assume_constant_result`."""
    return _marked(flambeau_capture.assume_constant_result, original, fn)


def _marked(mark: Callable[[Any], Any], original: Original, fn: Any) -> Any:
    if isinstance(fn, list | tuple):
        return [_marked(mark, original, each) for each in fn]
    mark(fn)
    if loaded("dynamo") is not None:
        original(fn)
    return fn


def substitute_in_graph(original: Original, original_fn: Any, **given: Any) -> Any:
    """`torch.compiler.substitute_in_graph`."""
    signature = bool(given.get("skip_signature_check"))
    ours = flambeau_capture.substitute_in_graph(original_fn, skip_signature_check=signature)
    theirs = original(original_fn, **given) if loaded("dynamo") is not None else None

    def decorate(replacement: Any) -> Any:
        ours(replacement)
        return replacement if theirs is None else theirs(replacement)

    return decorate


# --- the rest of torch.compiler -------------------------------------------------------------------


def cudagraph_mark_step_begin(original: Original) -> None:
    """Flambeau's recordings look themselves whether a result is still in use."""
    if loaded("cuda graphs") is not None:
        original()


def set_enable_guard_collectives(original: Original, enabled: bool) -> bool:
    """Ranks that compile differently are warned of in any case."""
    if loaded("dynamo") is not None:
        return bool(original(enabled))
    before, _Collectives.enabled = _Collectives.enabled, bool(enabled)
    if enabled:
        say_once(
            "set_enable_guard_collectives has no counterpart in Flambeau: where ranks compile "
            "differently, a warning (RanksDisagree) says so"
        )
    return before


class _Collectives:
    enabled = False


def save_cache_artifacts(original: Original) -> Any:
    """The entries of Flambeau's disk cache as bytes; None where there are none."""
    with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:
        path = Path(folder) / "cache"
        if not cache.save(path):
            return None
        return path.read_bytes(), _artifacts(len(cache.keys()))


def load_cache_artifacts(original: Original, serialized_artifacts: bytes) -> Any:
    """Put what `save_cache_artifacts` gave into Flambeau's disk cache."""
    with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:
        path = Path(folder) / "cache"
        path.write_bytes(serialized_artifacts)
        return _artifacts(cache.load(path))


def _artifacts(count: int) -> Any:
    """Facts of a cache, as torch gives them: here, how many entries."""
    return compat.cache_info({"flambeau": [str(number) for number in range(count)]})
