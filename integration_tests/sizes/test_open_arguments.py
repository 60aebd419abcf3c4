"""Functions that take a size as an argument, of a shape and of an integer that varies: the answer
is eager's at each, and of at most two graphs, the first one's of a constant."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.signal import windows
from torch.utils import _pytree as pytree

import flambeau

SIZES = (6, 9, 12)
SQUARE = torch.arange(400.0).reshape(20, 20)
Case = Callable[[Tensor, int], Any]
MADE: dict[str, Case] = {
    **{
        f"{name}_window": lambda x, n, name=name: getattr(torch, f"{name}_window")(n)
        for name in ("hann", "hamming", "blackman", "bartlett", "kaiser")
    },
    **{
        f"windows.{name}": lambda x, n, name=name: getattr(windows, name)(n)
        for name in ("bartlett", "blackman", "cosine", "hamming", "hann", "kaiser", "nuttall")
    },
    "windows.exponential": lambda x, n: windows.exponential(n, tau=2.0),
    "windows.gaussian": lambda x, n: windows.gaussian(n, std=2.0),
    "windows.general_cosine": lambda x, n: windows.general_cosine(n, a=[0.5, 0.3, 0.2]),
    "hann_window, symmetric": lambda x, n: torch.hann_window(n, False, dtype=torch.float64),
    "kaiser_window by beta": lambda x, n: torch.kaiser_window(n, True, 5.0),
    "eye": lambda x, n: torch.eye(n, n + 2),
    "arange": lambda x, n: torch.arange(1, n, 2),
    "linspace": lambda x, n: torch.linspace(-1, 1, n),
    "linspace to it": lambda x, n: torch.linspace(0, n - 1, n),
    "linspace of tensors": lambda x, n: torch.linspace(x[0], x[1], n),
    "logspace": lambda x, n: torch.logspace(0, 1, n),
    "logspace of base 2": lambda x, n: torch.logspace(0, 3, n, base=2.0),
    "one_hot": lambda x, n: F.one_hot(x.abs().long() % n, n + 1),
    "tril_indices": lambda x, n: torch.tril_indices(n, n),
    "tril_indices from": lambda x, n: torch.tril_indices(5, n, n - 8),
    "triu_indices": lambda x, n: torch.triu_indices(n, n + 1, 1),
    "triu_indices below": lambda x, n: torch.triu_indices(n, 4, -2),
    "vander": lambda x, n: torch.vander(x[:3], n),
    "vander, increasing": lambda x, n: torch.vander(x[:3], n, increasing=True),
    "meshgrid": lambda x, n: torch.meshgrid(torch.arange(n), torch.arange(n + 1), indexing="ij"),
    "fftfreq": lambda x, n: torch.fft.fftfreq(n, d=0.5),
    "rfftfreq": lambda x, n: torch.fft.rfftfreq(n),
}
SHAPED: dict[str, Case] = {
    **{
        f"{name} to n": lambda x, n, name=name: getattr(torch.fft, name)(x, n + 2)
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    },
    "irfft of rfft": lambda x, n: torch.fft.irfft(torch.fft.rfft(x), n=n),
    "stft": lambda x, n: torch.stft(
        x.repeat(8), n, n // 3, window=torch.hann_window(n), return_complex=True
    ),
    "stft of short windows": lambda x, n: torch.stft(
        x.repeat(8), n, 2, n - 2, torch.ones(n - 2), center=False, return_complex=True
    ),
    "unfold": lambda x, n: SQUARE.unfold(0, n, 2),
    "unfold by steps": lambda x, n: SQUARE.unfold(1, 3, n),
    "adaptive_avg_pool1d": lambda x, n: F.adaptive_avg_pool1d(SQUARE[None], n - 1),
    "global avg_pool1d": lambda x, n: F.avg_pool1d(x.expand(2, 3, n), n),
    "global avg_pool2d": lambda x, n: F.avg_pool2d(x.expand(1, 3, n, n), x.expand(n, n).size()),
    "global max_pool1d": lambda x, n: F.max_pool1d(x.expand(2, 3, n), x.shape[0]),
    "global max_pool2d": lambda x, n: F.max_pool2d(x.expand(1, 3, 4, n), (4, n)),
    "interpolate by factor": lambda x, n: F.interpolate(SQUARE[None], scale_factor=n),
    "diagonal": lambda x, n: SQUARE.diagonal(n - 2),
    "diagonal below": lambda x, n: torch.diagonal(SQUARE, 3 - n),
    "diag": lambda x, n: SQUARE.diag(n),
    "diag of a row": lambda x, n: x[:3].diag(2 - n),
    "diag_embed": lambda x, n: SQUARE[:2, :3].diag_embed(n),
    "diagflat": lambda x, n: SQUARE[:2, :3].diagflat(n),
    "tril": lambda x, n: SQUARE.tril(n - 3),
    "trapezoid": lambda x, n: torch.trapezoid(SQUARE, dx=n),
    "bucketize": lambda x, n: torch.bucketize(x, torch.linspace(0, 1, n)),
    "repeat_interleave": lambda x, n: x.repeat_interleave(n),
    "roll": lambda x, n: x.roll(n - 2),
    "narrow": lambda x, n: SQUARE.narrow(0, 2, n),
    "topk": lambda x, n: SQUARE.topk(n),
    "pad": lambda x, n: F.pad(x, (n, 1)),
    "reflection_pad": lambda x, n: F.pad(SQUARE[None], (n - 4, n), mode="reflect"),
    "as_strided": lambda x, n: SQUARE.as_strided((n, 2), (2, 1)),
    "windows of pictures": lambda x, n: F.unfold(SQUARE[None, None], (n, 2)),
    "whole windows": lambda x, n: F.unfold(x.expand(1, 2, 2, n), (1, n)),
    "pixel_shuffle": lambda x, n: F.pixel_shuffle(x.new_ones(2 * n * n, 2, 3).cumsum(0), n),
    "pixel_unshuffle": lambda x, n: F.pixel_unshuffle(x.new_ones(1, 2, 3 * n, 2 * n).cumsum(3), n),
    "adaptive_max_pool1d": lambda x, n: F.adaptive_max_pool1d(SQUARE.sin(), n - 1),
    "adaptive_max_pool1d, where": lambda x, n: F.adaptive_max_pool1d(SQUARE.sin(), n, True),
    "adaptive_max_pool2d": lambda x, n: F.adaptive_max_pool2d(SQUARE[None].sin(), (n, n - 2)),
    "adaptive_max_pool2d, where": lambda x, n: F.adaptive_max_pool2d(SQUARE[None] % 3, n, True),
    "avg_pool1d": lambda x, n: F.avg_pool1d(SQUARE[None].sin(), n, 2, n // 2),
    "avg_pool2d": lambda x, n: F.avg_pool2d(SQUARE.repeat(1, 2, 1)[None].sin(), (n, 3)),
    "max_pool1d by steps": lambda x, n: F.max_pool1d(SQUARE[None].sin(), 11, n, n // 3),
    "max_pool2d": lambda x, n: F.max_pool2d(SQUARE[None, None].sin(), n, 1),
    "max_pool2d apart": lambda x, n: F.max_pool2d(SQUARE[None, None].sin(), 2, dilation=n),
    "max_pool3d": lambda x, n: F.max_pool3d(SQUARE.sin().repeat(25, 1, 1)[None], (n, 2, 3)),
    "group_norm": lambda x, n: F.group_norm(SQUARE.sin().repeat(1, 9)[:, : 2 * n].contiguous(), n),
    "group_norm by weights": lambda x, n: F.group_norm(
        SQUARE.sin()[:4, :15].reshape(2, 30)[:, : 2 * n, None].contiguous(),
        n,
        x.repeat(2),
        x.repeat(2),
    ),
    "kron": lambda x, n: torch.kron(x, SQUARE[:2, :n]),
    "cov": lambda x, n: torch.stack([x, x.sin()]).cov(),
    "corrcoef": lambda x, n: torch.stack([x, x.sin()]).corrcoef(),
    "vander of its own": lambda x, n: torch.vander(x),
    "istft": lambda x, n: istft(x.repeat(8), n),
    "istft, some of it": lambda x, n: istft(x.repeat(8), n, 7 * n - 3, 6),
    "lp_pool1d": lambda x, n: F.lp_pool1d(SQUARE.sin()[None], 2, n - 4),
    "lp_pool2d": lambda x, n: F.lp_pool2d(SQUARE.sin()[None], 2, (n - 4, 2), n - 3),
    "adaptive_max_pool3d": lambda x, n: F.adaptive_max_pool3d(
        SQUARE.sin().reshape(1, 4, 10, 10), (2, n - 3, 3), True
    ),
    "local_response_norm": lambda x, n: F.local_response_norm(SQUARE.sin()[None], n),
    "take_along_dim": lambda x, n: x.expand(3, n).take_along_dim(x.argsort()[None], 1),
    "combinations": lambda x, n: torch.combinations(x),
    "combinations of three": lambda x, n: torch.combinations(x, 3, True),
    "gradient": lambda x, n: torch.gradient(x.outer(x), spacing=2.0),
    "gradient of second order": lambda x, n: torch.gradient(x.outer(x), edge_order=2),
    **{
        f"gradient by coordinates, order {order}": lambda x, n, order=order: torch.gradient(
            x.outer(x), spacing=(x.cumsum(0), torch.arange(n) ** 1.5), edge_order=order
        )
        for order in (1, 2)
    },
    "gradient of two steps": lambda x, n: torch.gradient(x.outer(x), spacing=(0.5, 2)),
    "multi_dot of three": lambda x, n: torch.linalg.multi_dot(
        [x.outer(x), x.outer(x[:3]), SQUARE[:3]]
    ),
    "multi_dot of vectors": lambda x, n: torch.linalg.multi_dot(
        [x, x.outer(x[:3]).sin(), x[:3].outer(x).cos(), x.outer(x), x]
    ),
    "chain_matmul": lambda x, n: torch.chain_matmul(SQUARE[:5, :3], x[:3].outer(x), x.outer(x[:4])),
    "bincount": lambda x, n: torch.bincount((x * 3).abs().long(), minlength=n),
    "bincount, weighed": lambda x, n: torch.bincount((x * 3).abs().long(), x, n),
    **{
        f"cov by {by}": lambda x, n, by=by: torch.cov(
            x.outer(x[:3]).sin().mT,
            fweights=(x * 3).abs().long() if "f" in by else None,
            aweights=x.abs() if "a" in by else None,
            correction=len(by) % 2,
        )
        for by in ("f", "a", "fa", "fa.")
    },
    "max_pool1d of any length": lambda x, n: F.max_pool1d(x.outer(x).sin(), 3, 2, 1, 1, True),
    "max_pool1d of batches": lambda x, n: F.max_pool1d(x.outer(x).sin().expand(2, n, n) + 1, 4),
    "half as large": lambda x, n: F.interpolate(x.expand(1, 2, n), scale_factor=0.5),
    "larger by a half": lambda x, n: F.interpolate(
        x.outer(x)[None, None], scale_factor=1.5, mode="bilinear"
    ),
    "larger by a half, recomputed": lambda x, n: F.interpolate(
        x.outer(x)[None, None], scale_factor=1.5, mode="bicubic", recompute_scale_factor=True
    ),
    "likelihood of a normal": lambda x, n: F.gaussian_nll_loss(x, x + 1, x.abs()),
    "margins of labels": lambda x, n: F.multilabel_margin_loss(
        x[:, None].expand(n, 4).sin(), torch.tensor([[1, 2, -1, 0]]).expand(n, 4)
    ),
}


@pytest.mark.parametrize("correction", [1, -1])
@pytest.mark.parametrize("weights", [[-1.0, 2, 3, 1], [0.0, 0, 0, 0], [1.0, 0, 0, 0]])
def test_weights_that_covariance_refuses_or_warns_of_are_eagers(
    weights: list[float], correction: int
) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return torch.cov(x, correction=correction, aweights=w)

    compiled = flambeau.compile(fn, backend="aot_eager")
    x = torch.randn(2, 4)
    good = torch.arange(1.0, 5.0)
    torch.testing.assert_close(compiled(x, good), fn(x, good))
    said = []
    for each in (compiled, fn):
        try:
            with warnings.catch_warnings(record=True):
                said.append(str(each(x, torch.tensor(weights))))
        except RuntimeError as error:
            said.append(str(error))
    assert said[0] == said[1] and flambeau.report(compiled).graphs == 1


def test_counts_of_nothing_are_integers_whatever_their_weights() -> None:
    def fn(x: Tensor, sized: Tensor) -> Tensor:
        return torch.bincount(x.long(), x, sized.shape[0])

    compiled = flambeau.compile(fn, backend="aot_eager")
    for count in (4, 5, 6):
        sized = torch.ones(count)
        flambeau.maybe_mark_dynamic(sized, 0)
        nothing = torch.ones(0)
        torch.testing.assert_close(compiled(nothing, sized), fn(nothing, sized))


def istft(x: Tensor, n: int, length: int | None = None, wide: int = 8) -> Tensor:
    window = torch.hann_window(wide)
    found = torch.stft(x, 8, 2, wide, window, return_complex=True)
    return torch.istft(found, 8, 2, wide, window, length=x.shape[-1] if length is None else length)


def judged(case: Case, backend: str, by_shape: bool) -> None:
    def of_shape(x: Tensor) -> Any:
        return case(x, x.shape[0])

    def of_number(x: Tensor, n: int) -> Any:
        return case(x, n)

    fn: Any = of_shape if by_shape else of_number
    compiled = flambeau.compile(fn, backend=backend)
    for n in SIZES:
        x = torch.linspace(-1, 2, n)
        args = (x,) if by_shape else (x, n)
        wanted, found = (pytree.tree_leaves(f(*args)) for f in (fn, compiled))
        for one, other in zip(wanted, found, strict=True):
            assert one.stride() == other.stride()
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)
    report = flambeau.report(compiled)
    assert (report.graphs, report.breaks, report.fallbacks) == (2, (), ())


@pytest.mark.sweep(6)
@pytest.mark.parametrize("by_shape", [False, True], ids=["number", "shape"])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", MADE | SHAPED)
def test_a_size_as_an_argument_stays_open(name: str, backend: str, by_shape: bool) -> None:
    judged((MADE | SHAPED)[name], backend, by_shape)


@pytest.mark.parametrize("name", ["margins of labels", "larger by a half", "istft, some of it"])
def test_operators_of_open_sizes_compute_as_eager_without_decompositions(name: str) -> None:
    judged(SHAPED[name], "aot_eager", True)


@pytest.mark.parametrize(
    "name", ["stft", "unfold", "global max_pool2d", "diagonal", "adaptive_max_pool1d"]
)
def test_gradients_flow_through_open_windows(name: str) -> None:
    def loss(x: Tensor) -> Tensor:
        scaled = x[0] * SHAPED["stft"](x, x.shape[0]).abs().sum() if name == "stft" else x.sum()
        views = {
            "unfold": lambda n: x.repeat(4).unfold(0, n, 2),
            "global max_pool2d": lambda n: F.max_pool2d(x.expand(1, 3, 4, n), (4, n)),
            "diagonal": lambda n: x.outer(x).diagonal(n - 4),
            "adaptive_max_pool1d": lambda n: F.adaptive_max_pool1d(x.outer(x).sin(), n - 2),
        }
        return (views[name](x.shape[0]).pow(2).sum() if name in views else 0) + scaled

    compiled = flambeau.compile(loss)
    for n in SIZES:
        x = torch.linspace(-1, 2, n).requires_grad_()
        (wanted,), (found,) = (torch.autograd.grad(f(x), x) for f in (loss, compiled))
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_windows_of_pictures_are_not_windows_of_a_dimension() -> None:
    """`F.unfold` and a tensor's `unfold` share their name, and not the order of arguments."""

    def windows(x: Tensor, n: int) -> Tensor:
        return F.unfold(x, 2, n, 1)

    compiled = flambeau.compile(windows, backend="eager")
    x = torch.randn(1, 4, 6, 6)
    for n in (1, 2, 3, 4):
        torch.testing.assert_close(compiled(x, n), windows(x, n))


