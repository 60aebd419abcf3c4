"""Exceptions that signal handlers of the program raise while something is compiled."""

from __future__ import annotations

import signal
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


def work(x):
    for k in range(40):
        x = (x * k + 1).sin() + x.cos() * 0.5
    return x


@pytest.fixture
def alarm():
    before = signal.getsignal(signal.SIGALRM)
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
    again = FunctionType(work.__code__.replace(co_name=f"work{moment}"), globals())
    fn, x = capture(again), torch.ones(2)
    alarm(plain, 0.002 * 3**moment)
    try:
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
