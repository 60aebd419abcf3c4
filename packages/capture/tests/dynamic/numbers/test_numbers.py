"""Numbers that vary become inputs of the graph; what Python decides on them stays guarded."""

import math

import pytest
import torch


def agree(fn, plain, *args):
    ours, theirs = fn(*args), plain(*args)
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
    for one, other in pairs:
        assert type(one) is type(other)
        if isinstance(other, torch.Tensor):
            assert one.dtype == other.dtype
            assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
        else:
            assert one == other


def test_a_float_argument(capture, backend):
    def step(x, grad, lr):
        return x - lr * 2 * grad, lr / 3

    fn = capture(step)
    for lr in (0.1, 0.2, 0.3, 0.05, 1e-30):
        agree(fn, step, torch.randn(3), torch.randn(3), lr)
    assert len(backend) == 2


def test_an_integer_attribute(capture, backend):
    class Counter:
        count = 0

    counter = Counter()

    def scaled(x):
        return x * counter.count + (counter.count + 3)

    fn = capture(scaled)
    for counter.count in (2, 5, 6, 7, 1, 0):
        agree(fn, scaled, torch.randn(3))
    assert len(backend) == 2


def test_an_attribute_of_a_module(capture, backend):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1.0

        def forward(self, x):
            return x * self.scale

    module = Scaled()
    fn = capture(module)
    for module.scale in (1.0, 1.5, 2.5, 3.5):
        agree(fn, module, torch.randn(3))
    assert len(backend) == 2


def test_branches_on_integers_are_guards_and_on_floats_constants(capture, backend):
    def branching(x, n, rate):
        if n > 4:
            x = x + n
        return x * 2 if rate > 0.5 else x * rate

    fn = capture(branching)
    for n, rate in ((1, 0.1), (2, 0.1), (3, 0.1), (5, 0.1), (6, 0.1), (7, 0.1)):
        agree(fn, branching, torch.randn(3), n, rate)
    assert len(backend) == 3
    for rate in (0.2, 0.9, 0.2, 0.9):
        agree(fn, branching, torch.randn(3), 3, rate)


def test_kinds_of_numbers_are_told_apart(capture):
    def added(x, n):
        return x + n

    fn = capture(added)
    for n in (2, 3, 4, 2.5, 3.5, True, False, 4, 2**40, -7):
        agree(fn, added, torch.randn(2, dtype=torch.float64), n)


def test_numbers_that_python_needs(capture):
    def sliced(x, n):
        return x[:n], "abc"[n], [1, 2, 3][n], float(n), str(n)

    fn = capture(sliced)
    for n in (0, 1, 2, 1):
        agree(fn, sliced, torch.randn(5), n)


def test_division_by_zero_is_the_programs(capture):
    def divided(x, a, b):
        return x * (a / b)

    fn = capture(divided)
    for b in (2.0, 4.0, 5.0):
        agree(fn, divided, torch.randn(2), 3.0, b)
    with pytest.raises(ZeroDivisionError):
        fn(torch.randn(2), 3.0, 0.0)


def test_false_keeps_numbers_constant(capture, backend):
    fn = capture(lambda x, n: x * n, dynamic=False)
    for n in (2, 3, 4):
        fn(torch.ones(2), n)
    assert len(backend) == 3


def test_an_open_integer_is_an_integer(capture, backend):
    """A graph made for integers runs for nothing else, though nothing was decided about them."""
    fn = capture(lambda x, n: x * n)
    x = torch.ones(2, dtype=torch.int64)
    for n in (2, 3, 4, -7, 2.5, 4, True, 2**31 + 1, 5):
        agree(fn, lambda x, n: x * n, x, n)
    kinds = [[type(given) for given in inputs] for inputs in backend.inputs]
    assert kinds[:2] == [[torch.Tensor], [int, torch.Tensor]]
    assert len(backend) == 5  # 2; any integer; any float; True; what is too large to be open


def test_decisions_on_floats_are_guards(capture, backend):
    def stepped(x, rate, k):
        if rate > 0.5:
            x = x * rate
        if x.shape[0] * rate < 3.5 or not rate:
            x = x + 1
        return x * (k / (rate + 1)), rate * 2 >= k, 1.5 * k == 3

    fn = capture(stepped, dynamic=True, cache_size_limit=64)
    agree(fn, stepped, torch.randn(4), 0.1, 1)
    held = (0.0, -0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 1.5, 2.5)
    for rates, most in ((held, 13), ((1e300, math.inf, math.nan), 19)):  # constants: no float32
        for rate in rates:
            for k in (1, 2, 3, 5):
                for size in (4, 7):
                    agree(fn, stepped, torch.randn(size), rate, k)
        assert len(backend) <= most  # of 88 different calls, and 24
    before = len(backend)
    for rate in (0.11, 0.77, 0.61, 2.0, 3.0):
        agree(fn, stepped, torch.randn(5), rate, 2)
    assert len(backend) <= before + 2


def test_a_schedule_is_one_graph_more(capture, backend):
    """What optimizers do: a learning rate in a dict, tested before it is used."""
    group = {"lr": 0.5, "decay": 0.1}

    def step(x):
        if group["lr"] < 0.0 or not 0.0 <= group["decay"]:
            raise ValueError(group)
        if group["decay"] != 0:
            x = x * (1 - group["lr"] * group["decay"])
        return x - group["lr"] * x

    fn = capture(step)
    for turn in range(1, 51):
        group["lr"] = 0.5 / turn
        agree(fn, step, torch.randn(3))
    assert len(backend) == 2
