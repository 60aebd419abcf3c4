"""Products of a sparse COO matrix with a dense one, as graph networks make them: in the graph, of
any number of values, without a dense form of the matrix."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

WEIGHT = torch.linspace(-1, 1, 16).reshape(4, 4)
CALLS = ((6, 6, 18), (6, 6, 11), (9, 5, 30), (11, 8, 25), (4, 7, 0), (7, 9, 3))
"""Rows and columns of the matrix, and how many values it holds."""
PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sparse.mm": lambda a, x: torch.relu(torch.sparse.mm(a, x @ WEIGHT)),
    "operator": lambda a, x: (a @ x).tanh(),
    "method": lambda a, x: a.mm(x) * 2,
    "spmm": lambda a, x: torch.spmm(a, x) + 1,
    "vector": lambda a, x: a @ x[:, 0],
    "mv": lambda a, x: a.mv(x[:, 1]).exp(),
    "sum": lambda a, x: torch.sparse.addmm(x.sum(0), a, x),
}


def matrix(rows: int, columns: int, count: int) -> Tensor:
    """Some places hold several values; every second matrix is coalesced."""
    places = torch.stack([torch.randint(0, rows, (count,)), torch.randint(0, columns, (count,))])
    made = torch.sparse_coo_tensor(places, torch.rand(count), (rows, columns))
    return made.coalesce() if count % 2 else made


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_of_a_sparse_matrix_is_in_the_graph(name: str, backend: str, train: bool) -> None:
    if train and backend == "eager":
        pytest.skip("the graph is eager's own")
    product = PRODUCTS[name]
    compiled = flambeau.compile(product, backend=backend)
    torch.manual_seed(0)
    for rows, columns, count in CALLS[:4]:
        a, x = matrix(rows, columns, count), torch.randn(columns, 4, requires_grad=train)
        wanted, found = product(a, x), compiled(a, x)
        assert found.stride() == wanted.stride()
        torch.testing.assert_close(found, wanted)
        if train:
            (one,), (other,) = (torch.autograd.grad(y.sum(), x) for y in (wanted, found))
            torch.testing.assert_close(other, one)
    report = flambeau.report(compiled)
    assert (report.breaks, report.fallbacks) == ((), ())


def test_a_network_keeps_its_matrix_open() -> None:
    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

        def forward(self, a: Tensor, x: Tensor) -> Tensor:
            hidden = torch.sparse.mm(a, self.first(x)).relu()
            return torch.sparse.mm(a, self.second(hidden)).log_softmax(-1)

    network = Network()
    compiled = flambeau.compile(network, dynamic=True)
    for size, count in ((6, 14), (9, 30), (14, 21), (30, 200)):
        a, x = matrix(size, size, count), torch.randn(size, 4)
        torch.testing.assert_close(compiled(a, x), network(a, x))
    report = flambeau.report(compiled)
    assert (report.breaks, report.fallbacks) == ((), ())
    assert report.graphs <= 2


def written(a: Tensor, x: Tensor) -> Tensor:
    a.mul_(2)
    return a @ x


def written_by_another_name(a: Tensor, x: Tensor, values: Tensor) -> Tensor:
    values.mul_(2)
    return a @ x


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_what_is_written_before_a_product_is_read_by_it(backend: str) -> None:
    by_itself = flambeau.compile(written, backend=backend)
    by_values = flambeau.compile(written_by_another_name, backend=backend)
    for count in (9, 9, 15):
        x, a = torch.randn(5, 3), matrix(6, 5, count).coalesce()
        torch.testing.assert_close(by_itself(a.clone(), x), written(a.clone(), x))
        b, c = a.clone(), a.clone()
        wanted = written_by_another_name(b, x, b._values())
        torch.testing.assert_close(by_values(c, x, c._values()), wanted)
        torch.testing.assert_close(c.to_dense(), b.to_dense())


def test_a_matrix_of_another_kind_is_no_such_product() -> None:
    def product(a: Any, x: Tensor) -> Tensor:
        return (a @ x) * 2

    compiled = flambeau.compile(product, backend="eager")
    x = torch.randn(5, 3)
    for a in (
        matrix(6, 5, 9),
        matrix(6, 5, 9).to_dense(),
        matrix(6, 5, 9).double().float().requires_grad_(),
        matrix(6, 5, 9).to_sparse_csr(),
        matrix(6, 5, 8),
    ):
        torch.testing.assert_close(compiled(a, x), product(a, x))
    with pytest.raises(RuntimeError, match="size"):
        compiled(matrix(6, 4, 9), x)
