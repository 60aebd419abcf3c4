"""Strides where nothing is stepped along a dimension, and layouts that a GPU's kernels choose."""

import itertools
from functools import partial

import pytest
import torch
from flambeau_prims import decompositions
from flambeau_prims.conformance import Decomposing
from flambeau_prims.decomp import emit
from torch._subclasses.fake_tensor import FakeTensorMode

aten = torch.ops.aten
KEPT = {
    "sum": lambda x, d: x.sum(d, keepdim=True),
    "mean": lambda x, d: x.mean(d, keepdim=True),
    "prod": lambda x, d: x.prod(d, keepdim=True),
    "any": lambda x, d: x.any(d, keepdim=True),
    "amax": lambda x, d: x.amax(d, keepdim=True),
    "argmin": lambda x, d: x.argmin(d, keepdim=True),
    "var": lambda x, d: x.var(d, keepdim=True),
    "logsumexp": lambda x, d: x.logsumexp(d, keepdim=True),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KEPT)
def test_kept_dimensions_of_results_without_elements(name):
    for shape in itertools.product((0, 1, 3), repeat=3):
        for dim in range(3):
            x = torch.ones(shape)
            try:
                expected = KEPT[name](x, dim)
            except (RuntimeError, IndexError):
                continue  # an extreme of nothing
            with Decomposing():
                found = KEPT[name](x, dim)
            assert (found.shape, found.stride()) == (expected.shape, expected.stride())


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("number", [complex("inf"), complex(0.5, float("inf")), 1 + 2j])
def test_a_product_of_complex_numbers_begins_with_one(shape, number):
    x = torch.full(shape, number)
    calls = [torch.prod] if not shape else [torch.prod, lambda x: x.prod(0)]
    for call in calls:
        with Decomposing():
            found = call(x)
        torch.testing.assert_close(found, call(x), equal_nan=True)


def images(device):
    return torch.empty(2, 3, 4, 5, device=device, memory_format=torch.channels_last)


def on_gpu(function):
    """The strides of a result of fake tensors on a GPU, and on a CPU."""
    found = []
    with FakeTensorMode():
        for device in ("cuda", "cpu"):
            result = function(decompositions(), device)
            found.append((result[0] if isinstance(result, tuple) else result).stride())
    return found


def test_layouts_of_gpu_kernels():
    rows, format = torch.empty(2, 3, 4, 5).stride(), images("cpu").stride()
    moved = on_gpu(lambda rules, at: rules[aten.roll.default](images(at), [1], [1]))
    assert moved == [rows, format]
    activated = on_gpu(lambda rules, at: rules[aten.log_sigmoid_forward.default](images(at)))
    assert activated == [format, rows]
    for shape in ((3, 4), (5,), (), (0, 2)):
        assert on_gpu(partial(_places, shape)) == [
            torch.empty(len(shape), 7).t().stride(),
            torch.empty(7, len(shape)).stride(),
        ]


def _places(shape, rules, device):
    return rules[aten.nonzero_static.default](torch.empty(shape, device=device), size=7)


@pytest.mark.parametrize(
    ("size", "dtype", "spoiled"),
    [(6, torch.float32, True), (8, torch.float32, False), (8, torch.float64, True)],
)
def test_rows_with_infinities_under_rms_norm_of_a_gpu(size, dtype, spoiled, monkeypatch):
    """Its kernel takes a mean of the row where it does not read four elements at once."""
    monkeypatch.setattr(emit, "on_gpu", lambda x: True)
    x = torch.ones(2, size, dtype=dtype)
    x[0, 1] = float("inf")
    out, _ = decompositions()[aten._fused_rms_norm.default](x, [size], None, 0.5)
    assert bool(out[0, 0].isnan()) == spoiled and bool(out[0, 1].isnan())
    torch.testing.assert_close(out[1], torch.full((size,), 1.5**-0.5, dtype=dtype))
