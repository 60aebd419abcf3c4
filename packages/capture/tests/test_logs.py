"""Artifacts through `logging`: who asks, gets; nobody else pays."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import flambeau_capture as fc
import pytest
import torch
from flambeau_capture.observe import logs


@pytest.fixture(autouse=True)
def _quiet_afterwards() -> Iterator[None]:
    yield
    fc.set_logs()


def _branching(x: torch.Tensor, n: int = 2) -> torch.Tensor:
    y = x * n
    return y if y.sum() > 0 else -y


def _run(names: str) -> str:
    stream = io.StringIO()
    fc.set_logs(names, stream=stream)
    compiled = fc.compile(_branching)
    compiled(torch.ones(3))
    compiled(torch.ones(3), 3)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("graph", "__compiled_fn_0"),
        ("bytecode", "MODIFIED BYTECODE"),
        ("guards", "local 'x' TENSOR_MATCH"),
        ("breaks", "return y if y.sum() > 0 else -y"),
        ("recompiles", "local 'n' CONSTANT_MATCH expected 2, got 3"),
        ("frames", "in the backend"),
        ("instructions", "_branching line"),
    ],
)
def test_an_artifact_is_shown_when_asked_for(name: str, expected: str) -> None:
    assert set(logs.ARTIFACTS) >= {name}
    shown = _run(name)
    assert expected in shown
    assert all(
        line.startswith(f"[flambeau_capture.{name}]")
        for line in shown.splitlines()
        if line.startswith("[flambeau_capture")
    )


def test_nothing_is_shown_when_nobody_asks() -> None:
    assert _run("") == ""
    assert not any(logs.wanted(name) for name in logs.ARTIFACTS)


def test_all_stands_for_every_artifact() -> None:
    fc.set_logs("all", stream=io.StringIO())
    assert all(logs.wanted(name) for name in logs.ARTIFACTS)


def test_an_unknown_artifact_is_named() -> None:
    with pytest.raises(ValueError, match="no artifact named 'grpah'; there are graph, bytecode"):
        fc.set_logs("guards,grpah")


def test_a_handler_of_the_program_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger("flambeau_capture")
    own = logging.StreamHandler(io.StringIO())
    root.addHandler(own)
    try:
        fc.set_logs("frames", stream=io.StringIO())
        assert root.handlers == [own]
    finally:
        root.removeHandler(own)


def test_the_environment_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_LOGS", "guards,fusion")  # fusion is another layer's
    fc.compile(_branching)
    assert logs.wanted("guards") and not logs.wanted("graph")
