"""Constants as values, and evaluation at capture time.

In: literals of the program, pure functions. Out: `Constant`; `evaluate`; `refuse`, which raises in
the program what CPython raises of objects of the same class names that can do nothing.
Invariant: a constant that came from the program's state is guarded before a decision depends on it,
and not if it is only passed along; the words of an exception are CPython's own.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.guards.equality import same
from flambeau_capture.polyfills import formatting
from flambeau_capture.source import ConstantSource, Source
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    NotConcrete,
    Tracer,
    Value,
    needing,
)
from flambeau_capture.values.registry import DefinedAbove, answers_for_itself
from flambeau_capture.values.stand_ins import stand_in

#: raises what a function in C raises for the class of an argument that is not known
refuse_unknown = DefinedAbove("what a function in C says of an argument's class")

LITERALS: frozenset[type] = frozenset(
    {
        int, float, bool, str, bytes, complex, type(None), type(Ellipsis), type(NotImplemented),
        range, torch.dtype, torch.device, torch.layout, torch.memory_format,
    }
)  # fmt: skip


class KnownObject(Value):
    """What `as_python` answers for never changes: asking it is safe at any time."""

    def truth(self, tx: Tracer) -> bool:
        return bool(evaluate(tx, bool, self.as_python()))

    def length(self, tx: Tracer) -> int:
        return int(evaluate(tx, len, self.as_python()))

    def contains(self, tx: Tracer, item: Value) -> bool:
        with needing("FB0009", lambda error: f"{error} in {self.describe()}"):
            return bool(evaluate(tx, operator.contains, self.as_python(), item.as_python()))


class Constant(KnownObject):
    """A literal. Reading `value` commits to it: its guard is added then."""

    described = "Constant({0._value!r:.60})"

    def __init__(
        self, value: Any, source: Source | None = None, commit: Callable[[], None] | None = None
    ) -> None:
        self._value = value
        self._commit = commit
        self.source = source

    @property
    def value(self) -> Any:
        if self._commit is not None:
            commit, self._commit = self._commit, None
            try:
                commit()
            except Break:  # it is still not known
                self._commit = commit
                raise
        return self._value

    @property
    def is_committed(self) -> bool:
        """Whether reading its value assumes nothing more."""
        return self._commit is None

    @property
    def is_none(self) -> bool:
        """Whether it is None, which may be known where the value is not."""
        return self.value is None

    @property
    def cls(self) -> type:
        return type(self.value)

    def is_known_to_be(self, obj: Any) -> bool:
        """Whether it is an object; one that it is not now is not assumed to stay another."""
        return self._value is obj and self.value is obj

    def as_python(self) -> Any:
        return self.value

    def truth(self, tx: Tracer) -> bool:
        refused = self.value is NotImplemented  # from 3.14 on
        return bool(evaluate(tx, bool, self.value) if refused else self.value)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        try:
            if key.special(tx, "__index__"):
                raise NotConcrete(key.describe())
            index = key.as_python()
        except NotConcrete:
            known = getattr(key, "payload", None) is not None or key.special(tx, "__index__")
            by_class = any("__index__" in vars(kind) for kind in key.cls.__mro__)
            if not known and (by_class or key.cls is slice):
                self.unknown(f"subscript {key.describe()}")
            if not isinstance(self.value, str | bytes | range):
                refuse(tx, operator.getitem, self, key)
            index = tx.index_of(key, partial(operator.getitem, self.value[:0]))
        return tx.wrap_new(evaluate(tx, operator.getitem, self.value, index))

    def iterate(self, tx: Tracer) -> IteratorValue:
        value = self.value
        if isinstance(value, range | str | bytes):
            return tx.iterator_of(self)
        iterator: IteratorValue = evaluate(tx, iter, value)
        return iterator

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return tx.wrap_new(evaluate(tx, self.value))  # literals are not callable

    def get_attr(self, tx: Tracer, name: str) -> Value:
        value = self.value
        try:
            found = getattr(value, name)
        except AttributeError as error:
            tx.raise_error(AttributeError, *error.args)
        if callable(found) and not isinstance(found, type):
            return tx.bound_method(self, name)
        return tx.wrap_new(found)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        method = getattr(self.value, name)
        if name in ("__enter__", "__exit__"):  # of a device: it was entered before the frame
            raise Break("FB0013", f"{self.describe()}.{name}")
        if name in ("format", "format_map") and not shows_numbers_alone(self.value):
            given = (*args, *kwargs.values())
            if not all(isinstance(arg, Constant) for arg in given):  # dates ask for the locale
                self.unknown(f"method {name!r}")
        if name == "__mul__" and isinstance(self.value, str | bytes):  # which takes an index
            args = [Constant(tx.index_of(args[0], self.value[:0].__mul__))]
        try:
            plain = [_all_of(tx, arg, name == "join") for arg in args]
            named = {key: arg.as_python() for key, arg in kwargs.items()}
        except NotConcrete as error:
            if name in _REFLECTED and len(args) == 1:
                inner = getattr(args[0], "payload", None)  # an instance of a subclass is its number
                if not isinstance(inner, Constant):
                    return Constant(NotImplemented)
                return self.call_method(tx, name, [inner], {})
            fields = None
            if name == "format" and type(self.value) is str:
                fields = formatting.fields_of(self.value, len(args), kwargs)
            if fields is not None:
                parts = [tx.wrap_new(fields), tx.new_tuple([*args]), tx.wrap_new(tuple(kwargs))]
                parts.append(tx.new_tuple([*kwargs.values()]))
                return tx.call_python(formatting.formatted, parts, {})
            refuse_unknown(tx, method, args, kwargs)
            raise Break("FB0009", f"{self.describe()}.{name} with {error}") from None
        return tx.wrap_new(evaluate(tx, method, *plain, **named))

    def reconstruct(self, writer: Any) -> None:
        if self.source is not None and self._commit is not None:
            writer.load_source(self.source)
        else:
            writer.load_const(self.value)


_OF_NUMBERS = re.compile(r"([^%]|%[YmdHMSfjwuGV%])*")


def shows_numbers_alone(format: str) -> bool:
    """Whether what it shows of a date are numbers, which no locale writes otherwise."""
    return "%" not in format or (format.isascii() and _OF_NUMBERS.fullmatch(format) is not None)


def _all_of(tx: Tracer, value: Value, iterated: bool) -> Any:
    """A value's object; of an iterator that is iterated, its items: `",".join(map(str, items))`."""
    if issubclass(value.cls, type) and answers_for_itself(value.cls):
        raise NotConcrete(value.describe())  # what is done with it may ask its metaclass
    if iterated and isinstance(value, IteratorValue):
        return [item.as_python() for item in value.drain(tx)]
    return value.as_python()


