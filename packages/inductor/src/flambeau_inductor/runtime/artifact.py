"""Artifact: a compiled graph as plain data and files, and the callable that is loaded of it.

In: the wrapper's text, what its kernels were built into, its constants. Out: a callable of the
boxed convention. Invariant: an artifact has no code objects and no callables: what loads a kernel's
files is a name in the table `LOADERS`, to which a caller may add. A library that is loaded stays
loaded; no autograd graph is built and no autocast happens inside a compiled graph.

Rows of `torch.profiler` for compiled graphs and their generated kernels. In: a wrapper's text, and
the kernels that it calls by name. Out: spans by `record_function`. Invariant: without a profiler a
call reads one flag; the text that is profiled is the one that runs.
"""

from __future__ import annotations

import ctypes
import linecache
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler

from flambeau_inductor._torch_compat import current_device, set_grad_mode
from flambeau_inductor.runtime.gpu.cuda_graphs import Call, Recorded, Rules, rules_from
from flambeau_inductor.runtime.kernel_part import CannotLoad, KernelPart, Loaded, Loader
from flambeau_inductor.runtime.report import Report


def labelled(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, as a row of that name."""

    def run(*args: Any) -> Any:
        with profiler.record_function(label):
            return function(*args)

    return run


class Unwatched:
    """Stands for `torch.autograd.profiler` in a wrapper that is being profiled."""

    _is_profiler_enabled = False


def with_rows(
    load: Callable[[Mapping[str, object]], Callable[..., Any]],
    known: Mapping[str, Any],
    rows: Mapping[str, str],
) -> Callable[..., Any]:
    """The call that a profiler sees: loaded when it is first looked at.

    load: makes the call of the names that are known to it. rows: labels of the call, by `call`, and
    of kernels by their names.
    """
    made: list[Callable[..., Any]] = []

    def profiled(args: list[Any]) -> Any:
        if not made:
            kernels = {
                name: labelled(rows[name], kernel) for name, kernel in known.items() if name in rows
            }
            call = load({**known, **kernels, "profiler": Unwatched})
            made.append(labelled(rows["call"], call))
        return made[0](args)

    return profiled


@dataclass(frozen=True, slots=True)
class Artifact:
    """Everything that `load_artifact` needs.

    devices: types of device whose autocast is off while it runs. gpu: the CUDA device that its
    kernels are for. recorded: replayed as a CUDA graph, by these rules.
    """

    name: str
    wrapper: str
    parts: tuple[KernelPart, ...] = ()
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    gpu: int | None = None
    recorded: Rules | None = None
    report: Mapping[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """All but the constants and the files, of JSON's kinds."""
        return {
            "name": self.name,
            "wrapper": self.wrapper,
            "parts": [
                {"loader": part.loader, "files": sorted(part.files), "data": dict(part.data)}
                for part in self.parts
            ],
            "devices": list(self.devices),
            "gpu": self.gpu,
            "recorded": None if self.recorded is None else self.recorded.data(),
            "report": dict(self.report),
        }

    def files(self) -> dict[str, Path]:
        """Files of all parts by a name each."""
        return {
            file_name(number, name): path
            for number, part in enumerate(self.parts)
            for name, path in part.files.items()
        }


def file_name(number: int, name: str) -> str:
    return f"{number}-{name}"


def from_data(
    data: Mapping[str, Any], constants: Mapping[str, torch.Tensor], folder: Path, prefix: str = ""
) -> Artifact:
    """The artifact of `Artifact.data`, its files in `folder` under `prefix` and their names."""
    parts = tuple(
        KernelPart(
            each["loader"],
            {name: folder / f"{prefix}{file_name(k, name)}" for name in each["files"]},
            each["data"],
        )
        for k, each in enumerate(data["parts"])
    )
    read = {
        "parts": parts,
        "devices": tuple(data["devices"]),
        "recorded": rules_from(data["recorded"]) if data["recorded"] else None,
    }
    return Artifact(**{**data, **read}, constants=constants)


def load_artifact(
    artifact: Artifact, loaders: Mapping[str, Loader] | None = None, keep: Sequence[object] = ()
) -> CompiledGraph:
    """The callable. `keep`: what must live as long as it, such as a temporary folder.

    Raises:
        CannotLoad: no loader is known for a part, or a library does not load.
    """
    known: dict[str, Any] = dict(artifact.constants)
    held: list[object] = [*keep]
    for part in artifact.parts:
        loader = (LOADERS if loaders is None else loaders).get(part.loader)
        if loader is None:
            raise CannotLoad(f"{artifact.name} has kernels that {part.loader} loads, unknown here")
        try:
            functions, kept = loader(part, artifact.gpu)
        except OSError as error:
            raise CannotLoad(f"the kernels of {artifact.name} do not load: {error}") from error
        known.update(functions)
        held.extend(kept)
    call = recorded(load_wrapper(artifact.wrapper, artifact.name, known), artifact)
    report = Report.from_dict({**artifact.report, "seconds": {}, "cache_hit": True})
    return CompiledGraph(
        call, report, artifact.devices, tuple(held), artifact.gpu, artifact=artifact
    )


def recorded(call: Call, artifact: Artifact) -> Call:
    """The call, replayed as a CUDA graph where the artifact says so."""
    if artifact.recorded is None or artifact.gpu is None:
        return call
    # only programs of a GPU need it
    from flambeau_inductor.runtime.gpu.stream_capture import CudaRecorder

    return Recorded(call, artifact.recorded, CudaRecorder(artifact.gpu))


def _shared_object(part: KernelPart, gpu: int | None) -> Loaded:
    functions = load_kernels(part.files["kernels.so"], part.data["count"])
    return {f"kernel{k}": function for k, function in enumerate(functions)}, ()


def _gpu_binaries(part: KernelPart, gpu: int | None) -> Loaded:
    # only programs of a GPU need it
    from flambeau_inductor.runtime.gpu.binaries import load_binaries

    return load_binaries(part, gpu)


LOADERS: Mapping[str, Loader] = {"cpp": _shared_object, "cubin": _gpu_binaries}


@dataclass(slots=True, weakref_slot=True, eq=False)
class CompiledGraph:
    """Call it with one list of inputs, which it empties; it returns the outputs as a tuple.

    `report` says what was compiled; `keep` is whatever the kernels need to stay alive. `gpu` is
    the index of the CUDA device that the kernels run on, which is made the current one.
    `artifact` is the same as data and files, None where it cannot be had in that form.
    """

    call: Call
    report: Any
    devices: tuple[str, ...] = ()
    keep: tuple[object, ...] = ()
    gpu: int | None = None
    artifact: Any = None

    @property
    def recorded(self) -> Any:
        """The `Recorded` that counts replays and plain calls; None where nothing is recorded."""
        return self.call if hasattr(self.call, "replays") else None

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        if self.gpu is not None and self.gpu != current_device():
            with torch.cuda.device(self.gpu):
                return self._without_autocast(args)
        return self._without_autocast(args)

    def _without_autocast(self, args: list[Any]) -> tuple[Any, ...]:
        for device in self.devices:
            if torch.is_autocast_enabled(device):
                with torch.autocast(device, enabled=False):
                    return self._without_grad(args)
        return self._without_grad(args)

    def _without_grad(self, args: list[Any]) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            set_grad_mode(False)  # `no_grad` takes as long as a small kernel
            try:
                return self.call(args)
            finally:
                set_grad_mode(True)
        return self.call(args)


def load_wrapper(text: str, name: str, known: Mapping[str, object]) -> Call:
    """Run the module's text with the names `known` to it; `name` is shown in tracebacks."""
    namespace: dict[str, Any] = {"profiler": profiler, **known}
    filename = f"<flambeau wrapper {name} {id(namespace):x}>"
    namespace["__name__"] = filename
    exec(compile(text, filename, "exec"), namespace)
    call: Call = namespace["call"]
    namespace["profiled"] = with_rows(partial(load_wrapper, text, name), known, namespace["ROWS"])
    lines = text.splitlines(keepends=True)
    linecache.cache[filename] = (len(text), None, lines, filename)
    weakref.finalize(call, linecache.cache.pop, filename, None)
    return call


def load_kernels(path: Path, count: int) -> tuple[Callable[..., Any], ...]:
    """The first `count` kernels of the library at `path`."""
    library = ctypes.PyDLL(str(path))
    make = library.flambeau_kernel
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_int,)
    return tuple(make(number) for number in range(count))
