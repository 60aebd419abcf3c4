"""A CUDA driver that writes down what it is told, launches of the native part included."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

UINT, POINTER = ctypes.c_uint, ctypes.c_void_p
STARTS_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class Attribute(ctypes.Structure):
    """The driver's CUlaunchAttribute, of a number."""

    _fields_ = (("id", ctypes.c_int), ("padding", UINT), ("value", ctypes.c_int * 16))


class Config(ctypes.Structure):
    """The driver's CUlaunchConfig."""

    _fields_ = (
        ("grid", UINT * 3),
        ("block", UINT * 3),
        ("shared", UINT),
        ("stream", POINTER),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", UINT),
    )


LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, POINTER, *(UINT,) * 7, POINTER, ctypes.POINTER(POINTER), POINTER
)
DEPENDENT = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(Config), POINTER, ctypes.POINTER(POINTER), POINTER
)
ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int, POINTER, ctypes.c_int, UINT, *(POINTER,) * 5, *(ctypes.c_int,) * 4
)


class Driver:
    """See `flambeau_inductor.runtime.gpu.binaries.Driver`."""

    def __init__(self) -> None:
        self.loaded: list[tuple[bytes, str, int]] = []
        self.launched: list[tuple[Any, ...]] = []
        self.encoded: list[tuple[int, int]] = []
        self._launch, self._encode = LAUNCH(self._on_launch), ENCODE(self._on_encode)
        self._dependent = DEPENDENT(self._on_dependent)

    def load(self, image: bytes, name: str, shared: int) -> int:
        self.loaded.append((image, name, shared))
        return 1000 + len(self.loaded)

    def launch(
        self, function: int, grid: int, block: int, shared: int, stream: int, given: Sequence[int]
    ) -> None:
        self.launched.append(("python", function, grid, block, shared, stream, tuple(given)))

    def entry(self) -> int:
        return ctypes.cast(self._launch, POINTER).value or 0

    def dependent(self) -> int:
        return ctypes.cast(self._dependent, POINTER).value or 0

    def encoder(self) -> int:
        return ctypes.cast(self._encode, POINTER).value or 0

    def _on_launch(self, function: int, *rest: Any) -> int:
        grid, _, _, block, _, _, shared, stream, parameters, _ = rest
        first = [ctypes.cast(parameters[k], ctypes.POINTER(ctypes.c_uint64))[0] for k in range(2)]
        self.launched.append(("native", function, grid, block, shared, stream, tuple(first)))
        return 0

    def _on_dependent(self, config: Any, function: int, parameters: Any, extra: int) -> int:
        told = config.contents
        (attribute,) = told.attributes[: told.count]
        assert attribute.id == STARTS_EARLY and list(attribute.value) == [1] + [0] * 15
        numbers = (*told.grid, *told.block, told.shared, told.stream)
        return self._on_launch(function, *numbers, parameters, extra)

    def _on_encode(self, place: int, kind: int, rank: int, address: int, *rest: Any) -> int:
        self.encoded.append((rank, address))
        return 0
