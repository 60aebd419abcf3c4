"""functools.lru_cache: calls of cached functions.

In: a call of one. Out: what it gives: what the cache has; else what the call computes in the graph,
which the cache is given when the graph has run. Invariant: after a call of compiled code a cache
holds and has counted what it would in eager. A call of open sizes, which would have an entry for
each, is computed in every call of the graph, and made for the cache's sake: that is one answer only
where all that it reads stays as it is, and what it gives is neither written to nor seen outside; a
function of which that is not so is called as it is.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

from flambeau_capture.breaks import REASONS, Break, BreakReport, UserLine
from flambeau_capture.builtins.library.cache_entries import (
    AnswerOfGraph,
    CacheEntry,
    CallAgain,
    Hit,
    are_current,
    call_ahead,
    is_of_many,
)
from flambeau_capture.builtins.library.logging_and_warnings import logged_once
from flambeau_capture.effects.side_effects import DeferredCall
from flambeau_capture.graph.builder import CopiedTensor, GraphBuilder
from flambeau_capture.source import CachedSource, Source
from flambeau_capture.values.base import Args, Kept, Kwargs, NotConcrete, Tracer, UserError, Value
from flambeau_capture.values.constant import NONE, Constant, evaluate
from flambeau_capture.values.containers.hashable_keys import Identity, key_of
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.builtin_functions import BuiltinValue
from flambeau_capture.values.functions.call_rules import TYPES, Action, CallRule, describe_call
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.objects.attributes import find_in_class
from flambeau_capture.values.registry import itself, trusted_class
from flambeau_capture.values.tensors.graph_calls import version_of
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue

#: cached functions whose answers to open sizes are not one, or are written to, or seen outside of
#: graphs: called as they are
_KEPT: weakref.WeakSet[Any] = weakref.WeakSet()
#: what calls of open sizes have read, by cached function: that is to stay as it is
_READ: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def _cached(tx: Tracer, called: BuiltinValue, args: Args, kwargs: Kwargs) -> Value:
    fn = called.fn
    told = logged_once(tx, fn, args, kwargs)
    if told is not None:
        return told
    if fn in _KEPT:
        raise Break("FB0019", f"{describe_call(fn, args)}: what it keeps may be written to")
    call = _CachedCall(tx, fn, args, kwargs)
    calls: _Calls = tx.heap.answers.setdefault("cached", _Calls())
    calls.admit(tx, call)
    made = calls.made.get((fn, call.key))
    if made is not None:
        tx.heap.use(call.hit())
        return made
    if call.is_there():
        calls.log.append(call)
        return call.answer(tx)
    return _computed(tx, calls, call, args, kwargs)


class _CachedCall:
    """A call as functools sees it. open: whether a size is among what distinguishes it from others;
    new: whether an object of this frame is, so that the cache cannot know it. One argument (base)
    may be any object that compares by identity."""

    def __init__(self, tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> None:
        self.fn, self.values, self.names = fn, [*args, *kwargs.values()], tuple(kwargs)
        self.open = self.new = False
        self.source: Source = itself(fn)
        self.place: int | None = None
        self.shown = describe_call(fn, args)
        keys = [self._key_of(tx, value, place) for place, value in enumerate(self.values)]
        self.open = self.open and not self.new
        self.objects = keys
        self.base = None if self.place is None else keys[self.place]
        try:
            self.entry = CacheEntry(fn, keys, self.names, self.place)
        except LookupError:
            raise Break("FB0019", f"{self.shown}: its cache is not functools' own") from None
        self.key = self.entry.key_of(keys)
        self.answered: Value | None = None
        self.is_known = False

    def _key_of(self, tx: Tracer, value: Value, place: int | None = None) -> Any:
        """An argument in the key: the object that it is, or what stands for one."""
        if isinstance(value, SymbolValue):
            self.open = True
            return SymbolValue, value.cls, str(value.number)
        if isinstance(value, TupleValue) and value.source is None:
            parts = [self._key_of(tx, part) for part in value.parts()]
            return tuple(parts) if self.open or self.new else value.as_python()
        real = getattr(value, "real", None)
        if real is None or value.source is None:
            real = self._plain(tx, value)
        elif place is None or self.place is not None:
            tx.guard(value.source, "ID_MATCH", real)
        else:
            self.place, self.source = place, value.source
        if type(real) is not Identity and not _compares_as_known(type(real)):
            raise Break("FB0019", f"{self.shown}: an argument's class says what is equal to it")
        return real

    def _plain(self, tx: Tracer, value: Value) -> Any:
        """The object that a value is; where it is made in this frame, what stands for it."""
        try:
            if not isinstance(value, TensorValue):
                real = value.as_python()
                hash(real)
                return real
        except (NotConcrete, TypeError):
            pass
        key = key_of(tx, value)
        self.new = isinstance(key, Identity) and value.source is None
        if not self.new:
            raise Break("FB0019", f"{self.shown}: {value.describe()} in the key")
        return key

    def is_there(self) -> bool:
        return not (self.open or self.new or _is_missing(self.entry, self.base))

    def answer(self, tx: Tracer) -> Value:
        """What the cache has, as an object of the program; the call counts when the code runs."""
        tx.heap.use(self.hit())
        self.is_known = True
        return tx.wrap(self.entry(self.base), CachedSource(self.source, self.entry))

    def hit(self) -> DeferredCall:
        return DeferredCall(Hit(self.fn, self.names, self.entry), self.values)

    def miss(self) -> DeferredCall:
        """The call with what it gave, or that it raised."""
        given, raises = self.answered or NONE, self.answered is None
        return DeferredCall(AnswerOfGraph(self.fn, self.names, raises), [given, *self.values])

    def make(self, tx: Tracer, before: list[_CachedCall]) -> bool:
        """Make the entry now, as the program is about to; False: the program is to do that itself,
        as it does not stay, or takes the place of one that this frame has called for."""
        if not self.entry.has_room(self.fn, 1) and any(one.fn is self.fn for one in before):
            return False
        there = [one.is_there() for one in before]
        plain = len(self.objects) - len(self.names)
        named = dict(zip(self.names, self.objects[plain:]))
        call = functools.partial(self.fn, *self.objects[:plain], **named)
        if not call_ahead(self.fn, self.key, functools.partial(evaluate, tx, call)):
            return False
        if [one.is_there() for one in before] != there:
            _KEPT.add(self.fn)
            self.refuse(FLEETING)
        return True

    def refuse(self, why: str) -> NoReturn:
        raise Break("FB0019", f"{self.shown}: {why}")


FLEETING = "its cache does not keep what calls of one frame give"


class _Calls:
    """The calls of cached functions in this frame, and what those gave of which the cache has no
    entry yet."""

    def __init__(self) -> None:
        self.log: list[_CachedCall] = []
        self.made: dict[tuple[Any, Any], Value] = {}

    def of(self, fn: Any) -> set[Any]:
        """The keys that a function was called with."""
        return {one.key for one in self.log if one.fn is fn}

    def admit(self, tx: Tracer, call: _CachedCall) -> None:
        """Refuse a call that may ask for an entry which another of this frame puts out."""
        most, keys = call.fn.cache_info().maxsize, self.of(call.fn)
        if most is None or call.key in keys:
            return
        if len(keys) >= most:
            call.refuse(FLEETING)
        made = sum(fn is call.fn for fn, _ in self.made)
        if made and call.is_there():
            if not call.entry.has_room(call.fn, made):
                call.refuse(FLEETING)
            room = functools.partial(_has_room, call.entry, call.fn, made)
            tx.guard(itself(call.fn), "CALL", room, "has room")

    def forget(self, number: int) -> list[_CachedCall]:
        """Keep so many calls: those that are forgotten, which another call makes."""
        later, self.log = self.log[number:], self.log[:number]
        for one in later:
            self.made.pop((one.fn, one.key), None)
        return later


def _has_room(entry: CacheEntry, fn: Any, number: int, _: Any) -> bool:
    """A guard's question: whether so many more entries put none out."""
    return entry.has_room(fn, number)


