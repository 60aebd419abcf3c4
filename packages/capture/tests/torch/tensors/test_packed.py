"""Packed sequences: in one graph, or, where data leaves no size open, one break a call."""

import re

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn


class Reader(nn.Module):
    def __init__(self, kind, both):
        super().__init__()
        self.words = nn.Embedding(10, 4, padding_idx=0)
        self.layer = kind(4, 3, batch_first=True, bidirectional=both)
        self.last = nn.Linear(6 if both else 3, 2)

    def forward(self, ids, lengths):
        packed = rnn.pack_padded_sequence(
            self.words(ids) * 2, lengths, batch_first=True, enforce_sorted=False
        )
        packed, _ = self.layer(packed)
        out, lengths = rnn.pad_packed_sequence(packed, batch_first=True, total_length=ids.size(1))
        mask = torch.arange(ids.size(1)) < lengths[:, None]
        return self.last((out * mask[..., None]).sum(1))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("open_by_data", [True, False])
def test_one_graph_or_three_breaks(capture, backend, kind, both, open_by_data):
    torch.manual_seed(0)
    module = Reader(kind, both)
    backend.supports_symbols = open_by_data
    compiled = capture(module)
    for lengths in ([3, 2], [2, 3], [1, 3]):
        ids = torch.randint(1, 10, (2, 3))
        module.zero_grad()
        expected = module(ids, torch.tensor(lengths))
        expected.sum().backward()
        wanted = [p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        got = compiled(ids, torch.tensor(lengths))
        got.sum().backward()
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close([p.grad for p in module.parameters()], wanted)
    assert len(backend) == (1 if open_by_data else 2), [graph.code for graph in backend.graphs]


def test_a_layer_runs_on_both(capture, backend):
    layer = nn.GRU(4, 3)
    compiled = capture(layer)
    for count, sizes in ((1, (3, 2)), (2, (5, 1)), (2, (4, 4))):
        packed = rnn.pack_sequence([torch.randn(size, 4) for size in sizes])
        torch.testing.assert_close(compiled(packed)[0].data, layer(packed)[0].data)
        assert len(backend) == count
    plain = torch.randn(3, 2, 4)
    torch.testing.assert_close(compiled(plain), layer(plain))
    assert len(backend) == 3


def test_a_layer_on_both_is_captured_on_plain_tensors_alone(capture, backend):
    backend.supports_symbols = False
    layer = nn.GRU(4, 3)
    compiled = capture(layer)
    packed = rnn.pack_sequence([torch.randn(3, 4), torch.randn(2, 4)])
    assert torch.equal(compiled(packed)[0].data, layer(packed)[0].data)
    assert len(backend) == 0
    plain = torch.randn(3, 2, 4)
    torch.testing.assert_close(compiled(plain), layer(plain))
    assert len(backend) == 1


@pytest.mark.parametrize("lengths", [[4, 2, 0], [1, 2, 3], [4, 2]], ids=str)
def test_lengths_that_torch_refuses(capture, backend, lengths):
    def fn(x, lengths):
        return rnn.pack_padded_sequence(x, lengths).data * 2

    compiled = capture(fn)
    x = torch.randn(6, 3, 4)
    assert torch.equal(compiled(x, torch.tensor([6, 3, 1])), fn(x, torch.tensor([6, 3, 1])))
    with pytest.raises(RuntimeError) as wanted:
        fn(x, torch.tensor(lengths))
    with pytest.raises(RuntimeError, match="^" + re.escape(str(wanted.value)) + "$"):
        compiled(x, torch.tensor(lengths))


def test_what_raises_by_a_number_of_data_is_checked(capture, backend):
    """The branch that raises, on a number that depends on data, ends no graph."""

    def fn(x, count):
        n = count.item()
        if n > 3:
            raise ValueError(f"{n} is too many")
        return x[:n] * 2

    compiled = capture(fn)
    x = torch.randn(6)
    for n in (2, 3, 1, 0):
        assert torch.equal(compiled(x, torch.tensor(n)), fn(x, torch.tensor(n)))
    with pytest.raises(ValueError, match=re.escape("4 is too many")):
        compiled(x, torch.tensor(4))
    assert len(backend) == 1


def test_a_number_that_is_read_again_is_the_same_number(capture, backend):
    def fn(x, counts):
        one, other = x[: counts[0].item()], x[-x.shape[0] :][: counts[0].item()]
        sums = one + other
        counts = counts + 1
        again = counts[0].item()
        counts.sub_(1)
        return sums, x[: counts[0].item()], again

    compiled = capture(fn)
    x = torch.randn(6)
    for n in (2, 3, 5):
        torch.testing.assert_close(compiled(x, torch.tensor([n])), fn(x, torch.tensor([n])))
    assert len(backend) == 1


def test_fields_of_a_packed_sequence_are_read(agree):
    def fn(data, sizes):
        made = rnn.PackedSequence(data, sizes)
        return made.data.sin(), made.batch_sizes, made.sorted_indices

    agree(fn, torch.randn(3, 2), torch.tensor([2, 1]))
