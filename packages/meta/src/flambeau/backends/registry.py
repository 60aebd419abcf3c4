"""The registry of backends, and the layers around each.

In: names. Out: backends. Invariant: a built-in name always means the built-in backend; a name that
nobody knows is an error that lists the known ones; to see whether a package is here does not import
it. Whatever wraps a backend is in `LAYERS`, from the inside out; the outermost answers capture.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, TypeVar

import flambeau_inductor
import torch
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.backends import composed, engines
from flambeau.backends.autotune import Autotune, never_slower
from flambeau.backends.fallback import marking, with_fallback
from flambeau.backends.request import Backend, Factory, Request, Traits, named
from flambeau.distributed import by_buckets, in_agreement
from flambeau.errors import BackendMissing, UnknownBackend
from flambeau.events.bus import publish_runs
from flambeau.testing.comparison import copied_graph


@dataclass(frozen=True)
class BuiltinBackend:
    """A built-in backend. needs: what it needs besides torch, in words; is_here: tests that."""

    about: str
    make: Factory
    traits: Traits
    needs: str = ""
    is_here: Callable[[], bool] = lambda: True


def _engine(about: str, make: Factory, *modules: str, pip: str = "") -> BuiltinBackend:
    """A backend by another engine, of modules that must be importable; `pip`: how they are had."""
    text = f"the package {' and '.join(modules)} (`pip install {pip}`)" if modules else ""
    traits = Traits(stage=make.__name__)
    return BuiltinBackend(about, make, traits, text, lambda: all(map(find_spec, modules)))


#: numbers that are not integers are constants to ahead-of-time autograd and what comes after it
AOT = Traits(frozenset({"sizes", "integers", "floats", "data"}), "aot")

TABLE: dict[str, BuiltinBackend] = {
    "eager": BuiltinBackend(
        "the captured graph as it is", composed.eager, Traits(True, divided=False)
    ),
    "aot_eager": BuiltinBackend(
        "forward and backward ahead of time, operator by operator", composed.aot_eager, AOT
    ),
    "aot_nop": BuiltinBackend("another name of aot_eager", composed.aot_eager, AOT),
    "aot_eager_prims": BuiltinBackend("the same in primitives", composed.aot_eager_prims, AOT),
    "inductor": BuiltinBackend(
        "fused C++ and Triton kernels", composed.inductor, replace(AOT, kernels=True)
    ),
    "flambeau": BuiltinBackend(
        "another name of inductor, by which torch finds it",
        composed.inductor,
        replace(AOT, kernels=True),
    ),
    "autotune": BuiltinBackend(
        "each graph as whichever of eager, aot_eager and inductor runs it fastest",
        Autotune().for_request,
        Traits(),
    ),
    "cudagraphs": BuiltinBackend(
        "aot_eager, recorded and replayed as CUDA graphs",
        composed.cudagraphs,
        Traits(stage="aot"),
        "a CUDA device",
        torch.cuda.is_available,
    ),
    "ts": _engine("TorchScript", engines.ts),
    "ofi": _engine("TorchScript, frozen and folded for inference", engines.ofi),
    "nvfuser": _engine(
        "TorchScript with nvFuser", engines.nvfuser, "nvfuser", pip="nvfuser-cu12-torch28"
    ),
    "onnxrt": _engine(
        "ONNX Runtime, inference", engines.onnxrt, *("onnxruntime", "onnx"), pip="onnxruntime onnx"
    ),
    "tensorrt": _engine("Torch-TensorRT", engines.tensorrt, "torch_tensorrt", pip="torch-tensorrt"),
    "openxla": _engine("PyTorch/XLA", engines.openxla, "torch_xla", pip="torch_xla"),
    "ipex": _engine(
        "Intel Extension for PyTorch, inference",
        engines.ipex,
        "intel_extension_for_pytorch",
        pip="intel-extension-for-pytorch",
    ),
}


@dataclass(frozen=True)
class Layer:
    """A wrapper of a backend, for requests of which `wanted` is true."""

    name: str
    around: Callable[[Any, Request], Backend]
    wanted: Callable[[Request], object]


def _graph_cache(engine: Any, request: Request) -> Backend:
    cached: Backend = replace(engine, cached=True)
    return cached


def _prepare(backend: Backend, request: Request) -> Backend:
    """The inductor's passes before autograd, on a copy: whoever falls back has the graph as it was
    captured."""

    @marking("prepare")
    def prepared(gm: fx.GraphModule) -> fx.GraphModule:
        copy = copied_graph(gm)
        flambeau_inductor.prepare(copy, request.choices.inductor)
        return copy

    def from_prepared(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        copy = prepared(gm)
        try:
            return backend(copy, example_inputs)
        finally:
            copy.graph.owning_module = None  # it would keep its parameters until a collection

    return from_prepared


def _repro(backend: Backend, request: Request) -> Backend:
    from flambeau.repro.hook import with_repro  # a tool, which a first call need not import

    return with_repro(backend, request)


def _verify(backend: Backend, request: Request) -> Backend:
    from flambeau.testing.verification import verified  # as above

    return verified(backend, request)


def _merges(request: Request) -> bool:
    return request.traits.kernels and request.choices.inductor.merge_collectives


LAYERS: tuple[Layer, ...] = (
    Layer("graph_cache", _graph_cache, lambda request: request.traits.kernels),
    Layer("prepare", _prepare, lambda request: request.traits.kernels),
    Layer(
        "fallback",
        lambda backend, request: with_fallback(backend, request, request.traits.stage),
        lambda request: request.traits.stage,
    ),
    Layer(
        "buckets",
        lambda backend, request: by_buckets(backend),
        lambda request: request.traits.divided,
    ),
    Layer("never_slower", never_slower, lambda request: request.never_slower),
    Layer("repro", _repro, lambda request: request.repro),
    Layer("verify", _verify, lambda request: request.verify),
    Layer(
        "agreement",
        lambda backend, request: in_agreement(backend, _merges(request)),
        lambda request: True,
    ),
    Layer("run_events", publish_runs, lambda request: True),
)


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
    return backend in TABLE if isinstance(backend, str) else isinstance(backend, Autotune)


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