NUMBERS: dict[str, Callable[[Tensor, int], Any]] = {
    "no results": lambda x, n: F.adaptive_max_pool1d(x, n - 2, True),
    "a pool in C": lambda x, n: torch.ops.aten.adaptive_max_pool2d(x[None], (n, 2)),
    "a pool in C of rows": lambda x, n: torch.ops.aten.adaptive_max_pool1d(x, n),
    "the last that is no number": lambda x, n: F.adaptive_max_pool1d(x.log(), n, True),
    "whole numbers": lambda x, n: F.adaptive_max_pool1d(x.int(), n),
    "padding": lambda x, n: F.unfold(x[None, None], 2, padding=n - 3),
    "too much padding": lambda x, n: F.max_pool1d(x, n, 1, n // 2 + 1),
    "a window past the end": lambda x, n: F.avg_pool1d(x, n + 4),
    "rounded up": lambda x, n: F.avg_pool1d(x, n, ceil_mode=True),
    "without its padding": lambda x, n: F.avg_pool1d(x, n, 1, 1, count_include_pad=False),
    "the largest of no numbers": lambda x, n: F.max_pool1d(x.log(), n),
    "a pool in C of windows": lambda x, n: torch.ops.aten.max_pool2d(x[None], [n - 1, 2]),
    "whole numbers in windows": lambda x, n: F.max_pool1d((x * 9).long(), n),
    "groups that do not divide": lambda x, n: F.group_norm(x[:, :4].reshape(1, 12), n),
    "a correction of another class": lambda x, n: torch.cov(x[:, :n], correction=1.5),
    "a correction by its place": lambda x, n: torch.cov(x[:, :n], 0),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_open_numbers_at_their_ends_are_answered_as_eager(name: str) -> None:
    def program(x: Tensor, n: int) -> Any:
        try:
            return NUMBERS[name](x, n)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            return type(error)

    compiled = flambeau.compile(program, backend="eager")
    x = torch.linspace(-4, 4, 27).sin().reshape(3, 9)
    for n in (3, 4, 5, 2, 6):
        wanted, found = (pytree.tree_leaves(run(x, n)) for run in (program, compiled))
        for one, other in zip(wanted, found, strict=True):
            if isinstance(one, Tensor):
                torch.testing.assert_close(other, one, equal_nan=True)
            else:
                assert other is one


def test_indices_that_eager_refuses_are_refused() -> None:
    def fn(x: Tensor) -> Tensor:
        return x.take_along_dim(x.argsort().int(), 0)

    compiled = flambeau.compile(fn, backend="eager")
    for n in SIZES[:3]:
        for each in (fn, compiled):
            with pytest.raises(RuntimeError, match="should be Long"):
                each(torch.linspace(-1, 2, n))
