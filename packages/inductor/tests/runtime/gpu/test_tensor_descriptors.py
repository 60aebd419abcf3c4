"""Tensor descriptors of a launch, with a driver that writes down what it is told."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import pytest
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.kernels.launching import LAUNCH
from flambeau_inductor.runtime.gpu.launch import Launcher, Library, load_library
from flambeau_inductor.runtime.gpu.tensor_descriptors import Descriptor, as_passed, fits, tiled

UINT, INT, ULONG, POINTER = ctypes.c_uint, ctypes.c_int, ctypes.c_ulonglong, ctypes.c_void_p
DRIVER = ctypes.CFUNCTYPE(INT, POINTER, *(UINT,) * 7, POINTER, ctypes.POINTER(POINTER), POINTER)
NUMBERS, SMALL = ctypes.POINTER(ULONG), ctypes.POINTER(UINT)
ENCODE = ctypes.CFUNCTYPE(
    INT, POINTER, INT, UINT, POINTER, NUMBERS, NUMBERS, SMALL, SMALL, *(INT,) * 4
)
PTX = """
.visible .entry kernel(
    .param .u64 .ptr .global .align 16 kernel_param_0,
    .param .u64 .ptr .global .align 16 kernel_param_1,
    .param .align 64 .b8 kernel_param_2[128],
    .param .u32 kernel_param_3,
    .param .u32 kernel_param_4,
    .param .u64 kernel_param_5,
    .param .u64 kernel_param_6,
    .param .u64 .ptr .global .align 1 kernel_param_7,
    .param .u64 .ptr .global .align 1 kernel_param_8
)
.reqntid 128
{ ret; }
"""
META = {"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [64, 64], "fp4_padded": False}
TOLD = Descriptor(1, 16, (100, 256), (512, 1), (64, 128), "bf16")


@dataclass
class Metadata:
    num_warps: int = 8
    shared: int = 4096
    tensordesc_meta: list[dict[str, Any]] = field(default_factory=lambda: [META])


@dataclass
class Kernel:
    """What Triton's compiled kernel shows of itself."""

    ptx: str = PTX
    function: int = 0x77
    packed_metadata: tuple[int, ...] = ()
    metadata: Metadata = field(default_factory=Metadata)
    ran: list[tuple[Any, ...]] = field(default_factory=list)

    waits: bool = False

    @property
    def asm(self) -> dict[str, str]:
        return {"ptx": self.ptx}

    def run(self, *given: Any) -> None:
        self.ran.append(given)


class Machine:
    """The driver's two functions, as records of their calls."""

    def __init__(self, status: int = 0) -> None:
        self.encoded: list[tuple[Any, ...]] = []
        self.launched: list[list[int]] = []
        self.maps: list[bytes] = []
        self.status = status
        self._driver, self._encode = DRIVER(self._launch), ENCODE(self._encoding)

    def _encoding(self, made: int, kind: int, rank: int, address: int, *rest: Any) -> int:
        sizes, strides, box, steps, *settings = rest
        ctypes.memset(made, 0xAB, 128)
        assert made % 64 == 0
        told = (sizes[:rank], strides[: rank - 1], box[:rank], steps[:rank], settings)
        self.encoded.append((kind, rank, address, *told))
        return self.status

    def _launch(self, function: int, *rest: Any) -> int:
        parameters = rest[-2]
        small = {3, 4}  # sizes are numbers of 32 bits
        self.maps.append(ctypes.string_at(parameters[2], 128))
        kinds = [UINT if k in small else ctypes.c_uint64 for k in range(9)]
        values = [
            ctypes.cast(parameters[k], ctypes.POINTER(kind))[0] for k, kind in enumerate(kinds)
        ]
        self.launched.append([v for k, v in enumerate(values) if k != 2])
        return 0

    def driver(self) -> int:
        return ctypes.cast(self._driver, POINTER).value or 0

    def encoder(self) -> int:
        return ctypes.cast(self._encode, POINTER).value or 0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return load_library(find_toolchain().build(LAUNCH, tmp_path_factory.mktemp("launch")))


