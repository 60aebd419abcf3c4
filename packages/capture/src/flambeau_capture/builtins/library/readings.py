"""Calls that read a clock, or draw a number of a random stream.

In: such calls, on known arguments. Out: `Reading`s. Invariant: a call is put off only if it raises
nothing and gives a number (of a clock: a number or a time) of a class that its arguments decide,
which a trial on a stream of capture's own says; else the graph ends, and Python makes the call.
"""

from __future__ import annotations

import datetime
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import ConstantSource, InstanceAttr, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, objects_of
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.functions.builtin_functions import BuiltinValue
from flambeau_capture.values.functions.call_rules import (
    RULES,
    Action,
    CallRule,
    describe_call,
    known_callable,
)
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.readings import Reading
from flambeau_capture.values.registry import tracked, wraps_if, wraps_type

np: Any = sys.modules.get("numpy")  # torch imports it where it is there: capture does without

_CLOCKS = (
    time.time, time.time_ns, time.perf_counter, time.perf_counter_ns, time.monotonic,
    time.monotonic_ns, time.process_time, time.process_time_ns, time.thread_time,
    time.thread_time_ns, datetime.datetime.now, datetime.datetime.utcnow, datetime.datetime.today,
    datetime.date.today,
)  # fmt: skip
_DRAWS = (
    "random", "uniform", "triangular", "randint", "randrange", "getrandbits", "gauss",
    "normalvariate", "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate",
    "betavariate", "paretovariate", "weibullvariate",
)  # fmt: skip
_DRAWS_OF_NUMPY = (
    "rand", "randn", "random", "random_sample", "uniform", "normal", "standard_normal", "randint",
    "exponential", "beta", "gamma", "poisson", "binomial",
)  # fmt: skip


def _reading(
    tx: Tracer,
    fn: Callable[..., Any],
    trial: Callable[..., Any],
    args: Args,
    kwargs: Kwargs,
    receiver: Value | None = None,
) -> Value:
    """The reading that a call gives. trial: the same function, of capture's own stream."""
    try:
        plain, named = objects_of(args, kwargs)
        if not all(type(each) in (int, float) for each in (*plain, *named.values())):
            raise Break("FB0005", describe_call(fn, args))
        like = trial(*plain, **named)
    except Exception as error:  # Python raises it, where it makes the call
        raise Break("FB0005", f"{describe_call(fn, args)}: {error}") from None
    if type(like) not in (int, float, datetime.datetime, datetime.date):
        raise Break("FB0005", f"{describe_call(fn, args)}, which gives no number")
    given = args if receiver is None else (receiver, *args)
    shown = f"{getattr(fn, '__module__', None) or 'random'}.{fn.__name__}"
    return Reading(tx, fn, given, like, shown, kwargs, is_clock=fn in _CLOCKS)


class ExistingStream(OpaqueValue):
    """A `random.Random` that the program has: numbers are drawn of it in the program's order."""

    real: random.Random
    source: Source

    def __init__(self, real: random.Random, source: Source) -> None:
        super().__init__(real, source)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        own = vars(self.real)
        if name in own:
            return tx.wrap(own[name], InstanceAttr(self.source, name))
        if name not in _OF_STREAMS:
            return super().get_attr(tx, name)
        tx.guard(self.source, "NOT_IN_INSTANCE_DICT", name)
        return BoundMethod(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in _OF_STREAMS:
            return super().call_method(tx, name, args, kwargs)
        return _OF_STREAMS[name](getattr(random.Random, name), tx, [self, *args], kwargs)


@wraps_type(random.Random)
@tracked
def wrap_stream(tx: Tracer, obj: random.Random, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return ExistingStream(obj, source)


def _drawn_by_method(fn: Any, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not args or not isinstance(args[0], ExistingStream):
        raise Break("FB0005", describe_call(fn, args))
    trial = partial(fn, random.Random(0))
    return _reading(tx, fn, trial, args[1:], kwargs, args[0])


def _seeded(fn: Any, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A stream starts again from a number: what is drawn later is drawn after that."""
    if not args or not isinstance(args[0], ExistingStream):
        raise Break("FB0005", describe_call(fn, args))
    plain, named = objects_of(args[1:], kwargs)
    if not all(type(each) in (int, float, str, bytes) for each in (*plain, *named.values())):
        raise Break("FB0005", describe_call(fn, args))
    like = evaluate(tx, fn, random.Random(0), *plain, **named)
    Reading(tx, fn, args, like, f"random.{fn.__name__}", kwargs)
    return Constant(None)


_OF_STREAMS: dict[str, Callable[..., Value]] = {
    **dict.fromkeys(_DRAWS, _drawn_by_method),
    "seed": _seeded,
}


def _rule(handler: Callable[..., Value]) -> CallRule:
    return CallRule(Action.READ, "clocks and random streams", handler)


def _clock(fn: Any, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _reading(tx, fn, fn, args, kwargs)


def _drawn_by_numpy(kind: type, fn: Any, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not args or not isinstance(args[0], OpaqueValue) or type(args[0].real) is not kind:
        raise Break("FB0005", describe_call(fn, args))
    trial = partial(fn, _STREAMS_OF_NUMPY[kind](0))
    return _reading(tx, fn, trial, args[1:], kwargs, args[0])


@wraps_if(lambda obj: type(obj) is _OF_NUMPY and known_callable(obj), 69)
def wrap_method_of_numpy(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return BuiltinValue(obj, ConstantSource(obj, obj.__name__))


_STREAMS_OF_NUMPY: dict[type, Callable[[int], Any]] = (
    {}
    if np is None
    else {np.random.RandomState: np.random.RandomState, np.random.Generator: np.random.default_rng}
)
_OF_NUMPY: type | None = None if np is None else type(np.random.RandomState.rand)
RULES.update({fn: _rule(partial(_clock, fn)) for fn in _CLOCKS})
for _name, _handler in _OF_STREAMS.items():
    _method = getattr(random.Random, _name)
    RULES[_method] = _rule(partial(_handler, _method))
for _kind in _STREAMS_OF_NUMPY:
    for _name in _DRAWS_OF_NUMPY:
        _method = getattr(_kind, _name, None)
        if _method is not None:
            RULES[_method] = _rule(partial(_drawn_by_numpy, _kind, _method))
