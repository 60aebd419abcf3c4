"""A backward recording in the memory of its forward one: nothing that somebody holds is lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from flambeau_inductor._torch_compat import storage_handle, storage_users
from flambeau_inductor.runtime.gpu.cuda_graphs import HELD, LENT, PATIENCE, WARM_UP, Recorded, Rules
from flambeau_inductor.runtime.gpu.shared_pool import RECORDED, is_recorded

from tests.recorder import Recorder

SIZE = 500


def _forward(args: list[Any]) -> tuple[Any, ...]:
    x, w = args
    args.clear()
    wide = x * w
    return wide.sin().sum(), wide.cos(), x + 0


def _backward(args: list[Any]) -> tuple[Any, ...]:
    slope, x, w, grad = args
    args.clear()
    along = slope * grad
    del slope
    return along * x, along * w


class Step:
    """A forward and a backward graph, as autograd calls them, against what they should give."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.w = torch.randn(SIZE)
        self.forward = Recorded(_forward, Rules((1,), inside=(1, 2), copies=True), self.recorder)
        self.backward = Recorded(_backward, Rules((2,), reusable=(0, 1)), self.recorder)

    def forth(self) -> tuple[torch.Tensor, list[torch.Tensor]]:
        x = torch.randn(SIZE)
        loss, *saved = self.forward([x, self.w])
        torch.testing.assert_close(loss, (x * self.w).sin().sum())
        self.wanted = [(x * self.w).cos() * 2 * x, (x * self.w).cos() * 2 * self.w]
        return loss, saved

    def back(self, saved: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        args = [*saved, self.w, torch.tensor(2.0)]
        saved.clear()
        made = self.backward(args)
        assert not args
        for got, want in zip(made, self.wanted, strict=True):
            torch.testing.assert_close(got, want)
        return made

    def once(self) -> tuple[torch.Tensor, ...]:
        return self.back(self.forth()[1])

    def recorded(self) -> Step:
        for _ in range(WARM_UP + 1):
            self.once()
        assert self.forward.replays == self.backward.replays == 1
        return self


def test_the_backward_is_recorded_in_the_forwards_memory() -> None:
    step = Step().recorded()
    first, second = step.recorder.pools
    assert first is None and second is not None
    for _ in range(4):
        step.once()
    assert step.forward.replays == step.backward.replays == 5
    assert step.forward.plain == step.backward.plain == Counter({"warming up": WARM_UP})


def test_only_the_call_holds_what_was_lent() -> None:
    """It can be given away as soon as the backward has read it for the last time."""
    step = Step()
    counts: list[int] = []

    def watched(args: list[Any]) -> tuple[Any, ...]:
        slope, x, w, grad = args
        args.clear()
        handle = storage_handle(slope)
        before = storage_users(handle)
        along = slope * grad
        del slope
        counts.append(before - storage_users(handle))
        counts.append(storage_users(handle))
        return along * x, along * w

    step.backward._call = watched
    for _ in range(WARM_UP):
        step.once()
    counts.clear()
    step.once()
    released, left = counts[:2]
    assert released == 1 and left == 1  # the recorder of these tests keeps all memory


def test_gradients_that_are_held_are_not_written_over() -> None:
    step = Step().recorded()
    for _ in range(PATIENCE + 2 * WARM_UP + 8):
        held = step.once()
        copies = [each.clone() for each in held]
        _, saved = step.forth()
        for each, copy in zip(held, copies, strict=True):
            assert torch.equal(each, copy)
        del held, each
        step.back(saved)
    assert step.forward.plain[LENT] == PATIENCE
    # apart from each other from then on: both are replayed again
    assert step.recorder.pools[-2:] == [None, None]
    replays = step.forward.replays, step.backward.replays
    step.once()
    assert (step.forward.replays, step.backward.replays) == (replays[0] + 1, replays[1] + 1)


def test_two_forward_passes_before_their_backward_passes() -> None:
    step = Step().recorded()
    _, first = step.forth()
    wanted = step.wanted
    _, second = step.forth()
    assert is_recorded(first[0]) and not is_recorded(second[0])
    step.back(second)
    step.wanted = wanted
    step.back(first)


def test_a_graph_that_is_kept_gives_its_gradients_twice() -> None:
    """Whoever keeps a graph hands in copies of what may be overwritten."""
    step = Step().recorded()
    _, saved = step.forth()
    step.back([each.clone() for each in saved])
    step.back(saved)
    assert step.backward.plain["input 0 has moved"] == 1


def test_a_forward_pass_without_a_backward_pass() -> None:
    step = Step().recorded()
    step.forth()
    step.forth()
    step.once()
    assert step.forward.replays == 4 and not step.forward.plain[LENT]


def test_what_a_caller_sees_is_not_lent() -> None:
    step = Step()
    step.forward = Recorded(_forward, Rules((1,), inside=(1,)), step.recorder)
    for _ in range(WARM_UP + 3):
        x = torch.randn(SIZE)
        loss, slope, seen = step.forward([x, step.w])
        step.wanted = [(x * step.w).cos() * 2 * x, (x * step.w).cos() * 2 * step.w]
        step.back([slope, seen])
        torch.testing.assert_close(seen, x)
        torch.testing.assert_close(loss, (x * step.w).sin().sum())
        del loss, slope, seen
    assert step.backward.replays == 3 and step.recorder.pools[1] is not None


def test_an_input_that_is_read_elsewhere_is_not_lent() -> None:
    step = Step()
    step.backward = Recorded(_backward, Rules((2,), reusable=()), step.recorder)
    for _ in range(WARM_UP + 3):
        step.once()
    assert step.backward.replays == 3 and step.recorder.pools == [None, None]


def test_memory_of_another_stream_is_not_lent() -> None:
    step = Step()
    for _ in range(WARM_UP):
        step.once()
    _, saved = step.forth()
    step.recorder.current = 2
    step.back(saved)
    assert step.recorder.pools == [None, None]


def test_a_backward_that_cannot_be_recorded_leaves_the_forward_right() -> None:
    step = Step()

    def failing(args: list[Any]) -> tuple[Any, ...]:
        if step.forward.replays and not step.backward.plain.total() > WARM_UP:
            raise RuntimeError("operation not permitted when stream is capturing")
        return _backward(args)

    step.backward._call = failing
    for _ in range(WARM_UP):
        step.once()
    for _ in range(3):
        step.once()
    assert step.forward.replays == 3 and step.backward.replays == 0


def test_a_loan_is_taken_once() -> None:
    step = Step().recorded()
    other = Recorded(_backward, Rules((2,), reusable=(0, 1)), step.recorder)
    for _ in range(WARM_UP + 2):
        _, saved = step.forth()
        args = [*saved, step.w, torch.tensor(2.0)]
        del saved
        for got, want in zip(other(args), step.wanted, strict=True):
            torch.testing.assert_close(got, want)
        del got
    assert other.replays == 2 and step.recorder.pools[-1] is None


def test_saved_values_are_seen_through_one_storage() -> None:
    """Whether any is held is one question; where each lies, another recording still knows."""
    step = Step().recorded()
    recording = step.forward._recording
    assert recording is not None and recording.loan is not None
    assert recording.handles == (recording.loan.handle,) and len(recording.handed_out) == 2
    _, saved = step.forth()
    addresses = [each.data_ptr() for each in saved]
    assert [RECORDED.home(each) for each in saved] == addresses
    assert sorted(addresses) == [*recording.loan.starts]
    held = saved[1][1:]
    step.back(saved)
    step.once()
    assert step.forward.plain[HELD] == 1
    del held
    step.once()
    assert step.forward.plain[HELD] == 1
