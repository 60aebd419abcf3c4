"""Frames are timed in both forms, and the faster stays: those with breaks by a clock of the test's
own, those of one graph by the frame hook."""

import itertools
import threading
import time

import pytest
import torch
from flambeau_capture import disable, optimize
from flambeau_capture.api import compiler_of
from flambeau_capture.frame.timing_trials import (
    CALLS,
    FEW,
    LONG,
    MARGIN,
    MOST,
    QUIET,
    SURE,
    TURNS,
    EntryTrial,
    certainty,
)
from torch.utils._python_dispatch import TorchDispatchMode


class Clock:
    """A frame takes `plain` seconds as it is, and `more` for each compiled graph in it."""

    def __init__(self, plain, more, jitter=()):
        self.now, self.plain, self.more = 0.0, plain, more
        self.jitter = itertools.cycle(jitter or (0.0,))
        self.graphs = 0

    def backend(self, module, inputs):
        self.graphs += 1

        def run(*args):
            self.now += self.more
            return module(*args)

        return run

    def __call__(self):
        self.now += self.plain * (1 + next(self.jitter))
        return self.now


def broken(x):
    x = x + 1
    print(end="")
    return x * 2


def whole(x):
    return x * 2 + 1


def tried(fn, clock, **choices):
    made = optimize(clock.backend, raise_internal_errors=True, **choices)(fn)
    compiler_of(made).converter.clock = clock
    return made


def plain_frames(fn):
    return compiler_of(fn).cache.counters()["plain_frames"]


def run(fn, calls=60, of=broken):
    for turn in range(calls):
        assert torch.equal(fn(torch.ones(2) * turn), of(torch.ones(2) * turn))


@pytest.mark.parametrize("jitter", [(), (0.0, 0.02, 0.01, 0.03, 0.015, 0.0, 0.04)])
@pytest.mark.parametrize("more", [0.2, 0.5, 10.0])
def test_a_slower_frame_runs_as_it_is(more, jitter):
    clock = Clock(1.0, more, jitter)
    fn = tried(broken, clock)
    run(fn)
    (text,) = compiler_of(fn).records.settled
    assert "broken" in text and "runs as it is" in text
    before, now = plain_frames(fn), clock.now
    run(fn, 20)
    assert plain_frames(fn) == before + 20
    assert clock.now == now  # nobody reads the clock any more, and no graph runs


@pytest.mark.parametrize("more", [-0.3, -0.1, 0.0, 0.01])
def test_a_frame_that_is_not_slower_stays_compiled(more):
    clock = Clock(1.0, more)
    fn = tried(broken, clock)
    run(fn)
    assert compiler_of(fn).records.settled == []
    before, now = plain_frames(fn), clock.now
    run(fn, 20)
    assert plain_frames(fn) == before and clock.now == pytest.approx(now + 40 * more)
    (entry,) = compiler_of(fn).cache.entries(broken.__code__)
    verdict, before = entry.verdict  # of both forms, and after how many calls
    assert not verdict.slower and verdict.compiled - verdict.plain == pytest.approx(2 * more)
    assert before < entry.hits - 20


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("forward", [-0.2, 0.2])
def test_the_backward_pass_of_a_frame_in_parts_is_part_of_a_call(forward, requires_grad):
    clock, backward = Clock(1.0, forward), -4 * forward
    fn = tried(broken, clock)
    x = torch.ones(2, requires_grad=requires_grad)
    for _ in range(60):
        graphs = clock.now
        y = fn(x)
        clock.now += backward if clock.now - graphs != pytest.approx(2.0) else 0.0
    slower = (backward if requires_grad else forward) > 0
    assert [text.count("runs as it is") for text in compiler_of(fn).records.settled] == [1] * slower
    assert y.requires_grad == requires_grad


