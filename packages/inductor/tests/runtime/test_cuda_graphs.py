"""Recording and replaying, with a recorder that runs on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from flambeau_inductor.runtime import cuda_graphs
from flambeau_inductor.runtime.cuda_graphs import MOST_RECORDINGS, PATIENCE, WARM_UP, Recorded

SIZE = 1000


class Recorder:
    """Replays by running again, into the outputs of the recording."""

    device_type = "cpu"

    def __init__(self) -> None:
        self.current = 1
        self.recordings = 0

    def stream(self) -> int:
        return self.current

    def record(self, run: Callable[[], tuple[Any, ...]]) -> tuple[Callable[[], None], Any]:
        self.recordings += 1
        outputs = run()
        for output in outputs:
            output.fill_(-7)  # nothing is computed while recording

        def replay() -> None:
            for output, value in zip(outputs, run(), strict=True):
                output.copy_(value)

        return replay, outputs


def _double(args: list[Any]) -> tuple[Any, ...]:
    x, w = args
    made = (x * 2 + w, (x * w).sum())
    args.clear()
    return made


def _made(static: tuple[int, ...] = ()) -> tuple[Recorded, Recorder]:
    recorder = Recorder()
    return Recorded(_double, static, recorder), recorder


def _check(recorded: Recorded, x: torch.Tensor, w: torch.Tensor) -> tuple[Any, ...]:
    args = [x, w]
    got = recorded(args)
    assert not args
    torch.testing.assert_close(got[0], x * 2 + w)
    torch.testing.assert_close(got[1], (x * w).sum())
    return got


def _inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(SIZE), torch.randn(SIZE)


def test_calls_are_replays_after_warming_up() -> None:
    recorded, recorder = _made()
    for _ in range(WARM_UP + 4):
        _check(recorded, *_inputs())
    assert recorded.replays == 4 and recorder.recordings == 1
    assert recorded.plain == {"warming up": WARM_UP}


def test_an_output_that_is_held_is_not_overwritten() -> None:
    recorded, _ = _made()
    for _ in range(WARM_UP):
        _check(recorded, *_inputs())
    held, expected = [], []
    for _ in range(PATIENCE + 5):
        x, w = _inputs()
        held.append(_check(recorded, x, w))
        expected.append((x * 2 + w, (x * w).sum()))
    for got, want in zip(held, expected, strict=True):
        torch.testing.assert_close(got, want)
    assert recorded.plain[cuda_graphs.HELD] == PATIENCE
    assert recorded.replays > 1  # it copies its outputs out from then on


def test_a_view_of_an_output_counts_as_held() -> None:
    recorded, _ = _made()
    for _ in range(WARM_UP):
        _check(recorded, *_inputs())
    view = _check(recorded, *_inputs())[0][3:5]
    before = view.clone()
    _check(recorded, *_inputs())
    assert torch.equal(view, before) and recorded.plain[cuda_graphs.HELD] == 1
    del view
    _check(recorded, *_inputs())
    assert recorded.replays == 2


def test_a_parameter_is_read_in_place_and_its_address_checked() -> None:
    recorded, recorder = _made(static=(1,))
    w = torch.randn(SIZE)
    for _ in range(WARM_UP + 2):
        _check(recorded, torch.randn(SIZE), w)
        w.add_(1)  # an optimizer's step
    assert recorded.replays == 2
    moved = torch.randn(SIZE)
    for _ in range(PATIENCE + WARM_UP + 2):
        _check(recorded, torch.randn(SIZE), moved)
    assert recorded.plain["input 1 has moved"] == PATIENCE
    assert recorder.recordings == 2 and recorded.replays == 4


def test_the_output_of_another_recording_is_read_in_place() -> None:
    first, _ = _made()
    second, _ = _made()
    w = torch.randn(SIZE)
    for _ in range(WARM_UP + 1):
        middle = first([torch.randn(SIZE), w])[0]
        _check(second, middle, w)
    assert cuda_graphs.is_recorded(middle) and not cuda_graphs.is_recorded(w)
    assert second._recording is not None
    assert second._recording.pinned == ((0, middle.data_ptr()),)
    assert second._recording.copied == (1,)


def test_another_stream_runs_plainly() -> None:
    recorded, recorder = _made()
    for _ in range(WARM_UP + 1):
        _check(recorded, *_inputs())
    recorder.current = 2
    _check(recorded, *_inputs())
    recorder.current = 1
    _check(recorded, *_inputs())
    assert recorded.plain["another stream"] == 1 and recorded.replays == 2


def test_what_keeps_changing_is_given_up() -> None:
    recorded, recorder = _made(static=(1,))
    for _ in range(MOST_RECORDINGS * (PATIENCE + WARM_UP + 2)):
        _check(recorded, *_inputs())
    assert recorder.recordings == MOST_RECORDINGS
    assert any("recordings did not fit" in reason for reason in recorded.plain)


@pytest.mark.parametrize("other", [3, torch.randn(SIZE, device="meta")])
def test_what_cannot_be_recorded_runs_plainly(other: Any) -> None:
    recorded = Recorded(lambda args: (args[0] + 1,), (), Recorder())
    for _ in range(WARM_UP + 2):
        torch.testing.assert_close(recorded([torch.zeros(2), other])[0], torch.ones(2))
    (reason,) = set(recorded.plain) - {"warming up"}
    assert "input 1 is" in reason and recorded.replays == 0


def test_a_recorder_that_fails_runs_plainly() -> None:
    class Failing(Recorder):
        def record(self, run: Callable[[], tuple[Any, ...]]) -> Any:
            raise RuntimeError("operation not permitted when stream is capturing")

    recorded = Recorded(_double, (), Failing())
    for _ in range(WARM_UP + 2):
        _check(recorded, *_inputs())
    assert (
        recorded.plain["it cannot be recorded: operation not permitted when stream is capturing"]
        == 2
    )
