"""Embeddings with sparse gradients: the gradient is a sparse tensor, as eager's."""

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch.nn import functional as F

INDICES = torch.tensor([[1, 2, 2], [0, 5, 1]])


def once(weight: torch.Tensor) -> torch.Tensor:
    return F.embedding(INDICES, weight, sparse=True).sin().sum()


def padded(weight: torch.Tensor) -> torch.Tensor:
    return F.embedding(INDICES, weight, padding_idx=-5, sparse=True).square().sum()


def twice(weight: torch.Tensor) -> torch.Tensor:
    first = F.embedding(INDICES, weight, sparse=True)
    second = F.embedding(INDICES[0], weight, sparse=True)
    return first.sum() + (second * second).sum()


def tied(weight: torch.Tensor) -> torch.Tensor:
    rows = F.embedding(INDICES, weight, padding_idx=2, sparse=True)
    return (rows @ weight.t()).sin().sum()


@pytest.mark.parametrize("program", [once, padded, twice, tied], ids=lambda fn: fn.__name__)
def test_as_eager(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    grads = []
    for call in (program, aot.aot_function(program, aot.run_as_is)):
        torch.manual_seed(0)
        weight = torch.randn(6, 4, requires_grad=True)
        for _ in range(2):
            call(weight).backward()
        grads.append(weight.grad)
    expected, given = grads
    assert given.layout == expected.layout
    assert (given.layout is torch.sparse_coo) == (program is not tied)
    torch.testing.assert_close(given.to_dense(), expected.to_dense())
    if program is not tied:
        assert given.is_coalesced() == expected.is_coalesced()
        assert given._nnz() == expected._nnz()


def test_a_module_is_trained_with_a_sparse_optimizer() -> None:
    found = []
    for wrap in (lambda module: module, lambda module: aot.aot_module(module, aot.run_as_is)):
        torch.manual_seed(0)
        table = torch.nn.Embedding(6, 4, sparse=True, padding_idx=0)
        module = torch.nn.Sequential(table, torch.nn.Linear(4, 3))
        call: Any = wrap(module)
        optimizer = torch.optim.SparseAdam([table.weight], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            call(INDICES).square().sum().backward()
            optimizer.step()
        found.append(table.weight.detach())
    torch.testing.assert_close(found[1], found[0])


def test_what_is_refused_says_what_to_write() -> None:
    def scaled(weight: torch.Tensor) -> torch.Tensor:
        return F.embedding(INDICES, weight * 2, sparse=True).sum()

    compiled = aot.aot_function(scaled, aot.run_as_is)
    with pytest.raises(aot.Unsupported, match="sparse=False"):
        compiled(torch.randn(6, 4, requires_grad=True))


def test_a_second_derivative_is_that_of_eager() -> None:
    def run(function: Callable[..., Any]) -> Any:
        weight = torch.arange(24.0).view(6, 4).requires_grad_()
        try:
            (first,) = torch.autograd.grad(function(weight), weight, create_graph=True)
            (second,) = torch.autograd.grad(first.to_dense().pow(2).sum(), weight)
        except RuntimeError as error:
            return str(error)
        return second.to_dense()

    with pytest.warns(UserWarning, match="runs eagerly.*sparse"):
        got = run(aot.aot_function(once, aot.run_as_is))
    want = run(once)
    assert got == want if isinstance(want, str) else torch.equal(got, want)


FLAT, STARTS = torch.tensor([1, 2, 2, 0, 5, 1, 3]), torch.tensor([0, 2, 2, 5])

BAGS: dict[str, dict[str, Any]] = {
    "rows of a matrix": {"input": INDICES},
    "sums": {"input": INDICES, "mode": "sum"},
    "bags with an empty one": {"input": FLAT, "offsets": STARTS, "mode": "sum"},
    "means with an empty one": {"input": FLAT, "offsets": STARTS},
    "last offset": {
        "input": FLAT,
        "offsets": torch.tensor([0, 2, 2, 7]),
        "include_last_offset": True,
    },
    "padding": {"input": FLAT, "offsets": STARTS, "padding_idx": 2},
    "padding in sums": {"input": INDICES, "padding_idx": -5, "mode": "sum"},
    "weighted": {"input": FLAT, "offsets": STARTS, "mode": "sum", "padding_idx": 1},
}


@pytest.mark.parametrize("case", BAGS)
@pytest.mark.parametrize("again", [False, True])
def test_bags_as_eager(case: str, again: bool) -> None:
    def program(weight: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        given = dict(BAGS[case])
        if case == "weighted":
            given["per_sample_weights"] = factors
        bags = F.embedding_bag(weight=weight, sparse=True, **given)
        loss = bags.sin().sum() + factors.sum()
        if again:
            loss = loss + F.embedding(INDICES, weight, sparse=True, **_padding(case)).sum()
        return loss

    def _padding(case: str) -> dict[str, Any]:
        return {k: v for k, v in BAGS[case].items() if k == "padding_idx"}

    grads = []
    for call in (program, aot.aot_function(program, aot.run_as_is)):
        torch.manual_seed(0)
        weight = torch.randn(6, 4, requires_grad=True)
        factors = torch.randn(7, requires_grad=True)
        for _ in range(2):
            loss = call(weight, factors)
            loss.backward()
        grads.append((loss.detach(), weight.grad, factors.grad))
    (loss, expected, one), (given_loss, given, other) = grads
    torch.testing.assert_close(given_loss, loss)
    torch.testing.assert_close(other, one)
    assert given.layout is expected.layout is torch.sparse_coo
    torch.testing.assert_close(given.to_dense(), expected.to_dense())
    if not again:  # the engine decides for itself when to coalesce a sum of two
        assert given._nnz() == expected._nnz() and given.is_coalesced() == expected.is_coalesced()


def test_a_bag_that_is_refused_says_what_to_write() -> None:
    def scaled(weight: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(INDICES, weight, sparse=True, scale_grad_by_freq=True).sum()

    compiled = aot.aot_function(scaled, aot.run_as_is)
    with pytest.raises(aot.Unsupported, match="sparse=False"):
        compiled(torch.randn(6, 4, requires_grad=True))


def test_sparse_values_in_between_are_refused_with_their_line() -> None:
    def fn(indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        made = torch.sparse_coo_tensor(indices, values, (4, 4))
        return made + made

    given = torch.tensor([[0, 1, 1], [2, 0, 0]]), torch.randn(3)
    with pytest.raises(aot.Unsupported, match=r"layout torch\.sparse_coo"):
        aot.aot_function(fn, aot.run_as_is)(*given)
