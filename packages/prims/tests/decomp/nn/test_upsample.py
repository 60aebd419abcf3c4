"""Nearest neighbours: by shape alone where each entry is picked equally often, else by position."""

from __future__ import annotations

from collections.abc import Callable

import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_prims.conformance import Decomposing
from torch import Tensor, fx

SHAPES = [(2, 3, 5), (2, 3, 5, 7), (1, 2, 3, 4, 5)]
FACTORS = [1.0, 1.5, 1.9, 2.0, 3.0]
WHOLE = (1.0, 2.0, 3.0)


def lowered(fn: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, set[str]]:
    """What the primitives give, and which they are."""
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), [x])
    names = {str(n.target).split(".")[1] for n in gm.graph.nodes if n.op == "call_function"}
    return gm(x), names


def images(shape: tuple[int, ...], last: bool) -> Tensor:
    x = torch.randn(shape)
    return x.contiguous(memory_format=torch.channels_last) if last and x.ndim == 4 else x


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_entries_and_their_gradients(
    shape: tuple[int, ...], factor: float, mode: str, last: bool
) -> None:
    x = images(shape, last)
    found, names = lowered(lambda t: F.interpolate(t, scale_factor=factor, mode=mode), x)
    expected = F.interpolate(x, scale_factor=factor, mode=mode)
    assert torch.equal(found, expected) and found.stride() == expected.stride()
    if factor in WHOLE:
        assert "index_select" not in names and "broadcast_in_dim" in names

    size, dims = list(expected.shape[2:]), len(shape) - 2
    name = f"upsample_nearest{dims}d_backward"
    name = name if mode == "nearest" else f"_{name}".replace("nearest", "nearest_exact")
    gradient = getattr(torch.ops.aten, name).default

    def backward(grad: Tensor) -> Tensor:
        return gradient(grad, size, list(shape), *[factor] * dims)

    grad = torch.randn(expected.shape).to(memory_format=torch.preserve_format)
    found, names = lowered(backward, grad)
    torch.testing.assert_close(found, backward(grad), rtol=1e-5, atol=1e-4)
    assert found.stride() == backward(grad).stride()
    if factor in WHOLE:
        assert "index_put" not in names and "sum" in names


def test_a_factor_whose_positions_round_down_is_followed() -> None:
    """In float32 41 times the rounded quotient 1/41 stays below one: eager picks unequally."""
    x = torch.randn(1, 1, 37)
    found, _ = lowered(lambda t: F.interpolate(t, scale_factor=41.0), x)
    assert torch.equal(found, F.interpolate(x, scale_factor=41.0))
    assert not torch.equal(found, x.repeat_interleave(41, 2))


def test_sums_of_half_precision_are_rounded_once() -> None:
    grad = torch.randn(1, 2, 12, 12).bfloat16()

    def backward(grad: Tensor) -> Tensor:
        return torch.ops.aten.upsample_nearest2d_backward.default(grad, [12, 12], [1, 2, 3, 3])

    found, _ = lowered(backward, grad)
    exact = grad.double().reshape(1, 2, 3, 4, 3, 4).sum((3, 5))
    torch.testing.assert_close(found, exact.bfloat16(), rtol=2**-8, atol=0)


def test_a_given_scale_that_picks_unequally_is_followed() -> None:
    """Eager takes positions by the scale that it is given, though the sizes are whole factors."""
    x = torch.arange(6.0).reshape(1, 1, 6)

    def forward(x: Tensor) -> Tensor:
        return torch.ops.aten.upsample_nearest1d.default(x, [12], 3.0)

    found, names = lowered(forward, x)
    assert torch.equal(found, forward(x)) and "index_select" in names
    assert found.flatten()[-1] == 3


KEPT = [1.0, 1.05, 1.2, (1.05, 2.0)]
MODES = {3: "linear", 4: "bilinear", 5: "trilinear"}


