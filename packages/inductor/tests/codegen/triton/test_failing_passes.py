"""Kernels that a pass of Triton's own fails on: they are compiled again with more warps."""

from __future__ import annotations

from typing import Any

import pytest
from flambeau_inductor.codegen.triton.build import MOST_WARPS, _passed

triton = pytest.importorskip("triton")
FAILED = "PassManager::run failed"


def _compiler(monkeypatch: pytest.MonkeyPatch, message: str, below: int) -> list[int]:
    """The warps that were tried, of a compiler that raises where they are fewer than `below`."""
    tried: list[int] = []

    def compile_(source: str, target: None, options: dict[str, Any]) -> str:
        tried.append(options["num_warps"])
        if options["num_warps"] < below:
            raise RuntimeError(message)
        assert options["enable_fp_fusion"] is False
        return source

    monkeypatch.setattr(triton, "compile", compile_)
    return tried


def _made(warps: int) -> str:
    made: str = _passed("kernel", None, {"num_warps": warps, "enable_fp_fusion": False})
    return made


@pytest.mark.parametrize(("first", "below"), [(1, 1), (1, 2), (2, 4), (1, 8)])
def test_more_warps_are_tried(monkeypatch: pytest.MonkeyPatch, first: int, below: int) -> None:
    tried = _compiler(monkeypatch, FAILED, below)
    assert _made(first) == "kernel"
    assert tried == [n for n in (1, 2, 4, 8) if first <= n <= below]


def test_what_never_compiles_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = _compiler(monkeypatch, FAILED, 99)
    with pytest.raises(RuntimeError, match=FAILED):
        _made(2)
    assert tried[-1] == MOST_WARPS


def test_other_errors_are_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = _compiler(monkeypatch, "no room", 99)
    with pytest.raises(RuntimeError, match="no room"):
        _made(1)
    assert tried == [1]
