"""Compilation of Triton kernels: just in time, or offline.

In: the file of a generated module and the kernels it holds. Out: launchers for the current
device, or binaries for a named architecture with no device present.
Invariant: this is the only file that touches Triton's compiler interfaces (tried on Triton 3.6
and 3.9), and it imports triton on first use, for most programs never need it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from flambeau_inductor.codegen.triton.kernel import (
    ALIGNMENT,
    DEPENDENT,
    STAGES,
    WITH_DESCRIPTORS,
    TritonKernel,
)
from flambeau_inductor.runtime.gpu.binaries import cuda_driver
from flambeau_inductor.runtime.gpu.launch import Launcher, Library, waits
from flambeau_inductor.runtime.gpu.tensor_descriptors import Descriptor
from flambeau_inductor.tuning import shared_bytes_of
from flambeau_inductor.tuning.machine import launches_dependents

MINIMUM_CAPABILITY = (7, 0)
#: warps beyond which a kernel that a pass of Triton's fails on is not tried again
MOST_WARPS = 8


class TritonMissing(Exception):
    """Triton is not installed, or the device is too old for it."""


def require_triton() -> None:
    """Raise, in one sentence that names what to do, when Triton kernels cannot be built here.

    Raises:
        TritonMissing: triton is absent, or the current GPU is older than it supports.
    """
    if importlib.util.find_spec("triton") is None:
        raise TritonMissing("GPU kernels need triton: install it with `pip install triton`")
    import torch  # Deferred with the device query, which starts the CUDA driver.

    if torch.cuda.is_available():
        capability = torch.cuda.get_device_capability()
        if capability < MINIMUM_CAPABILITY:
            name = torch.cuda.get_device_name()
            found = ".".join(map(str, capability))
            raise TritonMissing(f"{name} has compute capability {found}; Triton needs 7.0 or newer")


@lru_cache(maxsize=1)
def start() -> Future[None]:
    """Do in a thread what Triton does once a process, before it compiles the first kernel: it
    is imported, hashes its own files, and compiles what it calls the driver with."""
    pool = ThreadPoolExecutor(1, "flambeau_triton")
    started = pool.submit(_started)
    pool.shutdown(wait=False)
    return started


def _started() -> None:
    from triton.runtime import cache, driver  # triton is optional

    _ = driver.active.utils
    cache.triton_key()


def import_kernels(path: Path) -> ModuleType:
    """Import the generated module at `path` (Triton reads a kernel's source from its file)."""
    spec = importlib.util.spec_from_file_location(f"flambeau_kernels_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(
    path: Path,
    kernels: Sequence[TritonKernel],
    library: Library | None = None,
    parallel: int = 8,
    *,
    lenient: bool = False,
) -> dict[str, Launcher]:
    """Launchers, by kernel name, of the module at `path` for the current device.

    With `library` (see `runtime/include/flambeau/launch.h`) they need no Python for a launch.
    The variants for 16-byte aligned buffers are compiled at once, `parallel` at a time in
    threads; those for other buffers at their first launch. With `lenient`, a kernel that does not
    compile (for want of shared memory) raises when it is launched, and not before.
    """
    module = import_kernels(path)
    launchers = {}
    for kernel in kernels:
        function = getattr(module, kernel.name)
        launchers[kernel.name] = Launcher(
            kernel.name,
            kernel.programs,
            len(kernel.pointers),
            tuple(value for _, value in kernel.constants),
            _variant(function, kernel),
            library,
            descriptors=tuple(Descriptor(*each) for each in kernel.descriptors),
            sizes=len(kernel.sizes),
        )

    def tried(launcher: Launcher) -> Exception | None:
        """What compiling a kernel raised."""
        try:
            launcher.prepare(aligned=True)
        except Exception as error:  # whatever Triton raises: it is raised again below
            return error
        return None

    if not interpreting() and kernels:
        start().result()
        workers = max(1, min(parallel, len(kernels), os.cpu_count() or 1))
        with ThreadPoolExecutor(workers) as pool:
            errors = list(pool.map(tried, launchers.values()))
        for launcher, error in zip(launchers.values(), errors, strict=True):
            if error is None:
                continue
            if not lenient:
                raise error
            launcher.refuse(error)
    return launchers


def compile_offline(
    path: Path, kernel: TritonKernel, capability: int, *, aligned: bool = True
) -> Any:
    """Triton's compiled kernel (binary, registers, shared memory) for sm_`capability`."""
    from triton.backends.compiler import GPUTarget  # triton is optional

    function = getattr(import_kernels(path), kernel.name)
    return _compile(function, kernel, aligned=aligned, target=GPUTarget("cuda", capability, 32))


def compile_unaligned(path: Path, kernel: TritonKernel) -> Any:
    """Triton's compiled kernel for the current device and any buffers."""
    function = getattr(import_kernels(path), kernel.name)
    return _compile(function, kernel, aligned=False, target=None)


def interpreting() -> bool:
    """Whether Triton's interpreter is on (`TRITON_INTERPRET=1`)."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _variant(function: Any, kernel: TritonKernel) -> Any:
    def prepare(aligned: bool) -> Any:
        if interpreting():
            return lambda *given: _interpreted(function, kernel, given)
        return Loadable(_compile(function, kernel, aligned=aligned, target=None))

    return prepare


class Loadable:
    """A kernel that Triton has compiled, loaded by the driver on the current device: Triton would
    compile a launcher for its signature first, which only `run` needs."""

    def __init__(self, compiled: Any) -> None:
        self.compiled, self.metadata, self.asm = compiled, compiled.metadata, compiled.asm
        self.packed_metadata = compiled.packed_metadata
        self.waits = waits(self.asm.get("ptx", ""))

    @cached_property
    def function(self) -> int:
        """The driver's handle of the kernel."""
        import torch  # deferred, as above

        if "cubin" not in self.asm:  # another maker's device
            _ = self.run
            return int(self.compiled.function)
        driver = cuda_driver(torch.cuda.current_device())
        return driver.load(self.asm["cubin"], self.metadata.name, self.metadata.shared)

    @property
    def run(self) -> Any:
        """Triton's own launcher."""
        return self.compiled.run


def _interpreted(function: Any, kernel: TritonKernel, given: Sequence[Any]) -> None:
    """Run a kernel on tensors, and what follows them where sizes are open, by the interpreter."""
    *given, programs = given if kernel.programs is None else (*given, kernel.programs)
    count = len(kernel.pointers)
    tensors, sizes = given[:count], given[count:]
    described = [seen_by_triton(tensors, Descriptor(*each)) for each in kernel.descriptors]
    if programs:
        constants = dict(kernel.constants) | {DEPENDENT: 0}
        function[(programs,)](*tensors, *described, *sizes, **constants)


def seen_by_triton(tensors: Sequence[Any], descriptor: Descriptor) -> Any:
    """The descriptor of an operand as Triton's own launcher and its interpreter take it."""
    from triton.tools.tensor_descriptor import TensorDescriptor  # triton is optional

    tensor, sizes, strides = tensors[descriptor.argument], descriptor.sizes, descriptor.strides
    start = tensor.storage_offset() + descriptor.offset
    view = tensor.as_strided(sizes, strides, start)
    return TensorDescriptor(view, list(sizes), list(strides), list(descriptor.block))


def _compile(function: Any, kernel: TritonKernel, *, aligned: bool, target: Any) -> Any:
    from triton.compiler import ASTSource  # triton is optional, and importing it costs 0.3 s

    signature = dict(zip(function.arg_names, kernel.pointers, strict=False))
    constants: dict[str, int | None] = dict(kernel.constants)
    if DEPENDENT in constants and not _launches_dependents(target):
        constants[DEPENDENT] = 0
    names = function.arg_names[len(kernel.pointers) :]
    for name, descriptor in zip(names, kernel.descriptors, strict=False):
        if aligned:
            signature[name] = Descriptor(*descriptor).signature
        else:  # the accelerator reads from multiples of 16 bytes only
            signature[name], constants[name], constants[WITH_DESCRIPTORS] = "constexpr", None, 0
    first = len(kernel.pointers) + len(kernel.descriptors)
    known = {first + place: kind.partition(":") for place, kind in enumerate(kernel.sizes)}
    signature |= {function.arg_names[place]: kind for place, (kind, *_) in known.items()}
    signature |= {name: "constexpr" for name, _ in kernel.constants}
    multiples = [*range(len(kernel.pointers))] if aligned else []
    multiples += [place for place, (_, _, multiple) in known.items() if multiple]
    attributes = {(place,): [["tt.divisibility", ALIGNMENT]] for place in multiples}
    while True:
        source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes)
        made = _passed(source, target, options_of(kernel))
        stages = constants.get(STAGES) or 1
        if stages == 1 or made.metadata.shared <= _shared_memory(target):
            return made
        constants[STAGES] = stages - 1


