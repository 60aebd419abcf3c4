"""Tensors: writes, views, indices, results in given tensors, numbers of all kinds."""

import re

import flambeau_capture as capture
import pytest
import torch
import torch.nn.functional as F
from flambeau_capture.api import compiler_of


def x(*shape, grad=False):
    return torch.randn(*(shape or (3, 4)), requires_grad=grad)


def test_writes_through_views(agree):
    def run(a):
        b = a.clone()
        b[0].add_(1)
        b.t()[1].mul_(2)
        b[:, ::2] = 3
        b[b > 1] = 0
        b[[0, 2]] += 1
        flat = b.view(-1)
        flat[3:5] = 7
        b.diagonal().fill_(1)
        a[1] = b[0]
        return b, flat

    agree(run, x())


def test_results_in_given_tensors(agree):
    def run(a, out):
        torch.add(a, 1, out=out)
        values, places = torch.empty(3), torch.empty(3, dtype=torch.long)
        torch.max(a, 1, out=(values, places))
        return out * 2, values, places

    agree(run, x(), torch.empty(3, 4), backward=False)
    agree(lambda a, out: torch.add(a, 1, out=out) * 2, x(), torch.empty(0), graphs=None)


def test_indices_of_all_kinds(agree):
    def run(a, i, m):
        return (
            a[i], a[:, i], a[..., None, 0], a[None], a[[0, 1], [1, 2]], a[i, None], a[0, ...],
            a[-1], a[1:, ::2], a[slice(0, 2)], a[(0, 1)], a[i[:, None], i], a[i, 1:],
            torch.where(m[:, None], a, 0), a.gather(1, i.expand(3, 2)), a.index_select(0, i),
            a.take(i), a.masked_fill(m[:, None], 2),
        )  # fmt: skip

    agree(run, x(grad=True), torch.tensor([0, 2]), torch.tensor([True, False, True]))


def test_writes_at_indices(agree):
    def run(a, i, m):
        b = a.clone()
        b[i] = 0
        b[i, 1] += 5
        b[m] = -1
        b[..., -1] = a[..., 0]
        b.index_add_(0, i, a[:2])
        b.scatter_(1, i.expand(3, 2), 9.0)
        return b.index_put((i, i), torch.ones(2))

    agree(run, x(), torch.tensor([0, 2]), torch.tensor([True, False, True]))


def test_masks_break_with_the_right_rest(agree):
    agree(lambda a, m: a[m].sum() + a.sum(), x(), torch.tensor([True, False, True]), graphs=None)


def test_shapes_and_queries(agree):
    def run(a):
        return (
            a.T, a.mT, a.shape, a.dtype, a.device, a.is_leaf, a.requires_grad, a.grad_fn,
            a.data * 2, a.grad, a.itemsize, a.stride(), a.numel(),
            a.is_contiguous(), a.t().is_contiguous(),
            a.size(-1), len(a), a.ndim, a.unflatten(1, (2, 2)), a.unfold(1, 2, 1),
            a.as_strided((2, 2), (1, 2)), a.movedim(0, 1), torch.broadcast_tensors(a, a[:1]),
        )  # fmt: skip

    agree(run, x(), backward=False)


def test_new_tensors(agree):
    def run(a):
        return (
            torch.zeros(3), torch.arange(4), torch.full((2,), 1.5), torch.tensor([1.0, 2.0]),
            torch.ones_like(a), a.new_zeros(2), torch.eye(3), torch.linspace(0, 1, 5),
            torch.rand(3), torch.randn_like(a), torch.randperm(4), torch.empty(2).fill_(1),
            torch.tensor([a.shape[0], 2]), torch.as_tensor([1, 2.0]), torch.tensor(a.shape),
        )  # fmt: skip

    agree(run, x(), backward=False)


def test_named_results_and_iteration(agree):
    def run(a):
        top = a.topk(2)
        values, places = a.sort()
        first, _, third = a
        rows = [row.sum() for row in a]
        return top.values, values, places, a.max(1).values, torch.svd(a).S, first * third, rows

    agree(run, x(grad=True))


def test_complex_and_fourier(agree):
    def run(a):
        c = torch.complex(a, a)
        window = torch.hann_window(4)
        return (
            c.real, c.imag, c.abs(), torch.view_as_real(c * c.conj()), c.angle(), c * (1 + 2j),
            torch.fft.irfft(torch.fft.rfft(a) * 2), torch.fft.fft2(a).abs(), torch.fft.fftshift(a),
            torch.stft(a.reshape(-1), 4, window=window, return_complex=True).abs(),
        )  # fmt: skip

    agree(run, x(grad=True))


