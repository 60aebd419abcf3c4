"""functools.lru_cache: calls of cached functions.

In: a call of one. Out: what it gives, computed in the graph at each call. Invariant: what eager
keeps for later calls is neither written to nor seen outside of a graph; a function of which that is
so is called as it is.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any

from flambeau_capture.breaks import REASONS, Break, BreakReport
from flambeau_capture.builtins.logging_and_warnings import logged_once
from flambeau_capture.graph.builder import CopiedTensor
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.hashable_keys import key_of
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.builtin_functions import BuiltinValue
from flambeau_capture.values.functions.call_rules import TYPES, Action, CallRule, describe_call
from flambeau_capture.values.tensors.graph_calls import version_of
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue

#: cached functions whose answers are written to, or seen outside of graphs: called as they are
_KEPT: weakref.WeakSet[Any] = weakref.WeakSet()


def _cached(tx: Tracer, called: BuiltinValue, args: Args, kwargs: Kwargs) -> Value:
    fn = called.fn
    told = logged_once(tx, fn, args, kwargs)
    if told is not None:
        return told
    if fn in _KEPT:
        raise Break("FB0019", f"{describe_call(fn, args)}: what it keeps may be written to")
    given = tuple(_cache_key(tx, arg) for arg in args)
    named = tuple((name, _cache_key(tx, arg)) for name, arg in kwargs.items())
    answers = tx.heap.answers
    if (fn, given, named) not in answers:
        answered = _uncached(tx, fn, args, kwargs)
        tx.heap.changed()
        answers[fn, given, named] = answered
    remembered: Value = answers[fn, given, named]
    return remembered


def _cache_key(tx: Tracer, value: Value) -> Any:
    if isinstance(value, SymbolValue):
        return value.cls, str(value.number)
    return (value.cls, value.value) if isinstance(value, Constant) else key_of(tx, value)


def _uncached(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """The answer of a cached function, which runs in every call of the graph: it may not write, and
    what it makes, which eager keeps for later calls, is neither written to nor seen outside."""
    wrapped = fn.__wrapped__
    before, step, lines = tx.heap.writes(), tx.step(), tx.user_lines()
    answer = tx.call(tx.wrap(wrapped, ConstantSource(wrapped, wrapped.__name__)), args, kwargs)
    if tx.heap.writes() != before:
        raise Break("FB0019", f"{describe_call(fn, args)}: a cached function that writes")
    what = f"{describe_call(fn, args)}: what a cached function has made is written to, or leaves"
    for made in _made_by(answer):
        if not isinstance(made, TensorValue):
            raise Break("FB0019", f"{describe_call(fn, args)}: a cached function makes {made.cls}")
        report = BreakReport(REASONS["FB0019"], what, lines)
        version = version_of(made.fake)
        seen = functools.partial(_KEPT.add, fn)
        tx.graph.outermost.copied.append(
            CopiedTensor(made.fake, made.fake, version, version, step, report, seen)
        )
    return answer


def _made_by(answer: Value) -> Iterator[Value]:
    """What a call has made that can be written to: tensors, and objects."""
    if isinstance(answer, TupleValue):
        for part in answer.parts():
            yield from _made_by(part)
    elif answer.source is None and not isinstance(answer, Constant):
        yield answer


TYPES[functools._lru_cache_wrapper] = CallRule(
    Action.ANSWER, "functools.lru_cache", _cached, of_called=True
)
