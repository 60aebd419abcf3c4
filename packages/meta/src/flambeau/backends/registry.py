"""The registry of backends: built in, registered by the program, offered by packages.

In: names. Out: backends. Invariant: a built-in name always means the built-in backend; a name that
nobody knows is an error that lists the known ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from flambeau.backends.autotune import Autotune
from flambeau.backends.builtin import TABLE
from flambeau.backends.layers import LayeredBackend
from flambeau.backends.request import Backend, Request, named
from flambeau.errors import UnknownBackend

#: entry-point groups of other packages: ours, and the one that existing backends already use
GROUPS = ("flambeau.backends", "torch_dynamo_backends")

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
    if chosen in TABLE:
        raise ValueError(f"{chosen!r} is a built-in backend; register yours under another name")
    _registered[chosen] = backend
    return backend


def _offered() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for group in reversed(GROUPS):
        found.update({entry.name: entry for entry in entry_points(group=group)})
    return found


class BackendName(str):
    """A name that `backend=` takes. about: what it is. needs: what it wants beside torch, in words.
    available: whether that is here."""

    about: str
    needs: str
    available: bool

    def __new__(cls, name: str, about: str, needs: str = "", available: bool = True) -> BackendName:
        made = super().__new__(cls, name)
        made.about, made.needs, made.available = about, needs, available
        return made


def list_backends() -> list[BackendName]:
    """Every name that `backend=` knows now, sorted, with what it needs and whether that is here."""
    found = {name: BackendName(name, "of an installed package") for name in _offered()}
    found |= {name: BackendName(name, "registered by the program") for name in _registered}
    for name, known in TABLE.items():
        found[name] = BackendName(name, known.about, known.need.text, known.need.met())
    return sorted(found.values())


def is_built_in(backend: str | Callable[..., Any]) -> bool:
    """Whether a backend is one of ours, whose options are those of the stages."""
    return backend in TABLE if isinstance(backend, str) else isinstance(backend, Autotune)


def resolve(backend: str | Callable[..., Any], request: Request) -> Backend:
    """The backend for one compiled callable.

    Raises UnknownBackend for a name nobody knows, BackendMissing for one whose package or device is
    not here, TypeError for what cannot be called and for
    options given to a backend that takes none.
    """
    return LayeredBackend(*_engine(backend, replace(request, by=backend)))


def _engine(backend: str | Callable[..., Any], request: Request) -> tuple[Backend, Request]:
    """What compiles graphs, without layers, and the request with what they need to know of it."""
    if isinstance(backend, str):
        known = TABLE.get(backend)
        if known is not None:
            return known.backend(backend, request), replace(request, traits=known.traits)
        backend = _by_name(backend)
    if isinstance(backend, Autotune):
        return backend.for_request(request), request
    if not callable(backend):
        raise TypeError(f"a backend is a name or a callable, not {type(backend).__name__}")
    if request.options:
        if not _takes_options(backend):
            given = ", ".join(request.options)
            raise TypeError(f"backend {named(backend)} takes no options, but was given {given}")
        return partial(backend, options=dict(request.options)), request
    return backend, request


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
