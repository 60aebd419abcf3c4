"""Sorting, searching, scans, reductions, sequences: through prims, against eager."""

import pytest
import torch
from flambeau_prims.conformance import Decomposing
from flambeau_prims.sweep.measure import compare

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
SPECIAL = torch.tensor([[2.0, NAN, -INF, 0.0], [-0.0, INF, 3.0, NAN], [NAN, NAN, NAN, NAN]])
SIGNAL = torch.signal.windows

# of a tensor [4, 6] without ties
CALLS = {
    "sort": lambda x: x.sort(0, descending=True),
    "sort_0d": lambda x: x[0, 0].sort(),
    "topk": lambda x: x.topk(2, 0, largest=False),
    "topk_0d": lambda x: x[0, 0].topk(1),
    "kthvalue": lambda x: x.kthvalue(3, 1, keepdim=True),
    "median": lambda x: x.median(),
    "median_dim": lambda x: x.median(0, keepdim=True),
    "nanmedian": lambda x: x.nanmedian(1),
    "mode": lambda x: (x // 1 if x.is_floating_point() else x // 8).mode(1),
    "mode_0d": lambda x: x[0, 0].mode(),
    "argsort": lambda x: x.argsort(1, descending=True),
    "searchsorted": lambda x: torch.searchsorted(x.sort(1).values, x),
    "searchsorted_sorter": lambda x: torch.searchsorted(x, x, sorter=x.argsort(1), side="right"),
    "searchsorted_number": lambda x: torch.searchsorted(x[0].sort().values, 3),
    "bucketize": lambda x: torch.bucketize(x, x[0].sort().values, right=True, out_int32=True),
    "isin_few": lambda x: torch.isin(x, x[0, :3]),
    "isin_many": lambda x: torch.isin(x, torch.cat([x[:2].flatten()] * 4), invert=True),
    "isin_number": lambda x: torch.isin(x, 3),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(0),
    "cummax_0d": lambda x: x[0, 0].cummax(0),
    "cumprod": lambda x: x[:, :3].cumprod(1),
    "cumsum_int": lambda x: x.cumsum(1, dtype=torch.int64),
    "aminmax": lambda x: x.aminmax(dim=1, keepdim=True),
    "aminmax_all": lambda x: x.aminmax(),
    "max_0d": lambda x: x[0, 0].max(0),
    "argmax_0d": lambda x: x[0, 0].argmax(),
    "count_nonzero": lambda x: (x * (x > x.float().mean())).count_nonzero(1),
    "trace": lambda x: x.trace(),
    "nansum": lambda x: x.nansum(1),
    "unique": lambda x: (x // 8).unique(return_inverse=True, return_counts=True),
    "unique_plain": lambda x: (x // 8).unique(),
    "unique_dim": lambda x: torch.cat([x, x[:1]]).unique(dim=0, return_inverse=True),
    "unique_consecutive": lambda x: torch.unique_consecutive(x // 8, return_counts=True),
    "unique_consecutive_dim": lambda x: torch.unique_consecutive(x[[0, 0, 1]], dim=0),
    "repeat_interleave": lambda x: x.repeat_interleave(torch.tensor([2, 0, 1, 3]), 0),
    "repeat_interleave_sized": lambda x: x.repeat_interleave(
        torch.tensor([2, 0, 1, 3]), 0, output_size=6
    ),
    "diff": lambda x: x.diff(dim=1),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "unfold_0d": lambda x: x[0, 0].unfold(0, 1, 1),
    "diagonal": lambda x: x.diagonal(-1, 1, 0),
    "diag_embed": lambda x: x.diag_embed(1, 0, 2),
    "rot90": lambda x: [x.rot90(k) for k in range(-1, 4)],
    "block_diag": lambda x: torch.block_diag(x, x[0], x[0, 0]),
    "chunk_cat": lambda x: aten._chunk_cat([x, x[:3]], 0, 2),
    "narrow_copy": lambda x: x.narrow_copy(1, -3, 2),
    "view_dtype": lambda x: x.view(torch.uint8),
    "as_strided": lambda x: x[1:].as_strided((2, 2), (3, 1)),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_like_eager(name):
    compared = 0
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        torch.manual_seed(0)
        x = torch.randperm(24).reshape(4, 6).to(dtype)
        for operand in (x, x.t().contiguous().t()):
            try:
                expected = CALLS[name](operand)
            except RuntimeError:
                continue  # eager has no kernel for the dtype, or no view of the layout
            with Decomposing() as seen:
                got = CALLS[name](operand)
            assert seen.decomposed
            wrong = compare(got, expected, None).wrong
            assert wrong is None, (dtype, wrong)
            compared += 1
    assert compared >= 4


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sort(dim=1, stable=True),
        lambda x: x.median(1),
        lambda x: x.nanmedian(1),
        lambda x: x[:2].kthvalue(2, 1).values,
        lambda x: x.cummax(1),
        lambda x: x.cummin(0),
        lambda x: x[:2].logcumsumexp(1),
        lambda x: x.aminmax(dim=1),
        lambda x: x.argmax(1),
        lambda x: x.max(1),
        lambda x: x.nansum(1),
        lambda x: torch.searchsorted(torch.tensor([-INF, 0.0, 2.0, INF, NAN]), x),
        lambda x: torch.isin(x, x),
        lambda x: x[:2].cumsum(1),
    ],
)
def test_special_values(call):
    expected = call(SPECIAL)
    with Decomposing() as seen:
        got = call(SPECIAL)
    assert seen.decomposed and compare(got, expected, None).wrong is None


def test_counts():
    x = torch.tensor([0, 3, 3, 1, 9])
    y = torch.tensor([0.0, 1.0, NAN, 4.0, 2.5, -1.0, 4.0])
    calls = [
        lambda: x.bincount(),
        lambda: x.bincount(torch.arange(5.0), minlength=12),
        lambda: x.bincount(torch.arange(5)),
        lambda: torch.histc(y, 4, 0, 4),
        lambda: torch.histc(y[:2].repeat(3), 3),
        lambda: torch.histc(y[:1], 3),
        lambda: torch.histc(y[:0], 3),
        lambda: torch.histc(torch.rand(50, generator=torch.Generator().manual_seed(0)), 7),
    ]
    for call in calls:
        expected = call()
        with Decomposing() as seen:
            got = call()
        assert seen.decomposed and compare(got, expected, None).wrong is None
    with pytest.raises(ValueError, match="range"), Decomposing():
        torch.histc(y, 4)


SEQUENCES = {
    "linspace": lambda d: torch.linspace(-1, 3.5, 9, dtype=d),
    "linspace_one": lambda d: torch.linspace(2, 3, 1, dtype=d),
    "linspace_none": lambda d: torch.linspace(2, 3, 0, dtype=d),
    "linspace_tensors": lambda d: torch.linspace(torch.tensor(1.5), torch.tensor(9), 6, dtype=d),
    "logspace": lambda d: torch.logspace(-1, 2, 7, base=3.0, dtype=d),
    "arange": lambda d: torch.arange(9, -3, -2, dtype=d),
    "tril_indices": lambda d: torch.tril_indices(4, 3, 1),
    "triu_indices": lambda d: torch.triu_indices(3, 5, -1),
    "triu_indices_none": lambda d: torch.triu_indices(3, 3, 9),
    "eye": lambda d: torch.eye(3, 5, dtype=d),
}
REAL_SEQUENCES = {
    "fftfreq": lambda d: torch.fft.fftfreq(7, 0.5, dtype=d),
    "rfftfreq": lambda d: torch.fft.rfftfreq(8, 0.5, dtype=d),
    "hann": lambda d: torch.hann_window(9, dtype=d),
    "hann_symmetric": lambda d: torch.hann_window(9, periodic=False, dtype=d),
    "hamming": lambda d: torch.hamming_window(8, True, 0.5, 0.4, dtype=d),
    "blackman": lambda d: torch.blackman_window(8, dtype=d),
    "bartlett": lambda d: torch.bartlett_window(9, False, dtype=d),
    "kaiser": lambda d: torch.kaiser_window(9, True, 5.0, dtype=d),
    "window_of_one": lambda d: torch.hann_window(1, dtype=d),
    "gaussian": lambda d: SIGNAL.gaussian(7, std=0.9, dtype=d),
}


@pytest.mark.parametrize("name", sorted(SEQUENCES))
def test_sequences(name):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        expected = SEQUENCES[name](dtype)
        with Decomposing() as seen:
            got = SEQUENCES[name](dtype)
        assert seen.decomposed and compare(got, expected, None).wrong is None, (got, expected)


@pytest.mark.parametrize("name", sorted(REAL_SEQUENCES))
def test_windows_and_frequencies(name):
    for dtype in (torch.float32, torch.float64):
        expected = REAL_SEQUENCES[name](dtype)
        with Decomposing() as seen:
            got = REAL_SEQUENCES[name](dtype)
        assert seen.decomposed
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=2e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_products_with_additions_round_once(dtype):
    torch.manual_seed(0)
    x, a, b = (torch.randn(17, 17, dtype=dtype) * 3 for _ in range(3))
    batch = a.expand(2, 17, 17)
    calls = [
        lambda: torch.addmm(x, a, b),
        lambda: torch.addmm(x[0], a, b, beta=0.3, alpha=1.7),
        lambda: torch.baddbmm(x[None], batch, batch, beta=0.5),
        lambda: torch.nn.functional.linear(a, b, x[0]),
        lambda: torch.addmm(x * NAN, a, b, beta=0),
    ]
    for call in calls:
        expected = call()
        with Decomposing():
            got = call()
        assert torch.equal(got, expected)


def test_random_integers_by_counting():
    from flambeau_prims import decompositions

    torch.manual_seed(0)
    with Decomposing(decompositions(random="philox")) as seen:
        whole = torch.randint(-3, 5, (4000,))
        order = torch.randperm(500)
        like = torch.randint_like(torch.zeros(2, 3, dtype=torch.float32).t(), 7)
        drawn = torch.empty(2000).random_(10)
        bits = torch.empty(2000, dtype=torch.int64).random_()
    assert {n for n in seen.decomposed if "rand" in n} >= {"aten.randperm.default"}
    assert whole.min() == -3 and whole.max() == 4 and abs(whole.float().mean() - 0.5) < 0.2
    assert order.sort().values.tolist() == list(range(500)) and order.tolist() != list(range(500))
    assert like.stride() == (1, 3) and like.dtype == torch.float32 and like.max() < 7
    assert set(drawn.tolist()) == set(range(10))
    assert bits.min() >= 0 and bits.max() > 2**60


@pytest.mark.parametrize("shape", [(), (1,), (1, 3), (3, 1)])
def test_a_sum_begins_with_zero(shape):
    x = torch.full(shape, -0.0)
    with Decomposing():
        sums = [x.sum(), x.mean(), x.nansum(), *([x.sum(-1), x.cumsum(-1)] if shape else [])]
    assert not any(each.signbit().any() for each in sums)
