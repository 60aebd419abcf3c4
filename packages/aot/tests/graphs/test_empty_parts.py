"""Arguments without elements that share memory with others, wherever they begin."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_aot
import pytest
import torch
from torch import Tensor

#: shape, strides and offset: the empty ones begin at the start, within, at the end and beyond
PARTS = (
    ((0, 3), (3, 1), 0), ((3, 0), (1, 3), 3), ((0,), (1,), 8), ((0,), (1,), 19),
    ((2, 2), (2, 1), 1), ((), (), 2),
)  # fmt: skip
MEMORY = 8


def _second(one: Tensor, other: Tensor) -> Any:
    other.fill_(2)
    return one + 0, other


def _both(one: Tensor, other: Tensor) -> Any:
    one.fill_(1)
    other.add_(1)
    return other + 1


def _itself(one: Tensor, other: Tensor) -> Any:
    other.copy_(other + 1)
    return one


PAIRS = [(a, b) for a, b in itertools.product(PARTS, repeat=2) if 0 in (*a[0], *b[0])]


@pytest.mark.parametrize("fn", [_second, _both, _itself])
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_as_in_eager(fn: Callable[..., Any], pair: tuple[Any, Any]) -> None:
    none_there = all(0 in shape for shape, _, _ in pair)
    for size in (0, MEMORY) if none_there else (MEMORY,):
        compiled = flambeau_aot.aot_function(fn, flambeau_aot.run_as_is)
        wanted, *found = (_seen(each, pair, size) for each in (fn, compiled, compiled))
        assert found == [wanted, wanted]


def _seen(fn: Callable[..., Any], pair: tuple[Any, Any], size: int) -> Any:
    """Results and arguments, and the memory afterwards."""
    memory = torch.arange(float(size))
    given = [memory.as_strided(*part) for part in pair]
    made = fn(*given)
    made = made if isinstance(made, tuple) else (made,)
    places = [(t.tolist(), t.stride(), t.storage_offset()) for t in given]
    return [t.tolist() for t in made], places, memory.tolist()


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if 0 in pair[0][0] and 0 in pair[1][0]], ids=str
)
def test_memory_of_any_device(pair: tuple[Any, Any]) -> None:
    def given() -> list[Tensor]:
        memory = torch.empty(MEMORY, device="meta")
        return [memory.as_strided(*part) for part in pair]

    made = flambeau_aot.aot_function(_both, flambeau_aot.run_as_is)(*given())
    assert (made.device.type, made.shape) == ("meta", _both(*given()).shape)
