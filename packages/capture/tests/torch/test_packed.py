"""Packed sequences: each of their calls is one break, at the program's line; the rest is graphs."""

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


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("both", [False, True])
def test_three_breaks_and_two_graphs(capture, backend, kind, both):
    torch.manual_seed(0)
    module = Reader(kind, both)
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
    assert len(backend) == 2, [graph.code for graph in backend.graphs]


def test_a_layer_that_runs_on_both_is_captured_on_plain_tensors(capture, backend):
    layer = nn.GRU(4, 3)
    compiled = capture(layer)
    packed = rnn.pack_sequence([torch.randn(3, 4), torch.randn(2, 4)])
    assert torch.equal(compiled(packed)[0].data, layer(packed)[0].data)
    assert len(backend) == 0
    plain = torch.randn(3, 2, 4)
    torch.testing.assert_close(compiled(plain), layer(plain))
    assert len(backend) == 1


def test_fields_of_a_packed_sequence_are_read(agree):
    def fn(data, sizes):
        made = rnn.PackedSequence(data, sizes)
        return made.data.sin(), made.batch_sizes, made.sorted_indices

    agree(fn, torch.randn(3, 2), torch.tensor([2, 1]))
