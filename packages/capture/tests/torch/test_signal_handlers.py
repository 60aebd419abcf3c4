"""Exceptions that signal handlers of the program raise while something is compiled."""

from __future__ import annotations

import random
import signal
import threading
import time
import warnings
from types import FunctionType

import flambeau_capture
import pytest
import torch
from flambeau_capture import _torch_compat as compat
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Late(Exception):
    pass


def plain(number, frame):
    raise Late("too long")


class Handler:
    def method(self, number, frame):
        self(number, frame)

    def __call__(self, number, frame):
        raise Late("too long")


HANDLERS = {
    "function": lambda: plain,
    "method": lambda: Handler().method,
    "object": Handler,
    "generator": lambda: lambda *_: (_ for _ in ()).throw(Late("too long")),
}
MOMENTS = 6


def work(x, steps=40):
    for k in range(steps):
        x = (x * k + 1).sin() + x.cos() * 0.5
    return x


@pytest.fixture
def alarm():
    before = signal.getsignal(signal.SIGALRM)
    with compat.foreign_modes_left():  # or all later tests of this process would run in one
        yield lambda handler, seconds: (
            signal.signal(signal.SIGALRM, handler),
            signal.setitimer(signal.ITIMER_REAL, seconds),
        )
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", HANDLERS)
def test_what_a_handler_raises_in_a_backend_reaches_the_program(alarm, kind):
    """Whatever the backend makes of it: the first call raises, the next ones are right."""
    state = {"calls": 0}

    def backend(module, inputs):
        state["calls"] += 1
        if state["calls"] == 1:
            alarm(HANDLERS[kind](), 0.001)
            try:
                while True:
                    pass
            except Late as error:
                raise RuntimeError("the backend's own words") from error
        return module

    fn, x = flambeau_capture.compile(work, backend), torch.ones(2)
    with pytest.raises(Late, match="too long"):
        fn(x)
    assert torch.equal(fn(x), work(x))


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_and_so_it_does_out_of_capture(capture, alarm, moment, recwarn):
    """At any moment of it, the call raises what the handler did, or the alarm came after it."""
    again = FunctionType(
        work.__code__.replace(co_name=f"work{moment}"), globals(), None, work.__defaults__
    )
    fn, x = capture(again), torch.ones(2)
    try:
        alarm(plain, 0.002 * 3**moment)
        result = fn(x)
    except Late:
        result = None
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert not [w for w in recwarn if "fault of flambeau" in str(w.message)]
    assert result is None or torch.equal(result, work(x))
    assert torch.equal(fn(x), work(x))


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Passing, BaseTorchFunctionMode])
def test_a_mode_that_nobody_left_is_left(alarm, mode):
    """An exception may come between the entering of a mode and the block that leaves it."""
    entered = []

    def backend(module, inputs):
        if not entered:
            entered.append(mode())
            entered[0].__enter__()
            alarm(plain, 0.001)
            while True:
                pass
        return module

    fn, x = flambeau_capture.compile(work, backend), torch.ones(2)
    with pytest.raises(Late, match="too long"):
        fn(x)
    assert not compat.foreign_modes()
    assert torch.equal(fn(x), work(x))


def of_this_thread():
    """What an exception at a bad moment could leave behind."""
    return (
        compat.foreign_modes(),
        compat.dispatch_key_sets(),
        compat.torch_function_state(),
        compat.saved_tensors_hooked(),
        torch.is_grad_enabled(),
        torch._C._only_lift_cpu_tensors(),
        signal.getsignal(signal.SIGALRM),
    )


def interrupting(number, frame):
    raise KeyboardInterrupt


@pytest.mark.parametrize("handler", [plain, interrupting])
def test_whenever_it_comes_the_thread_is_as_it_was(capture, alarm, handler):
    """At 40 moments of a compile, each of another copy of a function, and with grad disabled or
    not: nothing of capture is left, and the next call is right."""
    rng, x = random.Random(handler.__name__), torch.ones(2)
    started = time.perf_counter()
    capture(FunctionType(work.__code__.replace(co_name="work_timed"), globals(), None, (4,)))(x)
    whole = time.perf_counter() - started
    for moment in range(40):
        copied = work.__code__.replace(co_name=f"work_{handler.__name__}{moment}")
        fn = capture(FunctionType(copied, globals(), None, (4,)))
        with torch.set_grad_enabled(moment % 2 == 0):
            alarm(handler, 0)
            before = of_this_thread()
            try:
                alarm(handler, rng.uniform(1e-4, whole))
                fn(x)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except (Late, KeyboardInterrupt):
                pass
            assert of_this_thread() == before
        assert torch.equal(fn(x), work(x, 4))


class Signalling:
    """A lock that raises a signal at one of the moments when it has been taken or let go."""

    def __init__(self, moment):
        self.left = moment

    def count(self, *_):
        self.left -= 1
        if self.left == -1:
            signal.raise_signal(signal.SIGALRM)

    __enter__ = __exit__ = count


@pytest.mark.parametrize("moment", range(4))
def test_warnings_are_as_they_were_whenever_it_comes(capture, alarm, monkeypatch, moment):
    """While what collects an operator's warnings is put in its place, and taken away."""
    alarm(plain, 0)
    before = warnings.warn, warnings._showwarnmsg, [*warnings.filters]
    collecting = compat.collected_warnings.__wrapped__.__globals__
    monkeypatch.setitem(collecting, "_patching", Signalling(moment))
    with pytest.raises(Late):
        capture(FunctionType(work.__code__.replace(), globals(), None, (1,)))(torch.ones(2))
    assert (warnings.warn, warnings._showwarnmsg, warnings.filters) == before


@torch.library.custom_op("signals::late", mutates_args=())
def late(x: torch.Tensor) -> torch.Tensor:
    return x + 1


IN_FAKE: list = []


@late.register_fake
def _(x):
    if IN_FAKE:
        signal.raise_signal(signal.SIGALRM)
        IN_FAKE.append("the operator's end")
    return torch.empty_like(x)


def test_a_handler_waits_for_the_end_of_an_operator_on_fake_tensors(alarm):
    """Out of there its exception could end the process: C++ calls Python where it may not throw."""
    alarm(lambda *_: IN_FAKE.append("handler") or plain(*_), 0)
    before = of_this_thread()
    IN_FAKE[:] = ["begin"]
    with pytest.raises(Late):
        flambeau_capture.compile(lambda x: late(x) * 2, lambda module, _: module)(torch.ones(2))
    assert IN_FAKE[:3] == ["begin", "the operator's end", "handler"]
    IN_FAKE.clear()
    assert of_this_thread() == before
    assert torch.equal(late(torch.ones(2)) * 2, torch.full((2,), 4.0))


def test_no_handler_waits_for_what_another_thread_compiles(alarm):
    """Python runs handlers in the main thread alone, which may be waiting for that one."""
    alarm(lambda *_: IN_FAKE.append("handler"), 0)
    before = of_this_thread()
    fn, results = flambeau_capture.compile(lambda x: late(x) * 3, lambda module, _: module), []
    thread = threading.Thread(target=lambda: results.append(fn(torch.ones(2))))
    IN_FAKE[:] = ["begin"]
    thread.start()
    thread.join()
    assert "handler" in IN_FAKE
    IN_FAKE.clear()
    assert torch.equal(results[0], torch.full((2,), 6.0))
    assert of_this_thread() == before