def test_short_calls_are_tried_more_often():
    clock = Clock(1e-3, 0.0, (0.5, -0.5, 0.1, -0.4, 0.45, -0.2, 0.3))
    fn = tried(broken, clock)
    run(fn, 200)
    assert MOST < plain_frames(fn) <= TURNS + 1


def test_what_chance_explains_decides_nothing():
    clock = Clock(1.0, 0.0, (0.5, -0.5, 0.1, -0.4, 0.45, -0.2, 0.3))
    fn = tried(broken, clock)
    run(fn, 100)
    assert compiler_of(fn).records.settled == []
    assert plain_frames(fn) <= 30


def test_a_frame_of_one_graph_is_tried_for_a_backend_made_for_speed_alone():
    fn = tried(whole, Clock(1.0, 10.0))
    run(fn, 200, of=whole)
    assert plain_frames(fn) == 0


def test_a_graph_that_the_backend_gave_up_is_tried():
    clock = Clock(1.0, 10.0)

    def refusing(module, inputs):
        module.meta["fallback"] = "not today"
        return clock.backend(module, inputs)

    fn = optimize(refusing)(whole)
    compiler_of(fn).converter.clock = clock
    run(fn, of=whole)
    assert len(compiler_of(fn).records.settled) == 1


class Quiet(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def left_alone(x):
    return x * 2


def under_a_mode(x):
    x = x + 1
    with Quiet():
        return left_alone(x)


def test_calls_that_are_left_alone_do_not_delay_it():
    fn = tried(under_a_mode, Clock(1.0, 10.0))
    run(fn, of=under_a_mode)
    assert any(name == "left_alone" for name, _ in compiler_of(fn).records.skipped)
    assert len(compiler_of(fn).records.settled) == 1


def test_it_can_be_switched_off():
    fn = tried(broken, Clock(1.0, 10.0), never_slower=False)
    run(fn)
    assert plain_frames(fn) == 0


def test_only_the_outermost_frame_is_tried_at_a_time():
    clock = Clock(1.0, 10.0)
    inner = disable(lambda x: x)

    def outer(x):
        x = broken(x)
        inner(x)
        return [broken(each) for each in (x, x + 1)]

    fn = tried(outer, clock)
    for turn in range(60):
        ours, theirs = fn(torch.ones(2) * turn), outer(torch.ones(2) * turn)
        assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))
    assert any("outer" in text for text in compiler_of(fn).records.settled)


def test_what_is_decided_is_forgotten_by_reset():
    clock = Clock(1.0, 10.0)
    fn = tried(broken, clock)
    run(fn)
    before = clock.graphs
    compiler_of(fn).reset()
    run(fn, 1)
    assert clock.graphs > before


def test_neither_form_changes_what_the_program_does():
    """Random numbers, effects, errors and gradients are eager's, whichever form runs."""

    def program(x, state):
        state.append(len(state))
        y = torch.nn.functional.dropout(x, 0.5) + torch.rand(2)
        print(end="")
        if len(state) % 7 == 0:
            raise ValueError(len(state))
        return y * torch.randn(2)

    def history(fn):
        torch.manual_seed(3)
        state, found = [], []
        x = torch.ones(2, requires_grad=True)
        for _ in range(50):
            try:
                y = fn(x, state)
                y.sum().backward()
                found.append(y.tolist())
            except ValueError as error:
                found.append(str(error))
        return found, state, x.grad.tolist(), torch.rand(3).tolist()

    fn = tried(program, Clock(1.0, 0.5))
    assert history(fn) == history(program)
    assert plain_frames(fn) > 5


