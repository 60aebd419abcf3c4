"""Kernel launches with minimal Python overhead.

In: the handle of torch's current stream and the addresses of a kernel's buffers. Out: nothing; the
kernel is queued on that stream. Invariant: a kernel compiled for 16-byte aligned buffers is never
given others; the current device is the one that the kernels were loaded on, and a context that is
current stays so.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from flambeau_inductor._torch_compat import current_raw_stream
from flambeau_inductor.runtime.gpu.tensor_descriptors import (
    Descriptor,
    Tiled,
    as_passed,
    cuda_encode,
    tiled,
)

Queue = Callable[..., object]
Library = Callable[["Site"], Queue]


class Site(ctypes.Structure):
    """The fields of `fl::Site` in `flambeau/launch.h`."""

    _fields_ = (
        ("driver", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("unaligned", ctypes.py_object),
        ("attach", ctypes.py_object),
        ("programs", ctypes.c_uint),
        ("threads", ctypes.c_uint),
        ("shared", ctypes.c_uint),
        ("addresses", ctypes.c_uint),
        ("nulls", ctypes.c_uint),
        ("descriptors", ctypes.c_uint),
        ("tiled", ctypes.POINTER(Tiled)),
        ("encode", ctypes.c_void_p),
        ("sizes", ctypes.c_uint),
        ("dependent", ctypes.c_void_p),
    )


def load_library(path: Path) -> Library:
    """`flambeau_launcher` of the library at `path`, which stays loaded."""
    make = ctypes.PyDLL(str(path)).flambeau_launcher
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.POINTER(Site),)
    return lambda site: make(ctypes.byref(site))


@lru_cache(maxsize=1)
def cuda_launch() -> int:
    """The address of cuLaunchKernel. Raises OSError where there is no CUDA driver."""
    return ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p).value or 0


DEPENDENT_LAUNCHES = 12030
"""The CUDA driver's version from which recorded graphs hold dependent launches."""


@lru_cache(maxsize=1)
def cuda_launch_dependent() -> int | None:
    """The address of cuLaunchKernelEx; None where the driver is too old to record its launches."""
    driver, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) or version.value < DEPENDENT_LAUNCHES:
        return None
    return ctypes.cast(driver.cuLaunchKernelEx, ctypes.c_void_p).value


def attach(gpu: int | None = None, library: Any = None) -> None:
    """Give this thread the context that torch uses on a GPU (its current one), if it has none.

    torch makes it current with a thread's first call of the CUDA runtime, which launches bypass: in
    a thread of autograd whose first work is one of our kernels there would be none.

    Raises:
        OSError: there is no CUDA driver, or it refuses.
    """
    driver = ctypes.CDLL("libcuda.so.1") if library is None else library

    def call(name: str, *given: Any) -> None:
        if status := getattr(driver, name)(*given):
            raise OSError(f"{name} failed (error {status} of the CUDA driver)")

    context, device = ctypes.c_void_p(), ctypes.c_int()
    call("cuCtxGetCurrent", ctypes.byref(context))
    if not context.value:
        number = torch.cuda.current_device() if gpu is None else gpu
        call("cuDeviceGet", ctypes.byref(device), number)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuCtxSetCurrent", context)