_REFLECTED = frozenset(
    {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__add__", "__mul__"}
)


def evaluate(tx: Tracer, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a pure function now; what it raises is raised in the program."""
    if _has_long([getattr(fn, "__self__", None), *args, *kwargs.values()], texts=fn is int):
        limit = sys.get_int_max_str_digits
        tx.guard(ConstantSource(limit, limit.__name__), "ANSWER", limit())
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        tx.raise_as_python(error)


def _has_long(given: Sequence[Any], texts: bool) -> bool:
    """Whether a number among these, or inside, is text only by leave of the process's limit, or
    with `texts` a text is of one."""
    pending, seen = [*given], set()
    while pending:
        value = pending.pop()
        if isinstance(value, int):
            if int.bit_length(value) > 3 * _DIGITS:
                return True
        elif isinstance(value, str | bytes):
            if texts and len(value) > _DIGITS:
                return True
        elif type(value) in (tuple, list, dict) and id(value) not in seen:
            seen.add(id(value))
            pending += [*value, *value.values()] if type(value) is dict else value
    return False


_DIGITS = sys.int_info.str_digits_check_threshold  # a number of this many is text in any case


def one_object(tx: Tracer, left: Constant, right: Constant) -> bool:
    """Whether two constants are one object. Equal ones that the program's state holds are guarded;
    what capture computes it computes as often as the program does."""
    if left.cls is not right.cls or not same(left.value, right.value):
        return False
    one, other = left.value, right.value
    if _is_unique(one):
        return True
    found = one is other
    sources = [c.source for c in (left, right)]
    placed = [s for s in sources if s is not None and not isinstance(s, ConstantSource)]
    made_by_access = type(one) is torch.device and len(placed) < 2  # by a tensor's
    if made_by_access or not all(type(each) is Constant for each in (left, right)):
        raise Break("FB0009", f"identity of {left.describe()} and {right.describe()}")
    if len(placed) == 2 and not found:
        tx.guard_distinct(left, right)
    elif len(placed) == 2:
        tx.guard_alias(placed[0], placed[1])
    elif placed and found:
        tx.guard(placed[0], "ID_MATCH", one)
    elif placed:
        other = one if placed[0] is right.source else other
        tx.guard(placed[0], "CALL", partial(operator.is_not, other), "another object")
    return found


def _is_unique(value: Any) -> bool:
    """Whether Python has one object of this value, however it is made."""
    if type(value) is int:
        return -5 <= value <= 256
    return type(value) not in (float, complex, str, bytes, range, torch.device)


def constant_of(value: Value) -> Any:
    """The literal of a `Constant`; a break for any other kind."""
    if isinstance(value, Constant):
        return value.value
    raise Break("FB0009", f"{value.describe()} where a constant is needed")


NONE = Constant(None)


def is_none(value: Value) -> bool:
    """Whether a value is known to be None; a number that is left open stays so."""
    return isinstance(value, Constant) and value.is_none


def nameless(value: Value) -> Any:
    """A constant itself, or what stands in for another value."""
    return value.value if isinstance(value, Constant) else stand_in(value.cls)


def refuse(tx: Tracer, fn: Callable[..., Any], *values: Value, **methods: Any) -> Any:
    """Raise what `fn` raises of objects without its methods; the first has `methods`."""
    first = stand_in(values[0].cls, methods) if methods else nameless(values[0])
    return evaluate(tx, fn, first, *(nameless(value) for value in values[1:]))
