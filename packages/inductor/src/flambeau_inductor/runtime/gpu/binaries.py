"""GPU binaries, loaded by the driver without a compiler.

In: the files and the data of a part that `flambeau_inductor.kernels.triton_binaries` made. Out:
functions by name, as the wrapper calls them. Invariant: nothing of Triton is imported; a binary is
given to the driver only on the compute capability that it was made for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from flambeau_inductor.runtime.gpu.launch import (
    Launcher,
    attach,
    cuda_launch,
    cuda_launch_dependent,
    load_library,
)
from flambeau_inductor.runtime.gpu.tensor_descriptors import Descriptor, cuda_encode
from flambeau_inductor.runtime.kernel_part import CannotLoad, KernelPart, Loaded

LIBRARY = "launch.so"
"""The native part of launching; a part without it is launched by Python."""
MOST_SHARED = 48 << 10
"""Bytes of shared memory that a kernel may have without asking."""
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PREFER_SHARED = 1  # CU_FUNC_CACHE_PREFER_SHARED
_POINTER = ctypes.c_void_p


class CudaDriver:
    """The driver of this machine, on the device that is the current one."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._images: list[bytes] = []  # the driver, or a debugger, may read them later

    def _call(self, name: str, *given: Any) -> None:
        if status := getattr(self._library, name)(*given):
            raise OSError(f"{name} failed (error {status} of the CUDA driver)")

    def attach(self, gpu: int) -> None:
        """Give this thread the context that torch uses on a GPU, if it has none yet."""
        attach(gpu, self._library)

    def load(self, image: bytes, name: str, shared: int) -> int:
        """The handle of function `name` of a binary, which stays loaded as long as the process; it
        may have `shared` bytes."""
        module, function = _POINTER(), _POINTER()
        self._images.append(image)
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared > MOST_SHARED:
            self._call("cuFuncSetCacheConfig", function, _PREFER_SHARED)
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared)
        return function.value or 0

    def launch(
        self, function: int, grid: int, block: int, shared: int, stream: int, given: Sequence[int]
    ) -> None:
        """Queue a function on a stream."""
        values = [ctypes.c_uint64(each) for each in given]
        places = (_POINTER * len(values))(*(ctypes.addressof(each) for each in values))
        numbers = [ctypes.c_uint(n) for n in (grid, 1, 1, block, 1, 1, shared)]
        attach(library=self._library)
        self._call("cuLaunchKernel", _POINTER(function), *numbers, _POINTER(stream), places, None)

    def entry(self) -> int:
        """The address of cuLaunchKernel."""
        return cuda_launch()

    def dependent(self) -> int | None:
        """The address of cuLaunchKernelEx, if it launches kernels before others end."""
        return cuda_launch_dependent()

    def encoder(self) -> int:
        """The address of cuTensorMapEncodeTiled."""
        return cuda_encode()


@dataclass
class Binary:
    """One variant of a kernel, with those attributes of Triton's that `Launcher` reads.

    image: the file. passed: how many addresses and sizes the kernel takes, before null pointers:
    none has descriptors and open sizes. waits: whether it waits for earlier kernels by itself.
    """

    image: Path
    name: str
    passed: int
    parameters: int
    metadata: SimpleNamespace
    asm: Mapping[str, str]
    driver: CudaDriver
    waits: bool = False
    packed_metadata: tuple[()] = field(default=())

    @cached_property
    def function(self) -> int:
        return self.driver.load(self.image.read_bytes(), self.name, self.metadata.shared)

    @property
    def run(self) -> Any:
        """Launches without the native part, called as Triton's own launcher is."""
        assert self.function is not None  # loads it
        return self._run

    def _run(self, grid: int, y: int, z: int, stream: int, function: int, *rest: Any) -> None:
        given = rest[4 : 4 + self.passed]  # after Triton's own four
        nulls = (0,) * (self.parameters - self.passed)
        threads, shared = 32 * self.metadata.num_warps, self.metadata.shared
        self.driver.launch(function, grid, threads, shared, stream, (*given, *nulls))


def load_binaries(part: KernelPart, gpu: int | None) -> Loaded:
    """The functions of a part. Raises CannotLoad on another kind of GPU."""
    wanted = tuple(part.data["capability"])
    if not torch.cuda.is_available():
        raise CannotLoad(f"its kernels are for a GPU of compute capability {dotted(wanted)}")
    with torch.cuda.device(gpu or 0):
        here = torch.cuda.get_device_capability()
        if here != wanted:
            found = f"this GPU has {dotted(here)}"
            raise CannotLoad(f"its kernels are for compute capability {dotted(wanted)}, {found}")
        torch.cuda.current_stream().synchronize()  # the driver wants a context
        return launchers_of(part, _cuda())


def cuda_driver(gpu: int) -> CudaDriver:
    """The driver, ready for the GPU that is the current one."""
    driver = _cuda()
    driver.attach(gpu)
    return driver


@lru_cache(maxsize=1)
def _cuda() -> CudaDriver:
    return CudaDriver()


Other = Callable[[str], Any]
"""What gives the compiled kernel of a name for buffers that the part has no binary for."""


def launchers_of(part: KernelPart, driver: CudaDriver, other: Other | None = None) -> Loaded:
    """Functions and the launchers that own them."""
    library = load_library(part.files[LIBRARY]) if LIBRARY in part.files else None
    launchers = {
        kernel["name"]: Launcher(
            kernel["name"],
            kernel["programs"],
            kernel["addresses"],
            tuple(kernel.get("constants", ())),
            _prepare(part, kernel, driver, other),
            library,
            driver.entry,
            descriptors=tuple(
                Descriptor._make(tuple(v) if isinstance(v, list) else v for v in each)
                for each in kernel["descriptors"]
            ),
            encoder=driver.encoder,
            dependent=driver.dependent,
            sizes=kernel.get("sizes", 0),
        )
        for kernel in part.data["kernels"]
    }
    return {name: each.queue for name, each in launchers.items()}, (launchers,)


def _prepare(
    part: KernelPart, kernel: Mapping[str, Any], driver: CudaDriver, other: Other | None
) -> Any:
    def prepare(aligned: bool) -> Any:
        name = "aligned" if aligned else "any"
        if other is not None and name not in kernel["variants"]:
            return other(kernel["name"])
        made = kernel["variants"][name]
        metadata = SimpleNamespace(
            num_warps=made["warps"], shared=made["shared"], tensordesc_meta=made["descriptors"]
        )
        return Binary(
            part.files[made["file"]],
            made["name"],
            kernel["addresses"] + kernel.get("sizes", 0),
            made["parameters"],
            metadata,
            {"ptx": made["entry"]},
            driver,
            made.get("waits", False),
        )

    return prepare


def dotted(capability: Sequence[int]) -> str:
    """`9.0` for (9, 0)."""
    return ".".join(map(str, capability))
