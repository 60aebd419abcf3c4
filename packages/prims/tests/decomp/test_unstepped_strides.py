"""Strides where nothing is stepped along a dimension, and layouts that a GPU's kernels choose."""

import itertools
import random
from functools import partial

import pytest
import torch
from flambeau_prims import decompositions
from flambeau_prims.conformance import Decomposing
from flambeau_prims.decomp import emit
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

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


LIKE_AN_ARGUMENT = {
    "select_scatter": lambda x, *_: torch.select_scatter(x, x.select(0, 0), 0, 0),
    "slice_scatter": lambda x, *_: torch.slice_scatter(x, x[..., :1], -1, 0, 1),
    "diagonal_scatter": lambda x, *_: torch.diagonal_scatter(x, x.diagonal()),
    "log_sigmoid_backward": lambda x, y, z: aten.log_sigmoid_backward(x, y, z),
    "binary_cross_entropy_backward": lambda x, y, z: aten.binary_cross_entropy_backward(x, y, z),
    "slopes of prelu": lambda x, y, _: aten._prelu_kernel_backward(x, y, torch.ones(1, 1, 1))[1],
    "sort": lambda x, *_: x.sort(0)[1],
    "flip": lambda x, *_: x.flip(-1),
    "rot90": lambda x, *_: x.rot90(),
    "masked_fill": lambda x, y, _: x.masked_fill(y > 0, 2),
    "nan_to_num": lambda x, *_: x.nan_to_num(),
    "ones_like": lambda x, *_: torch.ones_like(x),
    "hardtanh": lambda x, *_: aten.hardtanh(x),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(LIKE_AN_ARGUMENT))
def test_results_like_an_argument_keep_all_its_strides(name):
    draw, call = random.Random(name), LIKE_AN_ARGUMENT[name]
    for _ in range(25):
        shape = [draw.choice((1, 1, 2, 3) + (0,) * (draw.random() < 0.3)) for _ in range(3)]
        given = []
        for _ in range(3):
            strides, step = [0, 0, 0], 1
            for dim in draw.sample(range(3), 3):
                apart = shape[dim] == 1 and draw.random() < 0.3
                strides[dim] = draw.choice((1, 2, 7)) if apart else step
                step *= max(shape[dim], 1)
            given.append(torch.empty_strided(shape, strides).fill_(0.5))
        try:
            expected = call(*given)
        except (RuntimeError, IndexError):
            continue  # nothing to select
        with Decomposing():
            found = call(*given)
        assert found.stride() == expected.stride(), [(shape, x.stride()) for x in given]


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


OF_OPEN_SIZES = {
    "mul": lambda x, y: x * y,
    "where": lambda x, y: torch.where(x > 0, y, x),
    "pow": lambda x, y: x**y,
    "add a number": lambda x, _: x + 1,
    "clone": lambda x, _: x.clone(),
    "slice_scatter": lambda x, _: torch.slice_scatter(x, x[..., :1], -1, 0, 1),
    "select_scatter": lambda x, _: torch.select_scatter(x, x.select(0, 0), 0, 0),
    "squeeze": lambda x, _: (x * 2).squeeze(-1),
    "sum": lambda x, _: x.sum(1, keepdim=True),
    "cumsum": lambda x, _: x.cumsum(0),
    "cat": lambda x, _: torch.cat([x, x], 1),
}


def opened(*tensors: torch.Tensor) -> tuple[FakeTensorMode, list[torch.Tensor]]:
    """The tensors with sizes and strides that are symbols."""
    mode = FakeTensorMode(shape_env=ShapeEnv(specialize_zero_one=False))
    return mode, [
        mode.from_tensor(
            x, symbolic_context=StatelessSymbolicContext([DimDynamic.DYNAMIC] * x.dim())
        )
        for x in tensors
    ]


def hints(numbers) -> list[int]:
    return [n if isinstance(n, int) else n.node.hint for n in numbers]


@pytest.mark.parametrize("name", sorted(OF_OPEN_SIZES))
def test_open_sizes_that_are_one_in_this_call(name):
    draw, call = random.Random(name), OF_OPEN_SIZES[name]
    for _ in range(20):
        shape = [draw.choice((1, 1, 2, 3)) for _ in range(3)]
        order = draw.sample(range(3), 3)
        back = sorted(range(3), key=order.__getitem__)
        x, y = (torch.ones([shape[d] for d in order]).permute(back) for _ in range(2))
        if draw.random() < 0.5:
            y = y.narrow(1, 0, 1)[draw.randrange(shape[0])]
        expected = call(x, y)
        mode, given = opened(x, y)
        with mode, Decomposing():
            found = call(*given)
        told = [(tuple(t.shape), t.stride()) for t in (x, y)]
        assert hints(found.stride()) == [*expected.stride()], told


def test_open_sizes_that_are_one_take_any_strides():
    draw = random.Random(0)
    for _ in range(40):
        shape = [draw.choice((1, 1, 2, 3)) for _ in range(3)]
        order = draw.sample(range(3), 3)
        x, model = torch.ones(shape), torch.ones([shape[d] for d in order])
        model = model.permute(sorted(range(3), key=order.__getitem__))
        mode, given = opened(x, model)
        with mode:
            found = emit.laid_out_as(given[1], given[0])
        assert hints(found.stride()) == [*model.stride()], (shape, order)
