"""An `out=` of another dtype than the operands, by which kernels for CUDA are chosen."""

from __future__ import annotations

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.inputs.memory_overlap import Layouts
from flambeau_aot.intercept.inplace import OF_REAL_NUMBERS, OF_WHOLE_NUMBERS, keeping_size
from flambeau_aot.intercept.registry import Call
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
