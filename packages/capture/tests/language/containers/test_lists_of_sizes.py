"""Lists of sizes and of dimensions that the program holds: a function reshapes and permutes
tensors of any rank by what a cache gives it, in one graph, or in one for each rank."""

import functools

import pytest
import torch

SIZES = [[6], [2, 3], [1, 2, 3], [1, 2, 1, 3], [1, 1, 2, 1, 3]]


@functools.lru_cache
def recipe(rank):
    return SIZES[rank - 1], list(range(rank))


def moved(name, tensor):
    sizes, dims = recipe(tensor.ndim)
    return getattr(tensor, name)(dims if name == "permute" else sizes)


NAMES = ["reshape", "view", "permute", "expand", "new_zeros", "tile"]


@pytest.mark.parametrize("name", NAMES)
def test_lists_of_sizes_of_any_rank_are_one_graph(name, one_graph):
    tensors = [torch.ones(sizes) for sizes in SIZES]

    def f(x):
        return [moved(name, tensor) + x.sum() for tensor in tensors]

    f(torch.ones(3))
    one_graph(f)


@pytest.mark.parametrize("name", NAMES)
def test_a_frame_takes_a_list_of_sizes_for_each_rank(name, capture, backend, same):
    compiled = capture(lambda tensor: moved(name, tensor) + 1)
    for sizes in SIZES:
        tensor = torch.ones(sizes)
        same(compiled(tensor), moved(name, tensor) + 1)
    assert len(backend) == len(SIZES)
