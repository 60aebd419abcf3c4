"""Whether elements share memory, against all their addresses written out."""

import itertools
import random

import pytest
import torch
from flambeau_aot.inputs.memory_overlap import StorageLayout, overlaps_itself, share_elements


def addresses(layout):
    indices = itertools.product(*map(range, layout.shape))
    return [layout.offset + sum(map(int.__mul__, at, layout.stride)) for at in indices]


def drawn(rng):
    dims = rng.randint(0, 4)
    shape = tuple(
        rng.randint(0, 4) if rng.random() < 0.1 else rng.randint(1, 4) for _ in range(dims)
    )
    stride = tuple(rng.randint(0, 12) for _ in range(dims))
    return StorageLayout(1, torch.float32, shape, stride, rng.randint(0, 15))


@pytest.mark.parametrize("seed", range(4))
def test_against_all_addresses(seed) -> None:
    rng = random.Random(seed)
    met = set()
    for _ in range(500):
        one, other = drawn(rng), drawn(rng)
        first, second = addresses(one), addresses(other)
        assert overlaps_itself(one) == (len(set(first)) < len(first))
        shared = bool(set(first) & set(second))
        assert share_elements(one, other) == shared
        met.add(shared)
    assert met == {True, False}


def test_columns_and_windows_of_large_tensors_are_told_apart() -> None:
    def at(shape, stride, offset):
        return StorageLayout(1, torch.float32, shape, stride, offset)

    big = (4096, 32, 128), (8192 * 32, 8192, 2)
    assert not share_elements(at(*big, 0), at(*big, 1))
    assert share_elements(at(*big, 0), at(*big, 8192))
    assert overlaps_itself(at((3, 3), (1, 1), 0))
    assert not share_elements(at((4,), (1,), 0), at((4,), (1,), 4))
