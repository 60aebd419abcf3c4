"""Frames with breaks are timed in both forms, by a clock of the test's own; the faster stays."""

import itertools
import threading

import pytest
import torch
from flambeau_capture import disable, optimize
from flambeau_capture.api import compiler_of
from flambeau_capture.frame.timing_trials import MARGIN, SURE, certainty


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


def test_what_chance_explains_decides_nothing():
    clock = Clock(1.0, 0.0, (0.5, -0.5, 0.1, -0.4, 0.45, -0.2, 0.3))
    fn = tried(broken, clock)
    run(fn, 100)
    assert compiler_of(fn).records.settled == []
    assert plain_frames(fn) <= 30


def test_a_frame_of_one_graph_is_never_tried():
    fn = tried(whole, Clock(1.0, 10.0))
    run(fn, of=whole)
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