def _is_missing(entry: CacheEntry, base: Any) -> bool:
    """A guard's question: whether a call with an object would be the first."""
    try:
        entry(base)
    except LookupError:
        return True
    return False


def _compares_as_known(kind: type) -> bool:
    """Whether neither hash nor equality of a class are the program's."""
    found = [find_in_class(kind, name) for name in ("__hash__", "__eq__")]
    return all(one is not None and trusted_class(one[0]) for one in found)


def _computed(tx: Tracer, calls: _Calls, call: _CachedCall, args: Args, kwargs: Kwargs) -> Value:
    """What a call gives that the cache does not know. One that does nothing else, and sees nothing
    that this frame has changed, is made at once; else the graph computes what the cache is given
    when it has run, so that the call may not write."""
    heap, graph = tx.heap, tx.graph
    mark, uses, number = graph.mark(), len(heap.uses()), len(calls.log)
    alone = not (heap.writes() or calls.made or heap.answering or graph.effects.other)
    begun = tx.step(), tx.user_lines()
    raised = _interpreted(tx, call, args, kwargs)
    alone = alone and raised is None and graph is graph.outermost and not graph.effects.other
    alone = alone and (graph.mark() == mark or not (tx.entered or _writes_to_inputs(graph)))
    if alone and not (call.open or call.new or is_of_many(call.fn)):
        if call.make(tx, calls.log[:number]):
            heap.drop_uses(uses)
            calls.forget(number)
            calls.log.append(call)
            return call.answer(tx)
    if call.open:
        heap.drop_uses(uses)
        inner = calls.forget(number)
        again = CallAgain(call.fn, call.names, call.entry, [one.fn for one in inner])
        heap.use(DeferredCall(again, call.values))
        for one in (call, *inner):
            _stand_in(tx, one, *begun)
    else:
        heap.use(call.miss())
    heap.changed()
    calls.log.append(call)
    if call.answered is not None:
        calls.made[call.fn, call.key] = call.answered
    if not heap.answering:
        _assume_missing(tx, calls.log[number:])
    if raised is not None:
        raise raised
    assert call.answered is not None
    return call.answered


