"""Inputs that a recording updates where they are, with a recorder that runs on the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from flambeau_inductor.runtime.gpu.cuda_graphs import (
    LASTING,
    MOST_RECORDINGS,
    MOVING,
    PATIENCE,
    WARM_UP,
    Recorded,
    Rules,
)
from flambeau_inductor.runtime.gpu.recording_policy import Steady
from flambeau_inductor.tuning import MEASURED
from torch import Tensor

from tests.recorder import Recorder

LARGE = MEASURED.copied_bytes // 4
"""Elements of a gradient that is not copied."""


def _step(args: list[Any]) -> tuple[Any, ...]:
    """`p -= g`, where p is; and how large it was."""
    p, g = args
    before = p.sum()
    p.sub_(g)
    args.clear()
    return p, before


class Optimizer:
    """Parameters that are updated by a recorded step, beside what they ought to be."""

    def __init__(self, size: int, **rules: Any) -> None:
        self.recorder = Recorder()
        given = Rules(inside=(0,), updates=((0, 0),), **rules)
        self.recorded = Recorded(_step, given, self.recorder)
        self.p = torch.randn(size)
        self.want = self.p.clone()

    def step(self, g: Tensor) -> None:
        args = [self.p, g]
        before = self.want.sum()
        made = self.recorded(args)
        assert not args
        torch.testing.assert_close(made[1], before)
        if made[0] is not self.p:  # as who called it does
            self.p.copy_(made[0])
        self.want -= g
        torch.testing.assert_close(self.p, self.want)


def test_an_input_that_is_updated_is_written_where_it_is() -> None:
    own = Optimizer(100)
    g = torch.randn(100)
    for _ in range(WARM_UP + 5):
        own.step(g)
    assert own.recorded.replays == 5 and own.recorder.recordings == 1
    recording = own.recorded._recording
    assert recording is not None and recording.places == [0] and recording.copied == (1,)
    assert own.recorded([own.p, g])[0] is own.p


def test_a_large_gradient_is_read_where_it_is_and_a_small_one_copied() -> None:
    for size, places in ((100, (0,)), (LARGE, (0, 1))):
        own = Optimizer(size)
        g = torch.randn(size)
        for _ in range(WARM_UP + 2):
            own.step(g.normal_())
        assert own.recorded._recording is not None
        assert own.recorded._recording.places == [*places]


def test_without_updates_nothing_is_expected_to_stay() -> None:
    steady = Steady((1,), (), MEASURED.copied_bytes)
    args = [torch.randn(LARGE), torch.randn(LARGE)]
    assert steady.before(args) == {}
    assert not steady(0, args[0]) and steady(1, args[1])


def test_what_moved_once_is_copied_from_then_on() -> None:
    own = Optimizer(LARGE)
    g = torch.randn(LARGE)
    for _ in range(WARM_UP + 2):
        own.step(g)
    for _ in range(PATIENCE + 2 * WARM_UP + 3):
        own.step(torch.randn(LARGE))
    assert own.recorded.plain["input 1 has moved"] == PATIENCE
    assert own.recorded._recording is not None
    assert own.recorded._recording.places == [0] and own.recorder.recordings == 2


def test_other_parameters_are_updated_where_those_are() -> None:
    own = Optimizer(100)
    g = torch.randn(100)
    for _ in range(WARM_UP + 2):
        own.step(g)
    own.p, own.want = own.want.clone(), own.want.clone()
    for _ in range(PATIENCE + 2 * WARM_UP + 3):
        own.step(g)
    assert own.recorded.plain["input 0 has moved"] == PATIENCE
    assert own.recorder.recordings == 2 and own.recorded.replays > 3


def test_what_moves_seldom_is_read_where_it_is_each_time() -> None:
    own = Optimizer(100)
    g = torch.randn(100)
    kept = []
    for move in range(MOST_RECORDINGS + 3):
        kept.append(own.p)  # so that the next one is elsewhere
        own.p = own.p.clone()
        for _ in range(LASTING + 2 + (0 if move else WARM_UP)):
            own.step(g)
        recording = own.recorded._recording
        assert recording is not None and recording.places == [0] and recording.copied == (1,)
        assert own.recorder.recordings == move + 1
        assert own.recorded.plain["input 0 has moved"] == move


def test_one_call_elsewhere_keeps_the_recording() -> None:
    own = Optimizer(100)
    g = torch.randn(100)
    for _ in range(WARM_UP + LASTING + 1):
        own.step(g)
    at, other = own.p, own.p.clone()
    for p in (other, at, other, at):
        p.copy_(own.p)
        own.p = p
        own.step(g)
    assert own.recorder.recordings == 1 and own.recorded.plain["input 0 has moved"] == 2


def test_what_moves_at_each_call_is_copied_after_all() -> None:
    own = Optimizer(LARGE)
    g = torch.randn(LARGE)
    for _ in range(WARM_UP + LASTING + 1):
        own.step(g)
    kept = [torch.randn(LARGE) for _ in range(PATIENCE + 2 * WARM_UP + 3)]
    for each in kept:
        own.step(each)
    recording = own.recorded._recording
    assert recording is not None and recording.places == [0] and recording.copied == (1,)
    assert own.recorder.recordings == 2


def test_gradients_that_move_much_keep_an_unasked_recording_from_being_made() -> None:
    own = Optimizer(LARGE, automatic=True)
    own.recorder.tuning = replace(MEASURED, moving_bytes=LARGE)
    own.recorder.taken = (1.0, 0.1)
    kept = [torch.randn(LARGE) for _ in range(40)]
    for g in kept:
        own.step(g)
    assert own.recorded.plain[MOVING] > 0 and own.recorder.recordings == 0
