"""Protocols of `await`, `async for`, `aiter` and `anext`.

In: values. Out: `awaited`, what an `await` sends to; `steps_of`, `next_awaited` of an `async for`.
Invariant: an object is refused in Python's words where it lacks a method, or answers what is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, UserError, Value
from flambeau_capture.values.constant import NONE, Constant
from flambeau_capture.values.functions.call_rules import handles
from flambeau_capture.values.iterators.coroutines import CoroutineValue, class_of_made, ended
from flambeau_capture.values.iterators.existing_iterators import CallIterator
from flambeau_capture.values.iterators.generators import (
    GeneratorValue,
    Resumable,
    close,
    send_to,
    throw_into,
)
from flambeau_capture.values.objects.attributes import call_special, find_in_class
from flambeau_capture.values.objects.exceptions import new_exception


def _ask(tx: Tracer, value: Value, name: str) -> Value:
    if isinstance(value, Resumable):
        return value.call_method(tx, name, [], {})
    return call_special(tx, value, name, [])


#: of the operand of GET_AWAITABLE: what is awaited, where it is not the program's own expression
_RECEIVED = {
    1: "'async with' received an object from __aenter__ that does not implement __await__: {}",
    2: "'async with' received an object from __aexit__ that does not implement __await__: {}",
}


_NOT_AWAITED = (
    "object {} can't be used in 'await' expression"
    if VERSION < (3, 14)
    else "'{}' object can't be awaited"
)


def awaited(tx: Tracer, value: Value, place: int = 0) -> IteratorValue:
    """What `await` of a value goes over."""
    if isinstance(value, CoroutineValue):
        return value
    if isinstance(value, GeneratorValue) and value.frame.code.co_flags & _ITERABLE:
        return value
    if find_in_class(value.cls, "__await__") is None:
        shown = value.cls.__name__
        said = _RECEIVED.get(place, _NOT_AWAITED)
        tx.raise_error(TypeError, said.format(shown))
    found = _ask(tx, value, "__await__")
    if isinstance(found, CoroutineValue):
        tx.raise_error(TypeError, "__await__() returned a coroutine")
    if find_in_class(found.cls, "__next__") is None:
        shown = found.cls.__name__
        tx.raise_error(TypeError, f"__await__() returned non-iterator of type '{shown}'")
    return found if isinstance(found, IteratorValue) else CallIterator(found)


_ITERABLE = inspect.CO_ITERABLE_COROUTINE


class NextOrDefault(Resumable):
    """What `anext` answers that is given a default, over the awaitable that the next item is."""

    cls: type = class_of_made(anext(ended(True), None))
    names = (*Resumable.names, "__await__")

    def __init__(self, following: Value, default: Value) -> None:
        self.following = following
        self.step = getattr(following, "step", -1)
        self.default = default

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__await__":
            return self
        return super().call_method(tx, name, args, kwargs)

    def send(self, tx: Tracer, sent: Value) -> Value | None:
        return self._or_default(tx, lambda steps: send_to(tx, steps, sent))

    def throw(self, tx: Tracer, given: Args, exits: bool = True) -> Value | None:
        return self._or_default(tx, lambda steps: throw_into(tx, steps, given, exits))

    def close(self, tx: Tracer) -> Value:
        close(tx, awaited(tx, self.following))
        return NONE

    def _or_default(
        self, tx: Tracer, run: Callable[[Value], tuple[Value | None, Value] | None]
    ) -> Value | None:
        try:
            found = run(awaited(tx, self.following))
        except UserError as error:
            if not issubclass(error.value.cls, StopAsyncIteration):
                raise
            found = None, self.default
        if found is None:
            self.unknown("throw")
        item, self.returned = found
        return item


@handles(aiter)
def _aiter(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if find_in_class(args[0].cls, "__aiter__") is None:
        tx.raise_error(TypeError, f"'{args[0].cls.__name__}' object is not an async iterable")
    found = _ask(tx, args[0], "__aiter__")
    if find_in_class(found.cls, "__anext__") is None:
        said = f"aiter() returned not an async iterator of type '{found.cls.__name__}'"
        tx.raise_error(TypeError, said)
    return found


@handles(anext)
def _anext(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if find_in_class(args[0].cls, "__anext__") is None:
        tx.raise_error(TypeError, f"'{args[0].cls.__name__}' object is not an async iterator")
    found = _ask(tx, args[0], "__anext__")
    return found if len(args) == 1 else NextOrDefault(found, args[1])


def steps_of(tx: Tracer, value: Value) -> Value:
    """What `async for` goes over."""
    shown = value.cls.__name__
    if find_in_class(value.cls, "__aiter__") is None:
        said = f"'async for' requires an object with __aiter__ method, got {shown}"
        tx.raise_error(TypeError, said)
    found = _ask(tx, value, "__aiter__")
    if find_in_class(found.cls, "__anext__") is None:
        said = "'async for' received an object from __aiter__ that does not implement __anext__: "
        tx.raise_error(TypeError, said + found.cls.__name__)
    return found


def next_awaited(tx: Tracer, steps: Value) -> IteratorValue:
    """What `async for` awaits for its next item."""
    found = _ask(tx, steps, "__anext__")
    try:
        return awaited(tx, found)
    except UserError as error:
        shown = found.cls.__name__
        said = f"'async for' received an invalid object from __anext__: {shown}"
        raised = new_exception(TypeError, [Constant(said)])
        raised.generic_set_attr(tx, "__cause__", error.value)
        raise UserError(raised) from None