@dataclass(eq=False)
class Launcher:
    """One kernel on one grid. `queue(stream, *addresses)` is what a wrapper calls; the launcher
    must outlive it. Called itself, it takes the buffers as tensors. A kernel of open `sizes` takes
    them after the buffers, and then the grid's length; its `programs` are None.

    Descriptors are encoded by the native part at each launch; without it, and for unaligned
    buffers, the variant runs that does not take them. `compiled` gives the kernel for aligned or
    for any buffers; one that waits for those before it by itself is launched before they end.
    """

    name: str
    programs: int | None
    addresses: int
    constants: tuple[int, ...]
    compiled: Callable[[bool], Any]
    library: Library | None
    driver: Callable[[], int] = cuda_launch
    descriptors: tuple[Descriptor, ...] = ()
    encoder: Callable[[], int] = cuda_encode
    context: Callable[[], None] = attach
    dependent: Callable[[], int | None] = cuda_launch_dependent
    sizes: int = 0
    _variants: dict[bool, Any] = field(default_factory=dict)
    _sites: list[Site] = field(default_factory=list)
    _queues: dict[bool, Queue] = field(default_factory=dict)

    def prepare(self, *, aligned: bool) -> Any:
        """The kernel compiled for aligned or for any buffers."""
        variant = self._variants.get(aligned)
        if variant is None:
            variant = self._variants[aligned] = self.compiled(aligned)
        return variant

    def refuse(self, error: Exception) -> None:
        """Raise `error` whenever the kernel is wanted."""

        def refused(aligned: bool) -> Any:
            raise error

        self.compiled = refused

    @property
    def queue(self) -> Queue:
        """Queues the kernel on the stream and the buffers whose addresses it is given."""
        return self._queue(aligned=True)

    def _queue(self, *, aligned: bool) -> Queue:
        found = self._queues.get(aligned)
        if found is None:
            found = self._queues[aligned] = self._made(aligned)
        return found

    def _made(self, aligned: bool) -> Queue:
        if self.programs == 0:
            return _nothing
        if self.descriptors and aligned and not self._described():
            aligned = False
        kernel = self.prepare(aligned=aligned)
        if self.library is None or not aligned:  # the native part turns unaligned buffers down
            return self._through(kernel.run, kernel)
        metas = kernel.metadata.tensordesc_meta if self.descriptors else ()
        tiles = [tiled(d, meta) for d, meta in zip(self.descriptors, metas, strict=True)]
        passed = self.addresses + self.sizes + sum(1 + 2 * each.rank for each in tiles)
        site = Site(
            driver=self.driver(),
            function=kernel.function,
            unaligned=self._unaligned,
            attach=self.context,
            programs=self.programs or 0,
            threads=32 * kernel.metadata.num_warps,
            shared=kernel.metadata.shared,
            addresses=self.addresses,
            nulls=parameters_of(kernel.asm["ptx"]) - passed,
            descriptors=len(tiles),
            tiled=(Tiled * len(tiles))(*tiles),
            encode=self.encoder() if tiles else None,
            sizes=self.sizes,
            dependent=self.dependent() if kernel.waits else None,
        )
        self._sites.append(site)
        return self.library(site)

    def _described(self) -> bool:
        """Whether the native part can give the kernel its descriptors."""
        if self.library is None:
            return False
        kernel = self.prepare(aligned=True)
        metas = getattr(kernel.metadata, "tensordesc_meta", None)
        return as_passed(kernel.asm["ptx"], self.addresses, self.descriptors, metas)

    def _through(self, run: Any, kernel: Any) -> Queue:
        """A queue that goes through Triton's own launcher."""
        rest = (kernel.function, kernel.packed_metadata, None, None, None)
        constants = (*(None for _ in self.descriptors), *self.constants)

        def queue(stream: int, *addresses: int) -> None:
            run(self.programs, 1, 1, stream, *rest, *addresses, *constants)

        def on_a_grid(stream: int, *given: int) -> None:
            *passed, programs = given
            if programs:
                run(programs, 1, 1, stream, *rest, *passed, *constants)

        return queue if self.programs is not None else on_a_grid

    def _unaligned(self, stream: int, *given: int) -> None:
        self._queue(aligned=False)(stream, *given)

    def __call__(self, *given: Any) -> None:
        first: torch.Tensor = given[0]
        if not first.is_cuda:
            self.prepare(aligned=True)(*given)  # Triton's interpreter
            return
        tensors, sizes = given[: self.addresses], given[self.addresses :]
        with torch.cuda.device(first.device):
            stream = current_raw_stream(first.get_device())
            self.queue(stream, *(tensor.data_ptr() for tensor in tensors), *sizes)


def _nothing(stream: int, *addresses: int) -> None:
    """A kernel on an empty grid."""


def entry_of(ptx: str) -> str:
    """The line of a kernel's PTX that says what it takes."""
    found = re.search(r"\.entry\s+[\w$]+\s*\((.*?)\)", ptx, re.DOTALL)
    if found is None:
        raise ValueError("the PTX has no entry")
    return found.group(0)


def waits(ptx: str) -> bool:
    """Whether a kernel waits, by its PTX, for the kernels before it."""
    return "griddepcontrol.wait" in ptx


def parameters_of(ptx: str) -> int:
    """How many parameters a kernel's entry takes, by its PTX: Triton appends its own (scratch)."""
    return entry_of(ptx).count(".param")


__all__ = ["Launcher", "Library", "Queue", "Site", "current_raw_stream", "load_library"]
