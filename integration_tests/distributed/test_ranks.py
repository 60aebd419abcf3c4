"""Ranks that compile different programs are told of it, and go on with right answers."""

import warnings

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import flambeau
from flambeau.distributed import RanksDisagree
from integration_tests.distributed.two_ranks import two_ranks


class Branching(nn.Module):
    """Takes a way of its own where `other` is set."""

    def __init__(self, other):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.other = other

    def forward(self, x):
        x = self.linear(x)
        return x.tanh() if self.other else x.sin()


def _steps(rank, other):
    torch.manual_seed(0)
    plain = Branching(other)
    torch.manual_seed(0)
    model = flambeau.compile(DistributedDataParallel(Branching(other)), backend="aot_eager")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = torch.randn(4, 8)
        torch.testing.assert_close(model(x), plain(x))
        model(x).sum().backward()
        torch.distributed.barrier()
        torch.testing.assert_close(model(x[:2].double().float()[:, :]), plain(x[:2]))
    return [str(each.message) for each in caught if each.category is RanksDisagree]


def _same(rank):
    return _steps(rank, other=False)


def _different(rank):
    return _steps(rank, other=rank == 1)


def test_ranks_with_one_program_hear_nothing(tmp_path):
    assert two_ranks(_same, tmp_path) == ([], [])


def test_the_rank_that_comes_last_names_the_difference(tmp_path):
    said = [text for texts in two_ranks(_different, tmp_path) for text in texts]
    assert said
    assert any("sin" in text and "tanh" in text and "rank 1" in text for text in said)
    assert any("return x.tanh() if self.other else x.sin()" in text for text in said)
