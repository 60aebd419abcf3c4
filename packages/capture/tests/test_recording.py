"""A frame that capture fails on is recorded, and replayed without its program."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import warnings
from typing import Any

import flambeau_capture as fc
import pytest
import torch
from flambeau_capture.observe import frame_recording
from flambeau_capture.source import FrameCall
from flambeau_capture.values.functions.call_rules import RULES, handles

SHIFT = 3.0


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.fixture
def failing() -> Any:
    """A function whose handler in capture has a fault."""

    def planted() -> float:
        return 1.0

    def handler(*given: Any) -> Any:
        raise RuntimeError("planted fault")

    handles(planted)(handler)
    yield planted
    del RULES[planted]


def _recorded(folder: pathlib.Path) -> str:
    (path,) = folder.glob("*.frame")
    return str(path)


def test_a_failing_frame_is_recorded_and_runs_eagerly(
    failing: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLAMBEAU_FAULTS", raising=False)

    def frame(x: torch.Tensor, *rest: float, scale: float = 2.0, **named: float) -> torch.Tensor:
        return doubled(x) * scale + SHIFT + sum(rest) + named["k"] + failing()

    compiled = fc.compile(frame, record_failures=str(tmp_path))
    x = torch.randn(3)
    with pytest.warns(fc.CaptureWarning, match=r"planted fault.*replay\("):
        got = compiled(x, 1.0, 2.0, scale=4.0, k=5.0)
    torch.testing.assert_close(got, frame(x, 1.0, 2.0, scale=4.0, k=5.0))

    state = frame_recording.load(_recorded(tmp_path))
    assert "planted fault" in state.error and state.missing == ()
    rule = RULES.pop(failing)
    replayed = fc.replay(_recorded(tmp_path), fullgraph=True)
    RULES[failing] = rule
    torch.testing.assert_close(replayed, got)


def test_a_replay_raises_the_fault(tmp_path: pathlib.Path) -> None:
    def frame(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def refuses(module: Any, inputs: Any) -> Any:
        raise RuntimeError("no")

    path = frame_recording.record(
        str(tmp_path),
        FrameCall(frame.__code__, frame, {"x": torch.zeros(2)}, {}),
        RuntimeError("was here"),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(fc.replay(path), torch.ones(2))
    with pytest.raises(fc.BackendError, match="no"):
        fc.replay(path, backend=refuses, fullgraph=True)


def test_what_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    with open(os.devnull) as handle:
        path = frame_recording.record(
            str(tmp_path),
            FrameCall(doubled.__code__, doubled, {"x": handle}, {}),
            RuntimeError("x"),
        )
    (lost,) = frame_recording.load(path).missing
    assert lost.startswith("argument x: TextIOWrapper")
    with pytest.raises(fc.ReplayError, match="lacks argument x"):
        fc.replay(path)


def test_another_process_replays(tmp_path: pathlib.Path) -> None:
    local = 5

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * local

    def frame(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + torch.ones(2)

    path = frame_recording.record(
        str(tmp_path),
        FrameCall(frame.__code__, frame, {"x": torch.ones(2)}, {"inner": inner}),
        KeyError(),
    )
    program = f"import flambeau_capture as fc; print(fc.replay({path!r}).tolist())"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[6.0, 6.0]"


@pytest.mark.parametrize("content", [b"", b"not a record", b"\x80\x04}."])
def test_a_broken_record_is_refused(content: bytes, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "broken.frame"
    path.write_bytes(content)
    with pytest.raises(fc.ReplayError, match=r"broken\.frame"):
        fc.replay(str(path))


def test_only_the_named_function_is_captured() -> None:
    seen: list[str] = []

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.append(str(module.graph))
        return module

    def outer(x: torch.Tensor) -> torch.Tensor:
        return doubled(x) + 1

    x = torch.randn(3)
    got = fc.compile(outer, backend, debug_function="doubled")(x)
    torch.testing.assert_close(got, x * 2 + 1)
    assert len(seen) == 1 and "mul" in seen[0] and "add" not in seen[0]


def test_the_environment_names_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_DEBUG_FUNCTION", "doubled")
    monkeypatch.setenv("FLAMBEAU_RECORD_FAILURES", "somewhere")
    options = fc.Options().with_environment()
    assert (options.debug_function, options.record_failures) == ("doubled", "somewhere")
    chosen = fc.Options(debug_function="other").with_environment()
    assert chosen.debug_function == "other"
