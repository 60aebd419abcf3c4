"""Dtypes of results where torch's description and its kernels differ: capture and aot, which
describe programs apart, both say what the kernels do. Generated: all dtypes of all operands."""

import itertools

import pytest
import torch
from flambeau_aot.joint.metadata.fake_metadata import FakeValues
from flambeau_capture import _torch_compat as compat

aten = torch.ops.aten
REAL = [torch.bool, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float32]
DTYPES = [*REAL, torch.float64, torch.complex64, torch.complex128]


def tensors(*shapes):
    return [torch.ones(shape, dtype=dtype) for dtype in DTYPES for shape in shapes]


PAIRS = list(itertools.product(tensors((), (3,)), repeat=2))
BOUNDS = [*tensors(()), 2.0]
SPACED = [(a, b, 4) for a, b in itertools.product(BOUNDS, repeat=2)]
CALLS = {
    aten.ldexp.Tensor: PAIRS,
    aten.huber_loss.default: PAIRS,
    aten.soft_margin_loss.default: PAIRS,
    aten.addr.default: list(itertools.product(tensors(()), tensors((3,)), [torch.ones(3).half()])),
    aten.pow.Tensor_Scalar: list(itertools.product(tensors((), (3,)), [True, False, 2, 0.5])),
    aten.linspace: SPACED,
    aten.logspace: SPACED,
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("op", CALLS, ids=str)
def test_a_description_is_the_kernels(op):
    values, mode, seen = FakeValues(), compat.new_fake_mode(), 0
    for args in CALLS[op]:
        kinds = ["Tensor" if isinstance(bound, torch.Tensor) else "Scalar" for bound in args[:2]]
        if op in (aten.linspace, aten.logspace):
            if kinds == ["Scalar", "Scalar"]:
                continue
            func = getattr(op, "_".join(kinds))
        else:
            func = op
        try:
            real = func(*args)
        except RuntimeError:
            continue
        with mode, compat.Watching(lambda *_: None):
            told = func(*(mode.from_tensor(a) if torch.is_tensor(a) else a for a in args))
        fake = values.run(
            func, tuple(values.like(a) if torch.is_tensor(a) else a for a in args), {}
        )
        shown = [(a.dtype, a.dim()) if torch.is_tensor(a) else a for a in args]
        assert (told.dtype, fake.dtype) == (real.dtype, real.dtype), shown
        seen += 1
    assert seen > 10
