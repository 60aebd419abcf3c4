"""Sparse, nested, quantized and other tensors that are more, or less, than sizes and strides."""

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore")  # torch: all of these are beta, or leave


def nested():
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.full((4, 3), 2.0)])


def coo(x):
    sparse = x.relu().to_sparse()
    total = torch.sparse.sum(sparse * 2, 0).to_dense()
    return sparse._nnz(), sparse.indices(), sparse.values().shape[0] * x, total, sparse @ x


def made(x):
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 0]]), x[0], (3, 3))
    both = sparse + sparse
    return both.is_coalesced(), both.sparse_dim(), both.coalesce().values(), both.to_dense()


def quantized(x):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize(), x * 2


def onednn(x):
    return (x * 2).to_mkldnn().to_dense() + 1


def ragged(x):
    both = torch.nested.nested_tensor([x, x[:1]])
    return torch.nested.to_padded_tensor(both * 2, 0.0), x.sin()


@pytest.mark.parametrize("fn", [coo, made, quantized, onednn, ragged])
def test_what_is_made_of_a_tensor(agree, fn):
    agree(fn, torch.randn(3, 3), graphs=None, backward=False)


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_what_has_no_strides_ends_the_graph(capture, backend, same, layout):
    """Compressed rows and columns are Python's from there on, with a reason and no fault."""

    def fn(x):
        sizes = ((1, 1),) if layout.startswith("bs") else ()
        sparse = getattr(x.relu(), f"to_sparse_{layout}")(*sizes)
        return sparse @ x if layout == "csr" else sparse.to_dense() * 2, sparse.values() + 1

    x = torch.randn(3, 3)
    for _ in range(2):
        same(capture(fn)(x), fn(x))
    assert backend.graphs


class Arguments:
    """Tensors that no fake tensor stands for, and a function of each."""

    nested = nested, lambda n, x: (n.to_padded_tensor(0.0), [t.sin() for t in n.unbind()])
    quantized = (
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        lambda q, x: (q.dequantize() + x.sum(), q.q_scale()),
    )
    onednn = lambda: torch.ones(3).to_mkldnn(), lambda m, x: m.to_dense() * x.sum()
    csr = (
        lambda: torch.eye(3).to_sparse_csr(),
        lambda c, x: (c @ x, c.values().shape[0] + x, c.crow_indices()),
    )


@pytest.mark.parametrize("name", ["nested", "quantized", "onednn", "csr"])
def test_an_argument(capture, backend, same, name):
    make, use = getattr(Arguments, name)

    def fn(given, x):
        y = x * 2
        return use(given, y)

    x = torch.randn(3, 3)
    compiled = capture(fn)
    for _ in range(2):
        same(compiled(make(), x), fn(make(), x))
    assert len(backend) >= 1


def test_plain_tensors_have_their_own_graph_after_a_nested_one(capture, backend, same):
    def fn(given):
        return given.sin() if not given.is_nested else given.to_padded_tensor(0.0)

    compiled = capture(fn)
    for given in (nested(), torch.ones(2), nested(), torch.zeros(2)):
        same(compiled(given), fn(given))
    assert len(backend) == 1


def test_steps_on_sparse_gradients(capture):
    def train(decorate):
        torch.manual_seed(0)
        table = nn.Embedding(6, 3, sparse=True)
        optimizer = torch.optim.SparseAdam(list(table.parameters()), lr=0.1)
        step = decorate(lambda: optimizer.step())
        for words in ([1, 2, 2], [0], [5, 1]):
            optimizer.zero_grad()
            table(torch.tensor(words)).square().sum().backward()
            step()
        return table.weight.detach()

    torch.testing.assert_close(train(capture), train(lambda fn: fn))


COALESCED = {
    "state": lambda t: t.coalesce().is_coalesced(),
    "values": lambda t: t.coalesce().values(),
    "its own": lambda t: (t.coalesce() is t, t.is_coalesced()),
    "twice": lambda t: t.coalesce().coalesce().indices(),
    "operator": lambda t: torch.ops.aten.coalesce(t)._nnz(),
    "written": lambda t: (t.coalesce().mul_(3).to_dense(), t.to_dense()),
}
MADE = {
    "input": lambda s: s,
    "product": lambda s: s * 2,
    "sum": lambda s: s + s,
    "of coalesced": lambda s: s.coalesce() * 2,
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("read", COALESCED)
def test_what_coalesce_gives_is_not_what_it_takes(read, made, capture, same):
    def fn(s):
        return COALESCED[read](MADE[made](s))

    def pairs():
        return torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [1.0, 2.0, 3.0], (3, 3))

    same(capture(fn)(pairs()), fn(pairs()))
