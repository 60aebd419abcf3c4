"""One compiled function, many sizes: results, gradients, effects and the number of graphs."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau

Make = Callable[..., Sequence[Any]]

BATCHES = [(4,), (7,), (2,), (64,), (13,), (128,)]
PAIRS = [(2, 9), (3, 17), (5, 4), (9, 64), (4, 4), (17, 2)]


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.norm, self.out = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.out(F.gelu(self.norm(self.into(x)))), -1)


class Encoder(nn.Module):
    """A layer of a transformer with padding masked, and a mean over the tokens."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(100, width), nn.Embedding(64, width)
        self.qkv, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = words.shape
        x = self.words(words) + self.places(torch.arange(length))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + bias, -1)
        x = x + self.merge((weights @ v).transpose(1, 2).reshape(batch, length, -1))
        x = x + self.down(F.gelu(self.up(self.second(x))))
        return x, (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def rows(batch: int) -> Sequence[Any]:
    return (torch.randn(batch, 32),)


def tokens(batch: int, length: int) -> Sequence[Any]:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, length // 2 :] = 0
    return torch.randint(0, 100, (batch, length)), mask


def same(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


def _flat(value: Any) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("backend", "dynamic"), [("inductor", None), ("inductor", True), ("aot_eager", True)]
)
@pytest.mark.parametrize(
    ("model", "make", "sizes"), [(Mlp, rows, BATCHES), (Encoder, tokens, PAIRS)]
)
def test_models(
    model: type[nn.Module],
    make: Make,
    sizes: Sequence[Sequence[int]],
    backend: str,
    dynamic: bool | None,
) -> None:
    torch.manual_seed(0)
    module = model()
    compiled = flambeau.compile(module, backend=backend, dynamic=dynamic, fullgraph=True)
    for number, size in enumerate(sizes):
        inputs = make(*size)
        if number % 2 == 0:
            with torch.no_grad():
                same(compiled(*inputs), module(*inputs))
            continue
        gradients = []
        for fn in (module, compiled):
            module.zero_grad(set_to_none=True)
            results = _flat(fn(*inputs))
            sum((result * result).sum() for result in results).backward()
            gradients.append(
                [None if p.grad is None else p.grad.clone() for p in module.parameters()]
            )
        same(gradients[1], gradients[0])
    # of each of the two grad modes: a constant graph and an open one, or the open one alone
    assert flambeau.report(compiled).graphs <= (2 if dynamic else 4)


def test_sizes_of_one_are_another_graph() -> None:
    compiled = flambeau.compile(lambda x: (x * 2).sum(0), fullgraph=True)
    for size in (4, 1, 7, 1, 9, 1, 30):
        x = torch.randn(size, 3)
        same(compiled(x), (x * 2).sum(0))
    assert flambeau.report(compiled).graphs == 3


def test_writes_views_and_results_that_are_inputs() -> None:
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        x.mul_(2)
        flat = y.view(-1)
        return flat, x[:, : x.shape[1] // 2], x, (y + x).t()

    compiled = flambeau.compile(step, dynamic=True, fullgraph=True)
    for size in [(4, 6), (3, 10), (100, 2), (7, 8)]:
        x, y = torch.randn(size), torch.randn(size)
        x2, y2 = x.clone(), y.clone()
        got, wanted = compiled(x, y), step(x2, y2)
        same(got, wanted)
        same(x, x2)
        assert [g.stride() for g in got] == [w.stride() for w in wanted]
        assert got[2] is x and got[0].data_ptr() == y.data_ptr()
        got[0].zero_()
        assert not y.any()
    assert flambeau.report(compiled).graphs == 1


def test_inputs_that_begin_to_share_memory() -> None:
    def step(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x + y

    compiled = flambeau.compile(step, dynamic=True)
    for size in (4, 9, 4, 17):
        apart = [torch.randn(size), torch.randn(size)]
        kept = [t.clone() for t in apart]
        same(compiled(*apart), step(*kept))
        whole = torch.randn(size + 1)
        again = whole.clone()
        same(compiled(whole[:-1], whole[1:]), step(again[:-1], again[1:]))
        same(whole, again)


def test_derivatives_of_second_order() -> None:
    def penalty(x: Tensor, w: Tensor) -> Tensor:
        return (torch.tanh(x @ w) ** 2).sum()

    compiled = flambeau.compile(penalty, dynamic=True)
    w = torch.randn(5, 3, requires_grad=True)
    for size in (4, 9, 2, 33):
        x = torch.randn(size, 5, requires_grad=True)
        found = []
        for fn in (penalty, compiled):
            (first,) = torch.autograd.grad(fn(x, w), x, create_graph=True)
            found.append(torch.autograd.grad((first**2).sum(), (x, w)))
        same(found[1], found[0])


def test_many_threads_and_many_batch_sizes() -> None:
    module = Mlp().eval()
    compiled = flambeau.compile(module)
    with torch.no_grad():
        for size in (3, 5, 1):
            compiled(torch.randn(size, 32))
    before = flambeau.report(compiled).graphs
    failures: list[str] = []

    def serve(seed: int) -> None:
        draw = random.Random(seed)
        with torch.no_grad():
            for _ in range(40):
                x = torch.randn(draw.choice([1, 2, 3, 8, 17, 64, 100]), 32)
                if not torch.allclose(compiled(x), module(x), rtol=1e-3, atol=1e-4):
                    failures.append(f"{seed}: {tuple(x.shape)}")

    workers = [threading.Thread(target=serve, args=(seed,)) for seed in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert flambeau.report(compiled).graphs == before


def test_numbers_that_vary() -> None:
    compiled = flambeau.compile(lambda x, n: x * n + x.shape[0] - n, fullgraph=True)
    for size, n in [(4, 3), (4, 5), (9, 7), (9, 11), (30, -2), (31, 0)]:
        x = torch.randn(size)
        same(compiled(x, n), x * n + size - n)
    assert flambeau.report(compiled).graphs <= 3


def test_what_has_no_kernel_is_run_by_torch_at_the_sizes_of_the_call() -> None:

    def function(x: Tensor) -> Tensor:
        return torch.linalg.qr(x).R.abs() + x.shape[1]

    compiled = flambeau.compile(function, dynamic=True)
    for size in [(6, 4), (9, 4), (12, 7)]:
        x = torch.randn(size)
        same(compiled(x), function(x))


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "exp": lambda x, w: torch.tanh(x).exp(),
    "softmax": lambda x, w: torch.softmax(x, -1),
    "normalise": lambda x, w: F.layer_norm(x, (x.shape[-1],)),
    "columns": lambda x, w: x - x.mean(0),
    "rows": lambda x, w: x / (1 + x.abs().amax(-1, keepdim=True)),
    "product": lambda x, w: x @ w,
    "flat": lambda x, w: (x.reshape(-1) * 1.5).reshape(x.shape),
    "turned": lambda x, w: (x.t().contiguous() + 1).t(),
    "flipped": lambda x, w: x.flip(0),
    "shifted": lambda x, w: torch.cat([x[1:], x[:1]], 0),
    "doubled": lambda x, w: torch.cat([x, x], 0)[: x.shape[0]],
    "placed": lambda x, w: x + torch.arange(x.shape[0])[:, None] * 0.01,
    "masked": lambda x, w: torch.where(x > 0, x, x.shape[0] * 0.1 * x),
    "stacked": lambda x, w: torch.stack([x, x * 2], 1).sum(1),
    "padded": lambda x, w: F.pad(x, (0, 0, 1, 1))[1:-1],
    "cumulated": lambda x, w: x.cumsum(0) * 0.1,
    "scaled": lambda x, w: x * (2.0 / x.shape[0]),
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed: int) -> None:
    draw = random.Random(seed)
    names = [draw.choice(sorted(OPERATIONS)) for _ in range(7)]

    def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        for name in names:
            x = OPERATIONS[name](x, w)
        return x, x.sum(0)

    compiled = flambeau.compile(program, dynamic=draw.choice([None, True]))
    w = torch.randn(12, 12, requires_grad=True)
    for _ in range(5):
        x = torch.randn(draw.choice([2, 3, 5, 16, 31, 64, 200]), 12, requires_grad=True)
        found = []
        for fn in (program, compiled):
            results = fn(x, w)
            total = results[0].sin().sum() + results[1].sum()
            found.append((*results, *torch.autograd.grad(total, (x, w), allow_unused=True)))
        same(found[1], found[0])
    records = flambeau.report(compiled).records  # a derivative that is asked for has its own
    assert len([each for each in records if not each.name.endswith("_derivative")]) <= 2, names


LAYOUTS = [(2, 1, 0), (0, 2, 1), (1, 0, 2)]
INDEXED: dict[str, Callable[[Tensor], Tensor]] = {
    "last": lambda x: x[:, :, [0, 3]],
    "middle": lambda x: x[:, [0, 3]],
    "first": lambda x: x[[0, 3]],
    "apart": lambda x: x[[0, 1], :, [0, 3]],
    "turned": lambda x: x[:, torch.tensor([[0, 1], [1, 0]]).t()],
}


@pytest.mark.parametrize("order", LAYOUTS)
@pytest.mark.parametrize("name", INDEXED)
def test_what_is_indexed_is_laid_out_as_in_eager(name: str, order: tuple[int, ...]) -> None:
    fn = INDEXED[name]
    compiled = flambeau.compile(fn, backend="aot_eager_prims")
    back = [order.index(dim) for dim in range(3)]
    for size in (5, 6, 8):
        x = torch.randn(size, size + 1, size + 2).permute(order).contiguous().permute(back)
        expected, got = fn(x), compiled(x)
        assert torch.equal(got, expected) and got.stride() == expected.stride()


def _sides(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,))


def _sides_with_two_sizes(x: Tensor) -> tuple[Tensor, ...]:
    y = x.t() * 2

    def product(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin() @ y, y * 2

    return torch.cond(x.sum() > 0, product, lambda x, y: ((x @ y).cos(), y.exp()), (x, y))


def _sides_of_other_sizes(x: Tensor) -> Tensor:
    def shorter(x: Tensor) -> Tensor:
        return x[1:].reshape(-1) * x.shape[0]

    return torch.cond(x.sum() > 0, shorter, lambda x: x[:-1].reshape(-1) * 2, (x,))


def _sides_with_a_number(x: Tensor) -> Tensor:
    rows = x.shape[0]
    return torch.cond(x.sum() > 0, lambda x: x * rows, lambda x: x / (rows + 1), (x,))


def _sides_within(x: Tensor) -> Tensor:
    def again(x: Tensor) -> Tensor:
        return torch.cond(x.amax() > 1, lambda x: x * 2, lambda x: x.sin(), (x,))

    return torch.cond(x.sum() > 0, again, lambda x: x * x.shape[0], (x,))


@pytest.mark.parametrize(
    ("backend", "needs_grad"), [("aot_eager", False), ("aot_eager", True), ("inductor", True)]
)
@pytest.mark.parametrize(
    "program",
    [_sides, _sides_with_two_sizes, _sides_of_other_sizes, _sides_with_a_number, _sides_within],
)
def test_branches(
    program: Callable[..., Any], backend: str, needs_grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    compiled = flambeau.compile(program, backend=backend, dynamic=True, fullgraph=True)
    for number, size in enumerate([(4, 3), (5, 2), (7, 7), (4, 3), (3, 9)]):
        drawn = torch.randn(size).abs() * (-1) ** number
        ours, theirs = (drawn.clone().requires_grad_(needs_grad) for _ in range(2))
        got = _flat(compiled(ours))
        with monkeypatch.context() as patch:  # torch's own, outside of a graph, compiles
            patch.setattr(torch, "cond", lambda p, yes, no, given: (yes if p else no)(*given))
            wanted = _flat(program(theirs))
        for one, other in zip(got, wanted, strict=True):
            same(one, other)
            assert one.stride() == other.stride()
        if needs_grad:
            for results in (got, wanted):
                sum((result * result).sum() for result in results).backward()
            same(ours.grad, theirs.grad)
    assert flambeau.report(compiled).graphs == 1
    assert not flambeau.report(compiled).narrowed


def test_what_a_branch_draws_is_drawn_once() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: F.dropout(x, 0.5), lambda x: x * 2, (x,))

    compiled = flambeau.compile(program, backend="aot_eager", dynamic=True, fullgraph=True)
    for size in (40, 50, 70):
        x = (torch.rand(size) + 1).requires_grad_()
        result = compiled(x)
        result.sum().backward()
        same(x.grad, result.detach() / x.detach())
    assert flambeau.report(compiled).graphs == 1


#: views of a result of which one size is open and another a constant, by what they take
VIEWS = [
    "y[: n - 1]", "y[1:].T", "y.view(-1)[n:]", "y.unflatten(0, (1, n))", "y.narrow(0, 1, n - 2)",
    "y[n // 2 :, 1:]", "y.reshape(3 * n)[2 * n :]", "y.expand(2, n, 3)[1]", "y[None, n - 1]",
]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_views_of_a_result_that_is_returned(view: str) -> None:
    program = eval(f"lambda x: (lambda y, n: (y, {view}))(x * 2, x.shape[0])")
    compiled = flambeau.compile(program, backend="aot_eager")
    for size in (5, 7, 9, 4, 12):
        x = torch.randn(size, 3)
        given, wanted = compiled(x), program(x)
        torch.testing.assert_close(given, wanted)
        assert [one.stride() for one in given] == [one.stride() for one in wanted]
        assert given[1]._base is given[0]
    report = flambeau.report(compiled)
    assert report.graphs == 2 and not report.faults and not report.narrowed, report


#: numbers that are found to be equal to a size, or parts of a size to be empty, for some of these
MEETING = [
    "torch.cat([x[:, :4], x[:, :4]]), y[k:]", "x.roll(k, 0)", "x.roll((k, -k), (0, 1))",
    "torch.cat([x[k:], x[:k]])", "torch.cat([x[: k % 5], x, x[k % 5 :]])", "y[:k] + x[:k]",
    "x.narrow(0, 0, min(k, 3)) * y[0, 0]", "x.view(-1)[k:].sum() + y[:, :k]", "x.T @ y, x[:k]",
]  # fmt: skip


@pytest.mark.parametrize("text", MEETING)
def test_sizes_and_numbers_that_meet(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_FAULTS", "raise")
    program = eval(f"lambda x, y, k: ({text},)")
    compiled = flambeau.compile(program)
    for rows, columns, k in ((5, 6, 4), (5, 4, 5), (4, 5, 3), (3, 4, 3), (6, 6, 6), (5, 3, 2)):
        x, y = torch.randn(rows, columns), torch.randn(rows, columns)
        given, wanted = compiled(x, y, k), program(x, y, k)
        torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-5)
        assert [one.stride() for one in given] == [one.stride() for one in wanted]