def _passed(source: Any, target: Any, options: dict[str, int | bool]) -> Any:
    """The compiled kernel, with twice the warps where a pass of Triton's own fails.

    Triton 3.6 puts a value after its use where it removes layout conversions around a row's sum,
    in kernels of one warp; two warps have other layouts.
    """
    import triton  # as above

    try:
        return triton.compile(source, target=target, options=options)
    except RuntimeError as error:
        if "PassManager" not in str(error) or options["num_warps"] >= MOST_WARPS:
            raise
        return _passed(source, target, options | {"num_warps": 2 * options["num_warps"]})


def _launches_dependents(target: Any) -> bool:
    """Whether kernels of a target, or of the current device, can wait for earlier ones."""
    from triton.runtime import driver  # triton is optional

    found = driver.active.get_current_target() if target is None else target
    return found.backend == "cuda" and launches_dependents(divmod(found.arch, 10))


def _shared_memory(target: Any) -> int:
    """Bytes of shared memory that a program may have; of the current device without a target."""
    if target is not None:
        return shared_bytes_of(divmod(target.arch, 10))
    from triton.runtime import driver  # triton is optional

    device = driver.active.get_current_device()
    found: int = driver.active.utils.get_device_properties(device)["max_shared_mem"]
    return found


def options_of(kernel: TritonKernel) -> dict[str, int | bool]:
    """Options of Triton's compiler for a kernel."""
    options: dict[str, int | bool] = {"num_warps": kernel.warps}
    options["enable_fp_fusion"] = kernel.contracts
    if "tl.device_assert(" in kernel.source:
        options |= {"debug": True, "sanitize_overflow": False}  # keeps assertions, adds none
    if kernel.stages is not None:
        options["num_stages"] = kernel.stages
    if kernel.registers is not None:
        options["maxnreg"] = kernel.registers
    return options