def _launcher(
    library: Library | None, machine: Machine, ptx: str = PTX
) -> tuple[Launcher, dict[bool, Kernel]]:
    kernels = {True: Kernel(ptx), False: Kernel()}
    made = Launcher(
        "kernel", 10, 2, (64, 1), kernels.__getitem__, library, machine.driver,
        descriptors=(TOLD,), encoder=machine.encoder,
    )  # fmt: skip
    return made, kernels


def test_a_descriptor_is_encoded_at_each_launch_and_passed_by_value(library: Library) -> None:
    machine = Machine()
    launcher, _ = _launcher(library, machine)
    for address in (0x1000, 0x2000):
        launcher.queue(0x99, 0x800, address)
    first, second = machine.encoded
    # bfloat16, two dimensions, 16 elements in; innermost first: sizes, bytes of a row, box, steps
    assert first == (9, 2, 0x1020, [256, 100], [1024], [64, 64], [1, 1], [0, 3, 2, 0])
    assert second[2] == 0x2020
    # addresses, sizes and strides outermost first, Triton's own two
    assert machine.launched[0] == [0x800, 0x1000, 100, 256, 512, 1, 0, 0]
    assert machine.maps == [b"\xab" * 128] * 2


def test_unaligned_buffers_get_the_kernel_without_descriptors(library: Library) -> None:
    machine = Machine()
    launcher, kernels = _launcher(library, machine)
    launcher.queue(0x99, 0x800, 0x1008)
    assert not machine.launched and not machine.encoded
    assert kernels[False].ran[0][-5:] == (0x800, 0x1008, None, 64, 1)


def test_without_the_native_part_nothing_is_described() -> None:
    machine = Machine()
    launcher, kernels = _launcher(None, machine)
    launcher.queue(0x99, 0x800, 0x1000)
    assert kernels[False].ran and not kernels[True].ran and not machine.encoded


def test_an_entry_that_takes_something_else_is_not_launched(library: Library) -> None:
    machine = Machine()
    other = PTX.replace(".param .u32 kernel_param_4,\n", "")
    launcher, kernels = _launcher(library, machine, other)
    launcher.queue(0x99, 0x800, 0x1000)
    assert kernels[False].ran and not machine.launched


def test_a_refused_descriptor_is_an_error(library: Library) -> None:
    machine = Machine(status=1)
    launcher, _ = _launcher(library, machine)
    with pytest.raises(RuntimeError, match=r"refused a tensor descriptor \(error 1\)"):
        launcher.queue(0x99, 0x800, 0x1000)
    assert not machine.launched


def test_what_an_entry_takes_is_compared_in_full() -> None:
    assert as_passed(PTX, 2, [TOLD], [META])
    assert not as_passed(PTX, 3, [TOLD], [META])
    assert not as_passed(PTX, 2, [TOLD], None)
    assert not as_passed(PTX, 2, [TOLD], [{**META, "fp4_padded": True}])
    assert not as_passed(PTX, 2, [TOLD], [{**META, "elem_size": 4}])
    assert not as_passed(PTX, 2, [TOLD._replace(sizes=(2, 2, 2))], [META])
    assert not as_passed(PTX.replace("[128]", "[64]"), 2, [TOLD], [META])
    assert not as_passed("// nothing", 2, [TOLD], [META])


def test_what_fits() -> None:
    assert fits(TOLD) and tiled(TOLD, META).offset == 32
    assert TOLD.signature == "tensordesc<bf16[64, 128]>"
    assert not fits(TOLD._replace(offset=1))
    assert not fits(TOLD._replace(strides=(500, 1)))
    assert not fits(TOLD._replace(strides=(512, 2)))
    assert not fits(TOLD._replace(strides=(0, 1)))
    assert not fits(TOLD._replace(block=(512, 64)))
    assert not fits(TOLD._replace(dtype="fp64"))
