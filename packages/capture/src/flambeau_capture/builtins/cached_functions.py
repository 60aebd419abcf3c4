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
from flambeau_capture.cache_entries import CacheEntry, Hit, call_ahead, is_of_many
from flambeau_capture.effects.side_effects import DeferredCall
from flambeau_capture.graph.builder import CopiedTensor
from flambeau_capture.source import CachedSource, ConstantSource, Source
from flambeau_capture.values.base import Args, Kept, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.containers.hashable_keys import key_of
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.builtin_functions import BuiltinValue
from flambeau_capture.values.functions.call_rules import TYPES, Action, CallRule, describe_call
from flambeau_capture.values.objects.attributes import find_in_class
from flambeau_capture.values.registry import itself, trusted_class
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
    call = _known_call(tx, fn, args, kwargs)
    if call is not None and call.is_there():
        return call.answer(tx)
    if call is not None and call.base is not None and is_of_many(fn):
        call = None  # one graph for all of the objects
    given = tuple(_cache_key(tx, arg) for arg in args)
    named = tuple((name, _cache_key(tx, arg)) for name, arg in kwargs.items())
    answers = tx.heap.answers
    if (fn, given, named) not in answers:
        answered = _uncached(tx, fn, args, kwargs, call)
        tx.heap.changed()
        answers[fn, given, named] = answered
    remembered: Value = answers[fn, given, named]
    return remembered


class _KnownCall:
    """A call whose arguments are known, as far as they distinguish it from others; one may be any
    object that compares by identity."""

    def __init__(
        self, fn: Any, args: Args, kwargs: Kwargs, objects: list[Any], base: int | None
    ) -> None:
        self.fn, self.values = fn, [*args, *kwargs.values()]
        self.names, self.objects = tuple(kwargs), objects
        self.source: Source = itself(fn) if base is None else self._source_of(base)
        self.base = None if base is None else objects[base]
        self.entry = CacheEntry(fn, objects, self.names, base)

    def _source_of(self, place: int) -> Source:
        source = self.values[place].source
        assert source is not None
        return source

    def key(self) -> Any:
        return self.entry.key(self.base)

    def is_there(self) -> bool:
        return not _is_missing(self.entry, self.base)

    def answer(self, tx: Tracer) -> Value:
        """What the cache has, as an object of the program; the call counts when the code runs."""
        used = self._used(tx)
        if tx.graph is tx.graph.outermost and not tx.heap.answering:
            tx.heap.use(DeferredCall(Hit(self.fn, self.names, self.entry), self.values))
        return tx.wrap(used.entry(used.base), CachedSource(used.source, used.entry))

    def assume_missing(self, tx: Tracer) -> None:
        """Compile again once the cache has it, which a graph does not put there."""
        if self.entry.is_full(self.fn):
            raise Break("FB0019", self._fleeting())
        used = self._used(tx)
        tx.guard(used.source, "CALL", functools.partial(_is_missing, used.entry), "is not cached")

    def _fleeting(self) -> str:
        return f"{self.fn.__name__}: its cache does not keep what calls of one frame give"

    def _used(self, tx: Tracer) -> _KnownCall:
        """The first call in this frame that is the same."""
        used: _KnownCall = tx.heap.answers.setdefault((self.fn, self.key()), self)
        return used

    def make(self, tx: Tracer) -> None:
        """Make the entry now, as the program is about to. One that takes the place of another is
        the program's to make, where hits of this frame are still to come or it does not stay."""
        plain = len(self.objects) - len(self.names)
        named = dict(zip(self.names, self.objects[plain:]))
        call = functools.partial(self.fn, *self.objects[:plain], **named)
        used = [one for one in tx.heap.answers.values() if isinstance(one, _KnownCall)]
        there = [one.is_there() for one in used]
        shown = self._fleeting()
        if self.entry.is_full(self.fn) and any(one.fn is self.fn for one in used):
            raise Break("FB0019", shown)
        if not call_ahead(self.fn, self.key(), functools.partial(evaluate, tx, call)):
            raise Break("FB0019", shown)
        if [one.is_there() for one in used] != there:
            _KEPT.add(self.fn)
            raise Break("FB0019", shown)