def _interpreted(tx: Tracer, call: _CachedCall, args: Args, kwargs: Kwargs) -> UserError | None:
    """Let a call be answered by interpreting its function; what that raises."""
    heap, effects, wrapped = tx.heap, tx.graph.effects, call.fn.__wrapped__
    before, uses = heap.writes(), len(heap.uses())
    reads, raised = _Reads(call, heap.reads), None
    other, effects.other = effects.other, {}
    heap.answering += 1
    heap.reads = reads.note if reads.is_wanted else None
    try:
        call.answered = tx.call(tx.wrap(wrapped, itself(wrapped)), args, kwargs)
    except UserError as error:
        raised = error
    finally:
        heap.answering -= 1
        heap.reads = reads.outer
        acts = bool(effects.other)
        effects.other = other | effects.other
    if heap.writes() != before:
        call.refuse("a cached function that writes")
    if call.open and len(heap.uses()) > uses:
        _KEPT.add(call.fn)  # computing again what it keeps would count calls of the others
        call.refuse("a cached function of open sizes that calls another one")
    if reads.is_wanted:
        if raised is not None or acts:
            call.refuse("a cached function of open sizes that raises, or draws random numbers")
        reads.assume(tx)
    return raised


def _assume_missing(tx: Tracer, calls: list[_CachedCall]) -> None:
    """Compile again once the cache has what calls gave, one of which called the others."""
    for one in calls:
        if not (one.is_known or one.open or one.new):
            test = functools.partial(_is_missing, one.entry)
            tx.guard(one.source, "CALL", test, "is not cached")
    if tx.graph is not tx.graph.outermost and not calls[-1].open:
        calls[-1].refuse("the first call of a cached function, inside of a transform")


