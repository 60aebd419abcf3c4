"""Large tensors: their layout, what the system is asked for, and that it may refuse."""

from __future__ import annotations

import mmap

import pytest
import torch
from flambeau_inductor.runtime.cpu import huge_pages


def test_layout_and_dtype() -> None:
    made = huge_pages.empty_large((1024, 2048), (1, 1024), torch.float64)
    assert made.shape == (1024, 2048)
    assert made.stride() == (1, 1024)
    assert made.dtype == torch.float64
    made.fill_(2.0)
    assert float(made.sum()) == 2.0 * made.numel()


def test_asks_for_whole_pages_inside_the_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(huge_pages, "_advise", lambda begin, size: asked.append((begin, size)))
    monkeypatch.setattr(huge_pages, "_given", {})
    made = huge_pages.empty_large((3, 700_001), (700_001, 1), torch.float32)
    ((begin, size),) = asked
    assert begin % mmap.PAGESIZE == 0 and size % mmap.PAGESIZE == 0
    assert made.data_ptr() <= begin
    assert begin + size <= made.data_ptr() + 4 * made.numel()
    assert size > 4 * made.numel() - 2 * mmap.PAGESIZE


def test_memory_that_is_handed_out_again_is_hinted_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(huge_pages, "_advise", lambda begin, size: asked.append((begin, size)))
    monkeypatch.setattr(huge_pages, "_given", {})
    same = torch.empty(1 << 20)
    monkeypatch.setattr(torch, "empty_strided", lambda *a, **k: same)
    for _ in range(huge_pages.AGAIN + 1):
        huge_pages.empty_large((1 << 20,), (1,), torch.float32)
    assert len(asked) == 2
    monkeypatch.setattr(huge_pages, "RETURNED", 1 << 20)
    for _ in range(3):
        huge_pages.empty_large((1 << 20,), (1,), torch.float32)
    assert len(asked) == 5


def test_a_refusal_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_advise", lambda begin, size: -1)
    assert huge_pages.empty_large((8, 8), (8, 1), torch.int64).zero_().sum() == 0


def test_not_asked_where_the_system_decides_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Always:
        def read_text(self) -> str:
            return "[always] madvise never"

    monkeypatch.setattr(huge_pages, "SETTING", Always())
    assert huge_pages._adviser() is None
