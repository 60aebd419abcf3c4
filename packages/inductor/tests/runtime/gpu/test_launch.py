"""The native part of a launch, with a driver that writes down what it is told."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.kernels.launching import LAUNCH
from flambeau_inductor.runtime.gpu.launch import (
    Launcher,
    Library,
    attach,
    load_library,
    parameters_of,
)

from tests.runtime.gpu.driver import Driver as Recorded

UINT, POINTER = ctypes.c_uint, ctypes.c_void_p
DRIVER = ctypes.CFUNCTYPE(
    ctypes.c_int, POINTER, *(UINT,) * 7, POINTER, ctypes.POINTER(POINTER), POINTER
)
NO_CONTEXT = 201
PTX = """
.visible .entry kernel(
    .param .u64 .ptr .global .align 16 kernel_param_0,
    .param .u64 .ptr .global .align 16 kernel_param_1,
    .param .u64 .ptr .global .align 1 kernel_param_2,
    .param .u64 .ptr .global .align 1 kernel_param_3
)
.reqntid 128
{ ret; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return load_library(find_toolchain().build(LAUNCH, tmp_path_factory.mktemp("launch")))


@dataclass
class Metadata:
    num_warps: int = 4
    shared: int = 512


@dataclass
class Kernel:
    """What Triton's compiled kernel shows of itself."""

    function: int = 0x77
    packed_metadata: tuple[int, ...] = ()
    metadata: Metadata = field(default_factory=Metadata)
    ran: list[tuple[Any, ...]] = field(default_factory=list)
    waits: bool = False

    @property
    def asm(self) -> dict[str, str]:
        return {"ptx": PTX}

    def run(self, *given: Any) -> None:
        self.ran.append(given)


class Driver:
    """cuLaunchKernel, as a record of its calls."""

    def __init__(self, status: int = 0) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.status = status
        self.attached = 0
        self._entry = DRIVER(self._launch)

    def _launch(self, function: int, *rest: Any) -> int:
        *numbers, stream, parameters, extra = rest
        values = [ctypes.cast(parameters[k], ctypes.POINTER(ctypes.c_uint64))[0] for k in range(4)]
        self.calls.append((function, tuple(numbers), stream, tuple(values), extra))
        return self.status

    def attach(self) -> None:
        self.attached += 1
        if self.status == NO_CONTEXT:
            self.status = 0

    def __call__(self) -> int:
        return ctypes.cast(self._entry, POINTER).value or 0


def _launcher(
    library: Library | None, driver: Driver, programs: int | None = 10, addresses: int = 2
) -> tuple[Launcher, dict[bool, Kernel]]:
    """A launcher of a kernel of two arguments: those that are no addresses are open sizes."""
    kernels = {True: Kernel(), False: Kernel()}
    head = ("kernel", programs, addresses, (64,), kernels.__getitem__, library, driver)
    return Launcher(*head, context=driver.attach, sizes=2 - addresses), kernels


def test_a_launch_is_one_call_of_the_driver(library: Library) -> None:
    driver = Driver()
    launcher, kernels = _launcher(library, driver)
    launcher.queue(0x99, 32, 0xFFFF_FFFF_FFFF_FFF0)
    grid_block_shared = (10, 1, 1, 128, 1, 1, 512)
    expected = (0x77, grid_block_shared, 0x99, (32, 0xFFFF_FFFF_FFFF_FFF0, 0, 0), None)
    assert driver.calls == [expected]
    assert not kernels[True].ran and not kernels[False].ran


def test_a_kernel_that_waits_itself_is_launched_early(library: Library) -> None:
    driver, told = Driver(), Recorded()
    launcher, kernels = _launcher(library, driver)
    kernels[True].waits, launcher.dependent = True, told.dependent
    launcher.queue(0x99, 32, 48)
    assert not driver.calls
    assert told.launched == [("native", 0x77, 10, 128, 512, 0x99, (32, 48))]


def test_an_older_driver_launches_it_as_any_other(library: Library) -> None:
    driver = Driver()
    launcher, kernels = _launcher(library, driver)
    kernels[True].waits, launcher.dependent = True, lambda: None
    launcher.queue(0x99, 32, 48)
    assert len(driver.calls) == 1


def test_unaligned_buffers_get_the_other_kernel(library: Library) -> None:
    driver = Driver()
    launcher, kernels = _launcher(library, driver)
    launcher.queue(0x99, 32, 40)
    assert not driver.calls
    (given,) = kernels[False].ran
    assert given[:4] == (10, 1, 1, 0x99) and given[-3:] == (32, 40, 64)


def test_without_the_native_part_triton_launches() -> None:
    driver = Driver()
    launcher, kernels = _launcher(None, driver)
    launcher.queue(0x99, 32, 48)
    assert kernels[True].ran[0][-3:] == (32, 48, 64) and not driver.calls


def test_a_launch_of_open_sizes_says_its_grid(library: Library) -> None:
    driver = Driver()
    launcher, kernels = _launcher(library, driver, None, addresses=1)
    launcher.queue(0x99, 32, 7, 3)  # 7 is a size, and no address that is unaligned
    launcher.queue(0x99, 32, -1, 0)
    assert driver.calls == [(0x77, (3, 1, 1, 128, 1, 1, 512), 0x99, (32, 7, 0, 0), None)]
    launcher.queue(0x99, 40, 7, 3)
    assert kernels[False].ran[0][:4] == (3, 1, 1, 0x99)
    assert kernels[False].ran[0][-3:] == (40, 7, 64)
    with pytest.raises(TypeError, match="1 addresses, then 2 numbers"):
        launcher.queue(0x99, 32, 7)


def test_open_sizes_without_the_native_part() -> None:
    launcher, kernels = _launcher(None, Driver(), None, addresses=1)
    launcher.queue(0x99, 32, 7, 3)
    launcher.queue(0x99, 32, 7, 0)
    (given,) = kernels[True].ran
    assert given[:4] == (3, 1, 1, 0x99) and given[-3:] == (32, 7, 64)


def test_a_refused_launch_is_an_error(library: Library) -> None:
    launcher, _ = _launcher(library, Driver(status=9))
    with pytest.raises(RuntimeError, match=r"refused a launch \(error 9\)"):
        launcher.queue(0, 16, 16)


def test_a_thread_that_has_no_context_gets_one(library: Library) -> None:
    driver = Driver(status=NO_CONTEXT)
    launcher, _ = _launcher(library, driver)
    launcher.queue(0x99, 16, 16)
    assert driver.attached == 1 and len(driver.calls) == 2
    assert driver.calls[0] == driver.calls[1]
    launcher.queue(0x99, 16, 16)
    assert driver.attached == 1


def test_a_context_that_cannot_be_had_is_an_error(library: Library) -> None:
    class Stubborn(Driver):
        def attach(self) -> None:
            raise OSError("cuDeviceGet failed")

    launcher, _ = _launcher(library, Stubborn(status=NO_CONTEXT))
    with pytest.raises(OSError, match="cuDeviceGet"):
        launcher.queue(0, 16, 16)


class Contexts:
    """The driver's calls about contexts, in a thread that has `current`."""

    def __init__(self, current: int) -> None:
        self.current = current
        self.called: list[str] = []

    def cuCtxGetCurrent(self, place: Any) -> int:
        place._obj.value = self.current
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> int:
            self.called.append(name)
            return 0

        return call


@pytest.mark.parametrize(
    ("current", "called"),
    [(0x55, []), (0, ["cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"])],
)
def test_a_context_that_is_current_stays(current: int, called: list[str]) -> None:
    driver = Contexts(current)
    attach(1, driver)
    assert driver.called == called


def test_an_empty_grid_launches_nothing(library: Library) -> None:
    driver = Driver()
    launcher, _ = _launcher(library, driver, programs=0)
    launcher.queue(0, 16, 16)
    assert not driver.calls


@pytest.mark.parametrize("given", [(), (0, 16), (0, 16, 16, 16)])
def test_another_number_of_addresses_is_an_error(library: Library, given: tuple[int, ...]) -> None:
    launcher, _ = _launcher(library, Driver())
    with pytest.raises(TypeError, match="a stream and 2 addresses"):
        launcher.queue(*given)


def test_what_is_no_address_is_an_error(library: Library) -> None:
    launcher, _ = _launcher(library, Driver())
    with pytest.raises(TypeError):
        launcher.queue(0, "16", 16)


def test_parameters_are_counted_in_the_entry(tmp_path: Path) -> None:
    assert parameters_of(PTX) == 4
    assert parameters_of(".entry none()\n{ .param .b64 x; }") == 0
    with pytest.raises(ValueError, match="no entry"):
        parameters_of("// nothing")