def _writes_to_inputs(graph: GraphBuilder) -> bool:
    given = [each.node.meta["val"] for each in graph.inputs if not each.is_number()]
    return graph.effects.writes_to(given)


class _Reads:
    """What a call reads of what is not its own. outer: for a call around it, which reads it too."""

    def __init__(self, call: _CachedCall, outer: Callable[[Any, str, Value], None] | None) -> None:
        self.call, self.outer = call, outer
        self.is_wanted = call.open or outer is not None
        self.found: dict[Any, Any] = {"dtype": torch.get_default_dtype()}

    def note(self, holder: Any, name: str, value: Value) -> None:
        """holder: a value, or what stands for the variables of a scope."""
        if self.outer is not None:
            self.outer(holder, name, value)
        if isinstance(holder, Value):
            if holder.source is None or isinstance(value, MethodValue | BoundMethod):
                return  # it is made in this frame, of what was read before
            holder = id(getattr(holder, "real", None) or holder.own_object())
        try:
            self.found[holder, name] = _frozen(_plain(value))
        except NotConcrete:
            self.call.refuse(f"a cached function of open sizes reads {name!r}")

    def assume(self, tx: Tracer) -> None:
        """Refuse the call where another has read another value: its answers are still there."""
        fn = self.call.fn
        known = _READ.setdefault(fn, {})
        if any(known.get(key, value) != value for key, value in self.found.items()):
            _KEPT.add(fn)
            self.call.refuse("a cached function of open sizes reads what has changed")
        known.update(self.found)
        is_free = functools.partial(_is_free, self.call.entry)
        if not is_free(fn):
            _KEPT.add(fn)
            self.call.refuse("a cached function of open sizes keeps what it would not compute now")
        tx.guard(itself(fn), "CALL", is_free, "gives what it keeps")


def _is_free(entry: CacheEntry, fn: Any) -> bool:
    """A guard's question: whether graphs may compute what a cached function gives."""
    return fn not in _KEPT and are_current(entry, fn)


def _plain(value: Value) -> Any:
    """A value that was read as an object; open numbers, and tensors, have none that stays."""
    if isinstance(value, SymbolValue | TensorValue):
        raise NotConcrete(value.describe())
    real = getattr(value, "real", None)
    return value.as_python() if real is None or isinstance(real, _CONTAINERS) else real


_CONTAINERS = (list, dict, tuple, set, frozenset)


def _frozen(obj: Any) -> Any:
    """What is equal as long as an object is the same, and its items are."""
    if isinstance(obj, dict):
        return type(obj), tuple((_frozen(key), _frozen(item)) for key, item in obj.items())
    if isinstance(obj, _CONTAINERS):
        return type(obj), tuple(map(_frozen, obj))
    if isinstance(obj, int | float | complex | str | bytes | None):
        return type(obj), obj
    return id(obj)


def _stand_in(tx: Tracer, call: _CachedCall, step: int, lines: tuple[UserLine, ...]) -> None:
    """End the graph before a call if what it gave, in place of what the cache has, is written to,
    or leaves."""
    what = f"{call.shown}: what a cached function has made is written to, or leaves"
    report = BreakReport(REASONS["FB0019"], what, lines)
    for made in _made_by(call.answered, set()):
        if isinstance(made, TensorValue):
            version = version_of(made.fake)
            seen = functools.partial(_KEPT.add, call.fn)
            tx.graph.outermost.copied.append(
                CopiedTensor(made.fake, made.fake, version, version, step, report, seen)
            )
        else:
            made.kept = Kept(len(tx.heap.touched), step, report)


def _made_by(answer: Value | None, seen: set[int]) -> Iterator[Value]:
    """What a call has made that can be written to: tensors, and objects."""
    if (
        answer is None
        or answer.source is not None
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