def test_conversions(agree):
    def run(a):
        return (
            a.to(torch.float64), a.double(), a.type(torch.int32), a.half().float(), a.cpu(),
            a.to(a.double()), a.to(dtype=torch.bfloat16, copy=True), a.type_as(a.int()), a.bool(),
        )  # fmt: skip

    agree(run, x(), backward=False)


def test_distributions_without_checks(agree):
    def run(mean, scale):
        normal = torch.distributions.Normal(mean, scale, validate_args=False)
        one = torch.distributions.Normal(0.0, 1.0, validate_args=False)
        chosen = torch.distributions.Categorical(logits=mean, validate_args=False)
        return (
            normal.log_prob(mean + 1), normal.entropy(), normal.rsample(), chosen.sample(),
            chosen.entropy(), torch.distributions.kl_divergence(normal, one),
        )  # fmt: skip

    agree(run, x(grad=True), x().abs(), graphs=None)


def test_distributions_with_their_checks(agree):
    agree(lambda m: torch.distributions.Normal(m, 1.0).log_prob(m), x(), graphs=None)
    agree(lambda m: torch.distributions.Normal(m, m - 10).log_prob(m) + 1, x(), graphs=None)


def test_backward_and_grad_inside(agree):
    def run(a, w):
        loss = (a * w).sum()
        loss.backward()
        return w.grad * 2

    agree(run, x(), x(grad=True), graphs=None)

    def derivative(a, w):
        (found,) = torch.autograd.grad((a * w).sin().sum(), w)
        return found * 2

    agree(derivative, x(), x(grad=True), graphs=None)


def test_custom_operators(agree):
    agree(lambda a: torch.ops.flambeau_capture_tests.twice(a, 3) + 1, x())


@torch.library.custom_op("flambeau_capture_tests::twice", mutates_args=())
def twice(value: torch.Tensor, k: int) -> torch.Tensor:
    return value * 2 * k


@twice.register_fake
def _(value, k):
    return torch.empty_like(value)


@pytest.mark.parametrize("kind", [int, float, bool])
def test_a_write_that_answers_with_a_number_is_done(kind, capture):
    name = f"flambeau_capture_tests::writes_{kind.__name__}"

    def kernel(x: torch.Tensor):
        x.add_(1)
        return kind(1)

    kernel.__annotations__["return"] = kind
    writes = torch.library.custom_op(name, kernel, mutates_args=("x",))
    writes.register_fake(lambda x: kind(1))

    def fn(x):
        y = x * 2
        return y, writes(y), y + 1

    x = torch.ones(3)
    assert str(capture(fn)(x)) == str(fn(x))


class Logged(torch.Tensor):
    """A subclass that sees every function."""

    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses_do_what_they_do_in_eager(capture):
    def run(a):
        return (a * 2).sum() + 1

    given = x().as_subclass(Logged)
    Logged.seen.clear()
    expected, seen = run(given), list(Logged.seen)
    Logged.seen.clear()
    found = capture(run)(given)
    ours = list(Logged.seen)
    assert type(found) is Logged and torch.equal(found, expected) and ours == seen


class Duck:
    """No tensor, but torch functions take it."""

    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [a.tensor if isinstance(a, Duck) else a for a in args]
        return func(*plain, **(kwargs or {})) * 10


def test_objects_with_torch_function(agree):
    agree(lambda a: torch.add(Duck(a), 1) + F.relu(a), x(), graphs=None)


def test_attributes_of_tensors(agree):
    def run(a):
        b = a * 2
        b.tag = 3
        return b + b.tag

    agree(run, x(), graphs=None)


BEYOND = {
    "1:": lambda t: t[1:], "-2:": lambda t: t[-2:], "0": lambda t: t[0],
    "..., 1:": lambda t: t[..., 1:], ":, 1:": lambda t: t[:, 1:], "None, 1:": lambda t: t[None, 1:],
    "1:, ...": lambda t: t[1:, ...], "0, -1:": lambda t: t[0, -1:], "True": lambda t: t[True],
    ":, None, 1:": lambda t: t[:, None, 1:], ":, :, -1:": lambda t: t[:, :, -1:],
    "..., None, :-1": lambda t: t[..., None, :-1],
}  # fmt: skip


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("key", BEYOND)
def test_indices_beyond_the_rank_raise_as_in_eager(key, shape):
    def run(a):
        return BEYOND[key](a + 1)

    given, compiled = torch.zeros(shape), capture.compile(run, backend="eager")
    try:
        wanted = run(given)
    except IndexError as error:
        with pytest.raises(IndexError, match=re.escape(str(error).splitlines()[0])):
            compiled(given)
    else:
        assert torch.equal(compiled(given), wanted)
    assert not compiler_of(compiled).records.faults
