"""The table of backends: built in, registered by the program, offered by installed packages.

In: names. Out: backends. Invariant: a built-in name always means the built-in backend; a name that
nobody knows is an error that lists the known ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from torch import fx

from flambeau.backends import composed
from flambeau.backends.request import Backend, Factory, Request
from flambeau.distributed import by_buckets
from flambeau.errors import UnknownBackend

#: entry-point groups of other packages: ours, and the one that existing backends already use
GROUPS = ("flambeau.backends", "torch_dynamo_backends")

BUILT_IN: dict[str, Factory] = {
    "eager": composed.eager,
    "aot_eager": composed.aot_eager,
    "aot_nop": composed.aot_eager,
    "aot_eager_prims": composed.aot_eager_prims,
    "inductor": composed.inductor,
}

_registered: dict[str, Backend] = {}

Given = TypeVar("Given", bound=Callable[..., Any])


def register_backend(backend: Given | None = None, *, name: str | None = None) -> Any:
    """Give a backend a name. Also a decorator, with or without arguments.

    Raises ValueError when the name is that of a built-in backend.
    """
    if backend is None:
        return partial(register_backend, name=name)
    chosen = name or str(getattr(backend, "__name__", ""))
    if not chosen or chosen == "<lambda>":
        raise ValueError("a backend without a name of its own is registered with name=...")
    if chosen in BUILT_IN:
        raise ValueError(f"{chosen!r} is a built-in backend; register yours under another name")
    _registered[chosen] = backend
    return backend


def _offered() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for group in reversed(GROUPS):
        found.update({entry.name: entry for entry in entry_points(group=group)})
    return found


def list_backends() -> list[str]:
    """Every name that `backend=` takes now, sorted."""
    return sorted({*BUILT_IN, *_registered, *_offered()})


def is_built_in(backend: str | Callable[..., Any]) -> bool:
    """Whether a backend is one of ours, whose options are those of the stages."""
    return isinstance(backend, str) and backend in BUILT_IN


def resolve(backend: str | Callable[..., Any], request: Request) -> Backend:
    """The backend for one compiled callable.

    Raises UnknownBackend for a name nobody knows, TypeError for what cannot be called and for
    options given to a backend that takes none.
    """
    if isinstance(backend, str):
        factory = BUILT_IN.get(backend)
        if factory is not None:
            made = factory(request)
            return _with_name(made if backend == "eager" else by_buckets(made), backend)
        backend = _by_name(backend)
    if not callable(backend):
        raise TypeError(f"a backend is a name or a callable, not {type(backend).__name__}")
    if request.options:
        if not _takes_options(backend):
            given = ", ".join(request.options)
            raise TypeError(f"{_named(backend)} takes no options, but was given {given}")
        return partial(backend, options=dict(request.options))
    own: Backend = backend
    return own


def _with_name(backend: Backend, name: str) -> Backend:
    """The backend under the name that users know, for what capture says of it."""

    def named(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return backend(gm, example_inputs)

    named.__name__ = name
    # numbers that are not integers are constants to the stages behind the others
    named.__dict__["supports_symbols"] = True if name == "eager" else {"sizes", "integers"}
    return named


def _by_name(name: str) -> Callable[..., Any]:
    if name in _registered:
        return _registered[name]
    entry = _offered().get(name)
    if entry is None:
        raise UnknownBackend("backend", name, list_backends())
    loaded: Callable[..., Any] = entry.load()
    return loaded


def _takes_options(backend: Callable[..., Any]) -> bool:
    try:
        parameters: Sequence[inspect.Parameter] = [*inspect.signature(backend).parameters.values()]
    except (TypeError, ValueError):  # a callable of C code that does not say
        return False
    return any(p.name == "options" or p.kind is p.VAR_KEYWORD for p in parameters)


def _named(backend: Callable[..., Any]) -> str:
    return f"backend {getattr(backend, '__name__', type(backend).__name__)}"
