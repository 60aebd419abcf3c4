"""Recording and replaying, with a recorder that runs on the CPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from flambeau_inductor.runtime.gpu import cuda_graphs
from flambeau_inductor.runtime.gpu.cuda_graphs import (
    MOST_RECORDINGS,
    PATIENCE,
    WARM_UP,
    Call,
    Recorded,
    RecordedGraph,
    Rules,
    rules_from,
)
from flambeau_inductor.runtime.gpu.recording_policy import MEASURED_AT_ONCE
from flambeau_inductor.runtime.gpu.shared_pool import is_recorded
from flambeau_inductor.tuning import MEASURED

from tests.recorder import Recorder

SIZE = 1000


def _double(args: list[Any]) -> tuple[Any, ...]:
    x, w = args
    made = (x * 2 + w, (x * w).sum())
    args.clear()
    return made


def _made(static: tuple[int, ...] = (), **rules: Any) -> tuple[Recorded, Recorder]:
    recorder = Recorder()
    return Recorded(_double, Rules(static, **rules), recorder), recorder


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


def test_the_library_is_asked_for_its_workspace_before_each_recording() -> None:
    recorder = Recorder()
    for products in (True, True, False):
        recorded = Recorded(_double, Rules((), products=products), recorder)
        for _ in range(WARM_UP + 2):
            _check(recorded, *_inputs())
    assert (recorder.warmed, recorder.recordings) == (2, 3)


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
    assert is_recorded(middle) and not is_recorded(w)
    assert second._recording is not None
    assert second._recording.places == [0]
    assert second._recording.addresses == [middle.data_ptr(), 0]
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
    recorded = Recorded(lambda args: (args[0] + 1,), Rules(), Recorder())
    for _ in range(WARM_UP + 2):
        torch.testing.assert_close(recorded([torch.zeros(2), other])[0], torch.ones(2))
    (reason,) = set(recorded.plain) - {"warming up"}
    assert "input 1 is" in reason and recorded.replays == 0


def test_a_recorder_that_fails_runs_plainly() -> None:
    class Failing(Recorder):
        def record(
            self, call: Call, args: list[Any], pool: Any, copied: Mapping[int, torch.Tensor]
        ) -> RecordedGraph:
            raise RuntimeError("operation not permitted when stream is capturing")

    recorded = Recorded(_double, Rules(), Failing())
    for _ in range(WARM_UP + 2):
        _check(recorded, *_inputs())
    assert (
        recorded.plain["it cannot be recorded: operation not permitted when stream is capturing"]
        == 2
    )


def test_unasked_it_records_where_launches_dominate() -> None:
    recorded, recorder = _made(automatic=True, copies=True)
    held = []
    for _ in range(WARM_UP + 6):
        held.append(_check(recorded, *_inputs()))
    assert recorded.plain == {"warming up": WARM_UP, cuda_graphs.MEASURED: 1}
    assert recorded.replays == 5 and recorder.pools == [
        "shared"
    ]  # results are copies: none is held
    assert not any(is_recorded(each) for made in held for each in made)


def test_unasked_it_does_not_record_where_the_device_takes_longer() -> None:
    recorded, recorder = _made(automatic=True)
    recorder.taken = (1.0, 4.0)
    for _ in range(WARM_UP + MEASURED_AT_ONCE + 4):
        _check(recorded, *_inputs())
    assert recorder.recordings == 0 and recorded.plain[cuda_graphs.BUSY] == 4


def test_a_run_that_ends_late_counts_all_the_same() -> None:
    recorded, recorder = _made(automatic=True)
    recorder.taken = None
    for _ in range(WARM_UP + 2):
        _check(recorded, *_inputs())
    recorder.taken = (1.0, 1.0)
    _check(recorded, *_inputs())
    assert recorded.replays == 1 and recorded.plain[cuda_graphs.MEASURED] == 2


def test_runs_that_others_slowed_down_do_not_decide_for_good() -> None:
    recorded, recorder = _made(automatic=True)
    recorder.taken = (1.0, 4.0)
    for _ in range(WARM_UP + 6):
        _check(recorded, *_inputs())
    recorder.taken = (1.5, 1.2)
    for _ in range(2):  # of which the eighth in all is measured
        _check(recorded, *_inputs())
        assert recorder.recordings == 0
    _check(recorded, *_inputs())
    assert recorder.recordings == 1 and recorded.replays == 1


def test_a_refusal_of_the_process_holds() -> None:
    recorded, recorder = _made(automatic=True)
    recorder.refused = "several processes"
    for _ in range(WARM_UP + 3):
        _check(recorded, *_inputs())
    assert recorder.recordings == 0 and recorded.plain["several processes"] == 3


def test_unasked_it_does_not_copy_large_inputs() -> None:
    recorded, recorder = _made(automatic=True)
    recorder.tuning = replace(MEASURED, moving_bytes=4 * SIZE)
    for _ in range(WARM_UP + 3):
        _check(recorded, *_inputs())
    assert recorder.recordings == 0 and recorded.plain[cuda_graphs.MOVING] == 2
    static, recorder = _made((1,), automatic=True)
    recorder.tuning = replace(MEASURED, moving_bytes=4 * SIZE)
    x, w = _inputs()
    for _ in range(WARM_UP + 3):
        _check(static, x, w)
    assert recorder.recordings == 1


def test_what_no_caller_sees_is_not_copied() -> None:
    recorded, recorder = _made(copies=True, inside=(0,))
    for _ in range(WARM_UP + 2):
        made = _check(recorded, *_inputs())
        assert is_recorded(made[0]) == bool(recorded.replays)
        assert not is_recorded(made[1])
        del made
    assert recorded.replays == 2 and recorder.pools == [None]


def test_nothing_is_replayed_while_the_caller_records() -> None:
    recorded, recorder = _made()
    for _ in range(WARM_UP + 1):
        _check(recorded, *_inputs())
    recorder.recording_elsewhere = True
    _check(recorded, *_inputs())
    assert recorded.replays == 1 and recorded.plain["the caller is recording"] == 1


def test_a_copy_keeps_strides_that_are_not_dense() -> None:
    def turned(args: list[Any]) -> tuple[Any, ...]:
        (x,) = args
        args.clear()
        return (torch.empty_strided((2, 3), (8, 2)).copy_(x),)

    recorded = Recorded(turned, Rules(copies=True), Recorder())
    for _ in range(WARM_UP + 2):
        x = torch.randn(2, 3)
        (got,) = recorded([x])
        assert torch.equal(got, x) and got.stride() == (8, 2)
    assert recorded.replays == 2


def test_a_result_that_is_a_parameter_is_not_recorded() -> None:
    recorded = Recorded(lambda args: (args[0],), Rules((0,)), Recorder())
    w = torch.ones(3)
    for _ in range(WARM_UP + 2):
        assert recorded([w])[0] is w
    assert recorded.plain["it cannot be recorded: a result is an input as it came"] == 2


def test_rules_survive_as_data() -> None:
    rules = Rules((0, 2), (1,), True, True, 77, (1,))
    assert rules_from(json.loads(json.dumps(rules.data()))) == rules
