"""Which shapes share what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from flambeau_inductor.autotune import Budget, Candidate, Tuner
from flambeau_inductor.templates.attention.match_attention import find_attention
from flambeau_inductor.templates.gemm.match_gemm import find
from flambeau_inductor.templates.selection.races import attention_class, product_class, rounded
from flambeau_inductor.templates.selection.select import select
from torch.nn import functional as F

from tests.templates.selection.test_select import program_of


def linear(rows: int, columns: int = 1024, inner: int = 512, gelu: bool = True) -> str:
    def fn(x: torch.Tensor, w: torch.Tensor) -> Any:
        return F.gelu(x @ w.t()) if gelu else x @ w.t()

    (found,) = find(program_of(fn, (rows, inner), (columns, inner)), tf32=False)
    return product_class(found, "a GPU")


def test_sizes_have_four_classes_an_octave() -> None:
    assert [rounded(n) for n in (1, 63, 64, 65, 80, 81, 128, 129, 1000)] == [
        1, 63, 64, 80, 80, 96, 128, 160, 1024,
    ]  # fmt: skip
    assert all(n <= rounded(n) <= n * 1.25 for n in range(1, 3000))
    assert len({rounded(n) for n in range(1025, 2049)}) == 4


def test_near_sizes_are_of_a_class_and_what_differs_otherwise_is_not() -> None:
    assert linear(1000) == linear(1024) == linear(900)
    apart = [linear(1000), linear(1100), linear(1000, gelu=False), linear(1000, inner=516)]
    assert len({*apart, linear(33), linear(34)}) == 6


def attended(length: int, causal: bool = False) -> str:
    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return torch.ops.flambeau_prims.attention.default(q, k, v, None, 0.0, causal)[0]

    (found,) = find_attention(program_of(fn, *[(2, 4, length, 64)] * 3))
    return attention_class(found.attention, "a call", "a GPU")


def test_classes_of_attention() -> None:
    assert attended(1024) == attended(960) != attended(1000)  # of 1000 the last block is ragged
    assert attended(1024) != attended(1024, causal=True)


class Kept:
    def __init__(self) -> None:
        self.held: dict[str, Mapping[str, Any]] = {}

    def get(self, key: str) -> Mapping[str, Any] | None:
        return self.held.get(key)

    def put(self, key: str, value: Mapping[str, Any]) -> bool:
        self.held[key] = value
        return True


class Counted(Tuner):
    """Races of runs that say how long they took: a template's tile with many rows takes least."""

    def choose(self, key: str, names: Sequence[str], candidates: object, kin: str = "") -> str:
        made = [Candidate(n, lambda n=n: 1.0 if n.startswith("128x") else 2.0) for n in names]
        return super().choose(key, names, lambda: made, kin)


class Clock:
    def sample(self, run: Any) -> float:
        return float(run())


@pytest.mark.parametrize("rows, races", [(1000, 0), (1024, 0), (2048, 1)])
def test_one_race_is_enough_for_a_class(rows: int, races: int) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> Any:
        return F.gelu(x @ w.t())

    values = Kept()
    first = Counted(values, Clock(), Budget(60.0))
    select(program_of(fn, (1016, 512), (1024, 512)), first, "a GPU")
    assert len(first.outcomes) == 1
    second = Counted(values, Clock(), Budget(60.0))
    made = select(program_of(fn, (rows, 512), (1024, 512)), second, "a GPU")
    assert len(second.outcomes) == races and second.shared == 1 - races
    assert any(choice.startswith("128x") for choice in made.chosen.values())