class Looking(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", ["deterministic", "dispatch", "numbers"])
def test_where_forms_may_differ_nothing_is_tried(mode):
    clock = Clock(1.0, 10.0)
    if mode == "numbers":
        backend = lambda module, inputs: clock.backend(module, inputs)  # noqa: E731
        backend.own_numbers = True
        fn = optimize(backend)(broken)
        compiler_of(fn).converter.clock = clock
    else:
        fn = tried(broken, clock)
    if mode == "deterministic":
        torch.use_deterministic_algorithms(True)
    try:
        if mode == "dispatch":
            run(fn, 3)
            with Looking():
                before = plain_frames(fn)
                fn(torch.ones(2))
            assert plain_frames(fn) == before
            return
        run(fn)
        assert plain_frames(fn) == 0
    finally:
        torch.use_deterministic_algorithms(False)


def test_threads_take_turns():
    clock = Clock(1.0, 10.0)
    fn = tried(broken, clock)
    run(fn, 5)
    failed = []

    def work():
        try:
            run(fn, 30)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    run(fn, 60)
    assert len(compiler_of(fn).records.settled) == 1


def test_certainty_is_that_of_the_rank_test():
    slow, fast = [2.0, 2.1, 2.2, 2.3, 2.4], [1.0, 1.1, 1.2, 1.3, 1.4]
    assert certainty(slow, fast) > SURE and certainty(fast, slow) < -SURE
    assert certainty(fast, fast) == 0.0
    assert certainty([1.0] * 5, [MARGIN] * 5) < -SURE


class Slow:
    """A backend made for speed whose graphs take 0.4 ms too long where the first size is small."""

    made_for_speed = True

    def __init__(self, small=8):
        self.small, self.runs = small, 0

    def __call__(self, module, inputs):
        def run(*args):
            self.runs += 1
            if next(x for x in args if isinstance(x, torch.Tensor)).shape[0] <= self.small:
                time.sleep(4e-4)
            return module(*args)

        return run


def short_nap(x):
    """Takes 0.1 ms, and none of it where it is compiled."""
    return x * 2 + 1 if torch.compiler.is_compiling() else time.sleep(1e-4) or x * 2 + 1


def whole_slow(fn=whole, backend=None, **choices):
    backend = backend or Slow()
    return optimize(backend, raise_internal_errors=True, **choices)(fn), backend


ENOUGH = CALLS * (QUIET + 2 * TURNS) + CALLS


def test_a_slow_frame_of_one_graph_runs_as_it_is_and_few_calls_ask_the_guards():
    fn, backend = whole_slow()
    run(fn, ENOUGH, of=whole)
    (text,) = compiler_of(fn).records.settled
    assert "whole" in text and "runs as it is" in text and "in parts" not in text
    counted, runs = compiler_of(fn).cache.counters(), backend.runs
    run(fn, 100, of=whole)
    now = compiler_of(fn).cache.counters()
    assert backend.runs == runs and now["calls"] == counted["calls"] + 100
    assert now["plain_frames"] == counted["plain_frames"] + 100 and now["hits"] == counted["hits"]
    compiler_of(fn).reset()
    run(fn, 1, of=whole)
    assert backend.runs == runs + 1


def test_the_form_is_of_an_entry_and_the_other_sizes_stay_compiled():
    fn, backend = whole_slow(short_nap, dynamic=False)
    small, large = torch.ones(2), torch.ones(40)
    for _ in range(ENOUGH):
        fn(small), fn(large)
    runs = backend.runs
    for _ in range(50):
        assert torch.equal(fn(small), whole(small)) and torch.equal(fn(large), whole(large))
    assert backend.runs == runs + 50
    for _ in range(200):
        fn(small)
    runs = backend.runs
    for _ in range(100):  # the guards are asked again soon enough
        fn(large)
    assert backend.runs >= runs + 100 - 48


def test_where_one_graph_is_wanted_every_call_asks_the_guards():
    fn, backend = whole_slow(nopython=True)
    run(fn, ENOUGH + 100, of=whole)
    runs = backend.runs
    assert plain_frames(fn) > 100
    for _ in range(3):
        fn(torch.ones(40))
    assert backend.runs == runs + 3


def test_a_fast_frame_of_one_graph_stays_compiled():
    fn, backend = whole_slow(short_nap, Slow(small=0))
    run(fn, ENOUGH, of=whole)
    assert compiler_of(fn).records.settled == []
    runs = backend.runs
    run(fn, 50, of=whole)
    assert backend.runs == runs + 50


def test_one_graph_in_either_form_does_what_the_program_does():
    def program(x, state):
        state["calls"] += 1
        y = torch.nn.functional.dropout(x, 0.5) * torch.rand(2)
        return y + torch.randn(2), state["calls"]

    def history(fn):
        torch.manual_seed(3)
        state, found = {"calls": 0}, []
        x = torch.ones(2, requires_grad=True)
        for _ in range(150):
            y, count = fn(x, state)
            y.sum().backward()
            found.append((y.tolist(), count))
        return found, state, x.grad.tolist(), torch.rand(3).tolist()

    fn, _ = whole_slow(program, dynamic=True)
    assert history(fn) == history(program)


def entry_trial(seconds, result=None, turns=3 * TURNS):
    """The verdict of a trial whose calls take `seconds(plain)`: their own, and to the next."""
    decided = []
    trial = EntryTrial("f", lambda entry, verdict: decided.append((entry, verdict)))
    forms = []
    for _ in range(turns):
        calls = trial.begin()
        assert abs(calls) == (CALLS if not forms or seconds(False)[0] < LONG else FEW)
        plain = calls < 0
        forms.append(plain)
        trial.end("entry", plain, *seconds(plain), False, result)
        if decided:
            break
    return decided, forms


def test_of_a_differentiable_result_the_time_to_the_next_call_counts():
    graded = torch.ones(2, requires_grad=True) * 1

    def backward_is_slower(plain):
        return (2e-5, 9e-5) if plain else (1e-5, 12e-5)

    ((entry, verdict),), forms = entry_trial(backward_is_slower, [{"x": graded}])
    assert entry == "entry" and verdict.slower and verdict.plain == 9e-5
    assert not any(forms[:QUIET]) and any(forms)
    ((_, verdict),), _ = entry_trial(backward_is_slower, graded.detach())
    assert not verdict.slower and verdict.plain == 2e-5


@pytest.mark.parametrize(
    ("times", "slower", "turns"), [(0.9, True, 5), (1.4, False, 5), (1.6, False, 1)]
)
def test_long_calls_are_tried_a_few_times(times, slower, turns):
    """times: what a call takes as it is, by what it takes compiled."""
    rows = itertools.count()

    def seconds(plain):
        one = LONG * (2 + next(rows) * 1e-5) * (times if plain else 1)
        return one, 2 * one

    ((entry, verdict),), forms = entry_trial(seconds)
    assert entry == "entry" and verdict.slower == slower
    assert turns <= sum(forms) <= turns + 1 and len(forms) <= QUIET + 2 * MOST


def test_turns_in_which_something_is_compiled_do_not_count():
    decided = []
    trial = EntryTrial("f", lambda *told: decided.append(told))
    for _ in range(100):
        assert trial.begin() == CALLS  # the compiled form, as it is not calm
        trial.end("entry", False, 1e-5, 1e-5, True, None)
    assert decided == []


def test_calls_that_raise_do_so_in_either_form_and_decide_nothing():
    def raising(x, flag):
        if flag:
            raise ValueError("as the program says")
        return x * 2

    fn, _ = whole_slow(raising)
    x = torch.ones(2)
    for turn in range(2 * ENOUGH):
        if turn % 5 == 4:
            with pytest.raises(ValueError, match="as the program says"):
                fn(x, True)
        else:
            assert torch.equal(fn(x, False), x * 2)


def test_threads_run_an_entry_on_trial_at_once():
    fn, _ = whole_slow()
    run(fn, 1, of=whole)
    failed = []

    def work():
        try:
            run(fn, ENOUGH, of=whole)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert compiler_of(fn).cache.counters()["conversions"] == 1
