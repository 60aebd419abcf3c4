"""Programs that compute with sizes and numbers, against eager at many of them, with few graphs."""

import math

import pytest
import torch


def agree(fn, plain, *args):
    ours, theirs = fn(*args), plain(*args)
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
    for one, other in pairs:
        assert type(one) is type(other)
        if isinstance(other, torch.Tensor):
            assert one.dtype == other.dtype and one.shape == other.shape
            assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
        else:
            assert one == other or (one != one and other != other)


def lengths(x):
    return x * len(x), len(x), torch.arange(len(x)), x.numel() // 2, x.dim()


def scaled_dot(x):
    return (x @ x.t()) / math.sqrt(x.shape[0]), x * x.shape[0] ** -0.5, x.shape[0] ** 0.5


def fractions(x):
    n = x.shape[0]
    k = int(n * 0.5)
    return x[:k], x[k:].sum(), torch.zeros(math.ceil(n / 3), 2), math.floor(n * 0.75), k


def reshaped(x):
    n = x.shape[0]
    return x.reshape(-1), x.view(n, -1, 1), x.reshape(n * 3), x.unsqueeze(0).expand(2, n, 3)


def compared(x):
    n = x.shape[0]
    m = max(n // 2, 3)
    return x[: min(n, 4)].sum(), m, n % 4, -n, abs(n - 6), divmod(n, 3)


def chained(x):
    n = x.shape[0]
    if 3 <= n <= 8 and n % 2 == 0:
        return x * n
    return x - (n if n > 8 else -n)


def padded(x):
    n = x.shape[0]
    missing = (-n) % 4
    return torch.nn.functional.pad(x, (0, 0, 0, missing)).view(-1, 4, 3), missing


def positions(x):
    n = x.shape[0]
    rows = torch.arange(n)[:, None] <= torch.arange(n)[None, :]
    return x * rows.sum(1)[:, None], torch.ones(n, n).tril().sum(), torch.full((n,), n / 2)


def logarithms(x):
    n = x.shape[0]
    return x * math.log(n + 1), math.exp(-n / 10), math.cos(n) + math.tanh(n * 0.1)


def split_and_joined(x):
    n = x.shape[0]
    one, other = x[: n // 2], x[n // 2 :]
    return torch.cat([other, one]), one.shape[0] + other.shape[0] == n, torch.stack([x, x]).shape[1]


def strings(x):
    return x + 1, f"{x.shape[0]} rows", {x.shape[0]: 1}


def unrolled(x):
    total = x[0]
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total, sum(range(x.shape[0])), list(range(x.shape[0]))[-1:]


def interpolated(x):
    image = x.reshape(1, 1, -1, 3)
    return torch.nn.functional.interpolate(image, scale_factor=2.0), image.shape[2]


def picked(x):
    n = x.shape[0]
    return x[n // 2] + x[n - 1, 0:3], x[:, 1][n >> 1], x[0, (n & 1)], round(n / 3), n << 2


def averaged(x):
    weights = torch.arange(x.shape[0]) / x.shape[0]
    return (x * weights[:, None]).sum(0) / weights.shape[0], x.mean() * float(x.shape[0])


#: how many graphs for sizes from 2 up, where the first is made with an open size
OPEN = [
    (lengths, 1), (scaled_dot, 1), (fractions, 1), (reshaped, 1), (compared, 5), (chained, 4),
    (padded, 2), (positions, 1), (logarithms, 1), (split_and_joined, 1), (averaged, 1), (picked, 1),
    (interpolated, 1),
]  # fmt: skip
FIXED = [(strings, None), (unrolled, None)]
SIZES = (5, 2, 3, 4, 6, 7, 8, 9, 12, 16, 31, 64)


@pytest.mark.parametrize(
    ("program", "graphs"), OPEN + FIXED, ids=lambda p: getattr(p, "__name__", "")
)
def test_of_sizes(capture, backend, program, graphs):
    fn = capture(program, dynamic=True, cache_size_limit=64)
    for size in SIZES:
        agree(fn, program, torch.randn(size, 3))
    made = len(backend)
    assert made <= (graphs or len(SIZES))
    for size in (10, 11, 20, 40, 41):  # no other sizes need a graph of their own
        agree(fn, program, torch.randn(size, 3))
    if graphs is not None:
        assert len(backend) == made
    for size in (1, 0):
        if size or program not in (reshaped, interpolated, padded, unrolled, logarithms):
            with_size = torch.randn(size, 3)
            try:
                program(with_size)
            except (RuntimeError, ZeroDivisionError, IndexError, ValueError) as error:
                with pytest.raises(type(error)):
                    fn(with_size)
            else:
                agree(fn, program, with_size)


def rates(x, a, b):
    warm = min(1.0, a / 10)
    cosine = 0.5 * (1 + math.cos(math.pi * b))
    return x * warm * cosine, x * (a / 4) ** 1.5, x + int(a * 4), torch.clamp(x, -a, a), a // 0.3


def blended(x, a, b):
    return torch.lerp(x, x * 2, b), x.mul(b).add(x, alpha=a), torch.where(x > b, x, a)


def branched(x, a, b):
    if a > 2.0 and b <= 0.5:
        return x * a
    return x * b if math.sqrt(a) < 1.5 else x - round(b, 2)


@pytest.mark.parametrize(("program", "graphs"), [(rates, 3), (blended, 3), (branched, 12)])
def test_of_floats(capture, backend, program, graphs):
    fn = capture(program, cache_size_limit=64)
    for a in (1.0, 1.5, 2.0, 2.5, 3.25, 9.0):
        for b in (0.1, 0.5, 0.75):
            agree(fn, program, torch.randn(4).abs(), a, b)
    assert len(backend) <= graphs


def test_what_python_would_raise_is_raised_where_it_is(capture):
    seen = []

    def rooted(x, n):
        seen.append(n)
        try:
            return x * math.sqrt(n)
        except ValueError:
            return x - 1

    fn = capture(rooted)
    for n in (4.0, 5.0, 9.0, -1.0, 2.0, -2.0):
        agree(fn, lambda x, n: x * math.sqrt(n) if n >= 0 else x - 1, torch.ones(2), n)
    assert seen == [4.0, 5.0, 9.0, -1.0, 2.0, -2.0]


def test_a_number_read_from_a_tensor_is_open_in_what_follows(capture, backend):
    def scaled(x, t):
        k = t.item()
        return x * k + (k if k > 2.5 else 0.0)

    fn = capture(scaled)
    for value in (1.0, 2.0, 0.5, 0.25, 7.0, 8.0, 9.0):
        agree(fn, scaled, torch.ones(3), torch.tensor(value))
    assert len(backend) <= 4


def test_an_integer_read_from_a_tensor_as_a_size(capture, backend):
    def cut(x, t):
        n = int(t)
        return x[:n].sum() + torch.zeros(n).sum(), n

    fn = capture(cut, cache_size_limit=64)
    for value in (3, 4, 5, 6, 1, 0, 2):
        agree(fn, cut, torch.ones(8), torch.tensor(value))
    assert len(backend) <= 7


def numbers_as_tensors(x):
    n, m = x.shape
    pairs = torch.tensor([[n, m], [n - 1, 7]]), torch.as_tensor([n / 2, 1.0], dtype=torch.float64)
    return torch.tensor(n), *pairs, torch.tensor(n * 0.5), torch.tensor([n], device="cpu")


def counted(x):
    return x + x.nbytes, x.shape.numel(), torch.sym_float(x.shape[0]), x.shape[:1].numel()


@pytest.mark.parametrize("fn", [numbers_as_tensors, counted])
def test_sizes_that_torchs_own_functions_would_fix(capture, backend, fn):
    compiled = capture(fn, dynamic=True)
    for n in (4, 7, 3, 9, 5):
        agree(compiled, fn, torch.ones(n, 3))
    assert len(backend) == 1


def test_lists_that_are_no_tensor_raise_as_in_eager(capture):
    compiled = capture(lambda x: torch.tensor([[x.shape[0]], [1, 2]]), dynamic=True)
    for n in (4, 7):
        with pytest.raises(ValueError, match="expected sequence of length"):
            compiled(torch.ones(n, 3))
