"""An `out=` of another dtype than the operands, by which kernels for CUDA are chosen."""

from __future__ import annotations

import re
from pathlib import Path

import flambeau_aot as aot
import pytest
import torch
import torchgen
from flambeau_aot.inputs.memory_overlap import Layouts
from flambeau_aot.intercept.registry import Call
from flambeau_aot.intercept.writes.inplace import (
    COMPUTED_AS_WRITTEN,
    COMPUTED_AS_WRITTEN_IF_WHOLE,
    COMPUTED_IN_PLACE,
    OF_A_CPU,
    OF_REAL_NUMBERS,
    OF_WHOLE_NUMBERS,
    keeping_size,
    write_on_copy,
)
from torch._subclasses.fake_tensor import FakeTensorMode

WHOLE = (torch.int64, torch.uint8)
REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
NAMES = sorted(OF_WHOLE_NUMBERS | OF_REAL_NUMBERS)


def arguments(device: str) -> tuple[torch.Tensor, ...]:
    return (torch.tensor([1, 2, 3], dtype=torch.uint8, device=device),) * 2


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_takes_what_it_writes(name: str, device: str) -> None:
    taken = WHOLE if name in OF_WHOLE_NUMBERS else WHOLE + REAL
    for dtype in WHOLE + REAL + COMPLEX:
        with FakeTensorMode():
            out = torch.zeros(3, dtype=dtype, device=device)
            args, kwargs = arguments(device), {"out": out}
            if device == "cuda" and dtype not in taken:
                with pytest.raises(aot.Unsupported, match=f"{name} with an out= of {dtype}"):
                    keeping_size(out, Call(getattr(torch, name), args, kwargs), Layouts({}))
                continue
            assert keeping_size(out, Call(getattr(torch, name), args, kwargs), Layouts({})) is out


@pytest.mark.parametrize("name", NAMES)
def test_a_cpu_takes_all(name: str) -> None:
    for dtype in WHOLE + REAL + COMPLEX:

        def call(*args: torch.Tensor, dtype: torch.dtype = dtype) -> torch.Tensor:
            out = torch.zeros(3, dtype=dtype)
            return getattr(torch, name)(*args, out=out)

        args = arguments("cpu")
        assert torch.equal(aot.aot_function(call, aot.run_as_is)(*args), call(*args))


def noted(name: str, seen: list[torch.dtype]) -> object:
    """A function of this name that notes what it is given."""

    def call(*args: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        seen.extend(x.dtype for x in args)
        written = args[0] if out is None else out
        return written

    call.__name__ = name
    return call


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", sorted(COMPUTED_AS_WRITTEN | COMPUTED_IN_PLACE))
def test_a_kernel_for_cuda_computes_in_what_it_writes(name: str, device: str) -> None:
    for given, written in ((torch.int16, torch.uint8), (torch.int64, torch.int8)):
        with FakeTensorMode():
            seen: list[torch.dtype] = []
            x = torch.ones(3, dtype=given, device=device)
            out = torch.zeros(3, dtype=written, device=device)
            if name in COMPUTED_IN_PLACE:
                write_on_copy(out, Call(noted(name, seen), (out, x), {}), Layouts({}))
            else:
                keeping_size(out, Call(noted(name, seen), (x, x), {"out": out}), Layouts({}))
        converted = written if device == "cuda" else given
        assert seen[-1] is converted


@pytest.mark.parametrize("name", sorted(COMPUTED_AS_WRITTEN_IF_WHOLE))
@pytest.mark.parametrize("written", [torch.float16, torch.float32, torch.float64], ids=str)
def test_numbers_that_are_not_whole_are_compared_as_they_promote(
    name: str, written: torch.dtype
) -> None:
    with FakeTensorMode():
        seen: list[torch.dtype] = []
        x = torch.ones((), dtype=torch.float64, device="cuda")
        y = torch.ones(3, dtype=torch.bfloat16, device="cuda")
        out = torch.zeros(3, dtype=written, device="cuda")
        keeping_size(out, Call(noted(name, seen), (x, y), {"out": out}), Layouts({}))
    assert seen[-2:] == [torch.float64, torch.bfloat16]


@pytest.mark.parametrize("name", sorted(COMPUTED_AS_WRITTEN))
def test_a_call_that_writes_to_nothing_computes_in_what_its_operands_promote_to(name: str) -> None:
    with FakeTensorMode():
        seen: list[torch.dtype] = []
        x = torch.ones(3, dtype=torch.int16, device="cuda")
        y = torch.zeros(3, dtype=torch.uint8, device="cuda")
        write_on_copy(y, Call(noted(name, seen), (y, x), {}), Layouts({}))
    assert seen == [torch.uint8, torch.int16]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_other_kernels_compute_in_the_dtype_of_the_operands(device: str) -> None:
    with FakeTensorMode():
        seen: list[torch.dtype] = []
        x = torch.ones(3, dtype=torch.int16, device=device)
        out = torch.zeros(3, dtype=torch.uint8, device=device)
        keeping_size(out, Call(noted("add", seen), (x, x), {"out": out}), Layouts({}))
    assert set(seen) == {torch.int16}


DECLARED = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"


def test_what_cuda_has_no_kernel_for_is_what_torch_declares() -> None:
    """Of the functions that write a result of theirs to `out`, to take it or leave it."""
    blocks = re.findall(
        r"^- func: (\w+)\.out\((.*?)(?=^- func|\Z)", DECLARED.read_text(), re.M | re.S
    )
    devices = {name: re.findall(r"^    ([\w, ]+): ", text, re.M) for name, text in blocks}
    alone = {
        name
        for name, keys in devices.items()
        if any("CPU" in key.split(", ") for key in keys)
        and not any("CUDA" in key or "Composite" in key for key in keys)
    }
    functions = {name for name in alone if hasattr(torch, name)}
    assert functions == OF_A_CPU


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_function_without_a_kernel_is_refused(device: str) -> None:
    with FakeTensorMode():
        x = torch.zeros(5, 5, device=device)
        out = torch.zeros(5, 2, device=device)
        call = Call(torch.narrow_copy, (x, 1, 2, 2), {"out": out})
        if device == "cpu":
            assert keeping_size(out, call, Layouts({})) is out
        else:
            with pytest.raises(aot.Unsupported, match="narrow_copy"):
                keeping_size(out, call, Layouts({}))