def resized(mode: str, factor: object, align_corners: bool) -> Callable[[Tensor], Tensor]:
    return lambda t: F.interpolate(t, scale_factor=factor, mode=mode, align_corners=align_corners)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("factor", KEPT, ids=str)
def test_a_dimension_that_keeps_its_size_is_not_resampled(factor, align_corners) -> None:
    """Whatever its scale is, and whatever is infinite beside an entry."""
    for shape in SHAPES if isinstance(factor, float) else SHAPES[1:2]:
        shape = (*shape[:2], *(min(n, 4) for n in shape[2:]))
        x = torch.randn(shape)
        for held in (x, x.masked_fill(torch.rand(shape) > 0.8, float("inf"))):
            fn = resized(MODES[held.ndim], factor, align_corners)
            torch.testing.assert_close(lowered(fn, held)[0], fn(held), equal_nan=True)


LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
GIVEN = [
    # (spatial size, scale given): kept, doubled, neither, and about 128 rows and columns in all
    ((5,), 1.1), ((3,), 2.3), ((4,), 1.7),
    ((3, 3), 1.2), ((7, 7), 2.1), ((4, 3), 1.3), ((64, 64), 1.01), ((65, 64), 1.01),
    ((33, 31), 2.015), ((33, 32), 2.015), ((4, 4), 2.5),
    ((3, 2, 3), 1.3), ((5, 4, 5), 2.1), ((2, 2, 5), 1.9),
]  # fmt: skip
KINDS = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize(("size", "scale"), GIVEN, ids=str)
def test_a_scale_counts_where_eagers_kernel_reads_it(size, scale, channels, recomputed) -> None:
    """Of dimensions that keep or double their size some kernels ignore it: by layout, by the number
    of channels, by the size of the image, for the gradient but not for the result."""
    made = torch.rand(2, channels, *size, dtype=torch.float64)
    layouts = [torch.contiguous_format, *([LAST[made.ndim]] if made.ndim in LAST else [])]
    for mode in ("nearest", "nearest-exact", *KINDS[len(size)]):
        for layout in layouts:
            x = made.contiguous(memory_format=layout).requires_grad_()
            given = {"scale_factor": scale, "mode": mode, "recompute_scale_factor": recomputed}
            expected = F.interpolate(x, **given)
            with Decomposing():
                found = F.interpolate(x, **given)
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride()
            for order in layouts:
                grad = torch.rand(expected.shape).double().contiguous(memory_format=order)
                (wanted,) = torch.autograd.grad(expected, x, grad, retain_graph=True)
                with Decomposing():
                    (given_back,) = torch.autograd.grad(found, x, grad, retain_graph=True)
                torch.testing.assert_close(given_back, wanted)
                assert given_back.stride() == wanted.stride(), (mode, layout, order)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [2, 5, 7, 9, 20])
def test_what_is_infinite_next_to_an_entry(size, dtype, align_corners) -> None:
    """An entry that weighs nothing makes no number of an infinite one, and a hardly greater weight
    does not: places are rounded as eager rounds them."""
    for shape in ((2, 3, 3), (1, 2, 10), (1, 2, 4, 5), (1, 2, 3, 4, 5)):
        x = torch.randn(shape).masked_fill(torch.rand(shape) > 0.7, float("inf")).to(dtype)
        given = {"size": (size,) * (x.ndim - 2), "mode": MODES[x.ndim]}
        with Decomposing():
            found = F.interpolate(x, **given, align_corners=align_corners)
        expected = F.interpolate(x, **given, align_corners=align_corners)
        close = {"rtol": 2**-7, "atol": 2**-5} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(found, expected, equal_nan=True, **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [2, 5, 9, 20, 21])
def test_lines_are_resampled_bit_for_bit(size, dtype) -> None:
    x = torch.randn(2, 3, 7, dtype=dtype)
    for align_corners in (False, True):
        with Decomposing():
            found = F.interpolate(x, size, mode="linear", align_corners=align_corners)
        expected = F.interpolate(x, size, mode="linear", align_corners=align_corners)
        assert torch.equal(found, expected)