def _is_missing(entry: CacheEntry, base: Any) -> bool:
    """A guard's question: whether a call with an object would be the first."""
    try:
        entry(base)
    except LookupError:
        return True
    return False


def _known_call(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> _KnownCall | None:
    """The call as functools sees it, where its arguments are known at capture time."""
    objects: list[Any] = []
    places = []
    for place, value in enumerate((*args, *kwargs.values())):
        real = getattr(value, "real", None)
        try:
            if real is None or value.source is None or isinstance(value, TensorValue):
                objects.append(_plain(value))
            else:
                objects.append(real)
                places.append(place)
            if not _compares_as_known(type(objects[-1])):
                return None
            hash(objects[-1])
        except (NotConcrete, TypeError):
            return None
    base = places[0] if places else None
    for place in places[1:]:
        value = (*args, *kwargs.values())[place]
        tx.guard(value.source, "ID_MATCH", objects[place])
    try:
        return _KnownCall(fn, args, kwargs, objects, base)
    except LookupError:
        return None


def _plain(value: Value) -> Any:
    """An argument as an object; open numbers stay open."""
    if isinstance(value, SymbolValue | TensorValue):
        raise NotConcrete(value.describe())
    if isinstance(value, TupleValue):
        for part in value.parts():
            _plain(part)
    return value.as_python()


def _compares_as_known(kind: type) -> bool:
    """Whether neither hash nor equality of a class are the program's."""
    found = [find_in_class(kind, name) for name in ("__hash__", "__eq__")]
    return all(one is not None and trusted_class(one[0]) for one in found)


def _cache_key(tx: Tracer, value: Value) -> Any:
    if isinstance(value, SymbolValue):
        return value.cls, str(value.number)
    if isinstance(value, TupleValue):
        return value.cls, tuple(_cache_key(tx, part) for part in value.parts())
    return (value.cls, value.value) if isinstance(value, Constant) else key_of(tx, value)


def _uncached(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs, known: _KnownCall | None) -> Value:
    """The answer of a cached function, which runs in every call of the graph: it may not write, and
    what it makes, which eager keeps for later calls, is neither written to nor seen outside. A call
    that does nothing else, and sees nothing that this frame has changed, is made at once."""
    wrapped = fn.__wrapped__
    before, step, lines = tx.heap.writes(), tx.step(), tx.user_lines()
    mark, graph, answers = tx.graph.mark(), tx.graph, tx.heap.answers
    earlier = set(answers)
    alone = not (before or tx.heap.answering or graph.effects.other)
    tx.heap.answering += 1
    try:
        answer = tx.call(tx.wrap(wrapped, ConstantSource(wrapped, wrapped.__name__)), args, kwargs)
    finally:
        tx.heap.answering -= 1
    if tx.heap.writes() != before:
        raise Break("FB0019", f"{describe_call(fn, args)}: a cached function that writes")
    if known is not None and alone and graph is graph.outermost and graph.mark() == mark:
        known.make(tx)
        for call in [*answers.keys() - earlier]:  # which Python has, if anything
            if not isinstance(answers[call], _KnownCall):
                del answers[call]
        return known.answer(tx)
    if known is not None and not tx.heap.answering:
        known.assume_missing(tx)
    what = f"{describe_call(fn, args)}: what a cached function has made is written to, or leaves"
    report = BreakReport(REASONS["FB0019"], what, lines)
    for made in _made_by(answer, set()):
        if isinstance(made, TensorValue):
            version = version_of(made.fake)
            seen = functools.partial(_KEPT.add, fn)
            tx.graph.outermost.copied.append(
                CopiedTensor(made.fake, made.fake, version, version, step, report, seen)
            )
        else:
            made.kept = Kept(len(tx.heap.touched), step, report)
    return answer


def _made_by(answer: Value, seen: set[int]) -> Iterator[Value]:
    """What a call has made that can be written to: tensors, and objects."""
    if (
        answer.source is not None
        or isinstance(answer, Constant | SymbolValue)
        or id(answer) in seen
    ):
        return
    seen.add(id(answer))
    if not isinstance(answer, TupleValue):
        yield answer
    for part in answer.holds():
        yield from _made_by(part, seen)


TYPES[functools._lru_cache_wrapper] = CallRule(
    Action.ANSWER, "functools.lru_cache", _cached, of_called=True
)
