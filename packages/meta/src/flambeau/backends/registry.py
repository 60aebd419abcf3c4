"""The registry of backends, and how one is put together with the layers around it.

In: names. Out: backends. Invariant: a built-in name always means the built-in backend; a name that
nobody knows is an error that lists the known ones; to see whether a package is here does not import
it. A backend or a layer may itself resolve others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from torch import fx

from flambeau import _torch_compat as compat
from flambeau.backends.request import Backend, ByRequest, Factory, Request, Traits, named
from flambeau.errors import BackendMissing, UnknownBackend


@dataclass(frozen=True)
class BuiltinBackend:
    """A built-in backend. needs: what it needs besides torch, in words; is_here: tests that."""

    about: str
    make: Factory
    traits: Traits
    needs: str = ""
    is_here: Callable[[], bool] = lambda: True


TABLE: dict[str, BuiltinBackend] = {}
"""The built-in backends by name: `builtin` has them."""


@dataclass(frozen=True)
class Layer:
    """A wrapper of a backend, for requests of which `wanted` is true."""

    name: str
    around: Callable[[Any, Request], Backend]
    wanted: Callable[[Request], object]


LAYERS: list[Layer] = []
"""What wraps a backend, from the inside out: `builtin` has it. The outermost answers capture."""


class LayeredBackend:
    """A backend with its layers, under the name that users know.

    supports_symbols: what may be open in graphs. own_numbers: whether the random numbers of its
    graphs are not eager's, so that they are never compared with it call by call. made_for_speed: a
    frame that eager runs faster may run so: it is not to take less memory instead. writes_last: a
    call of a graph that raises has written to none of its inputs. observe: what a profiler wants to
    do with whatever compiles frames.
    """

    def __init__(self, engine: Any, request: Request) -> None:
        self.__name__ = named(request.by)
        if request.traits.symbols is None:
            self.supports_symbols = getattr(engine, "supports_symbols", True)
            self.own_numbers = getattr(engine, "own_numbers", False)
        else:
            self.supports_symbols = request.traits.symbols
            self.own_numbers = request.choices.inductor.random != "eager"
        for_memory = request.choices.aot.memory_budget not in (None, 1.0)
        self.made_for_speed = request.traits.kernels and not request.verify and not for_memory
        self._in_one = request.traits.stage == "aot" and not request.never_slower
        self._writes_last = getattr(engine, "writes_last", False)
        self.observe = getattr(engine, "observe", None)
        for layer in LAYERS:
            if layer.wanted(request):
                engine = layer.around(engine, request)
        self._compile: Backend = engine

    @property
    def writes_last(self) -> bool:
        return self._writes_last or (self._in_one and compat.active_ddp() is None)

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return self._compile(gm, example_inputs)


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
    """A name that `backend=` takes. about: what it is. needs: besides torch, in words. available:
    whether that is here."""

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
        found[name] = BackendName(name, known.about, known.needs, known.is_here())
    return sorted(found.values())


def is_built_in(backend: str | Callable[..., Any]) -> bool:
    """Whether a backend is one of ours, whose options are those of the stages."""
    return backend in TABLE if isinstance(backend, str) else isinstance(backend, ByRequest)


def resolve(backend: str | Callable[..., Any], request: Request) -> Backend:
    """The backend for one compiled callable.

    Raises UnknownBackend for a name nobody knows, BackendMissing for one whose package or device is
    not here, TypeError for what cannot be called and for
    options given to a backend that takes none.
    """
    return LayeredBackend(*_compiling(backend, replace(request, by=backend)))


def _compiling(backend: str | Callable[..., Any], request: Request) -> tuple[Backend, Request]:
    """What compiles graphs, without layers, and the request with what they need to know of it."""
    if isinstance(backend, str):
        known = TABLE.get(backend)
        if known is not None:
            if not known.is_here():
                raise BackendMissing(backend, known.needs)
            return known.make(request), replace(request, traits=known.traits)
        backend = by_name(backend)
    if isinstance(backend, ByRequest):
        return backend.for_request(request), request
    if not callable(backend):
        raise TypeError(f"a backend is a name or a callable, not {type(backend).__name__}")
    if request.options:
        if not _takes_options(backend):
            given = ", ".join(request.options)
            raise TypeError(f"backend {named(backend)} takes no options, but was given {given}")
        return partial(backend, options=dict(request.options)), request
    return backend, request


def by_name(name: str) -> Callable[..., Any]:
    """A backend that is not built in. Raises UnknownBackend."""
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
