"""Objects of classes in C that the frame makes of known values, or is given in a known state.

In: the call that makes one, calls of its methods. Out: `MadeObject`, which acts on an object of
capture's own; `act`, a call on what is known. Invariant: the state of such an object is known at
every instruction: it is nobody else's, or the state in which it came is guarded; where it leaves
the frame, generated code makes it anew in its state, or sets the program's to that. What the clock,
the locale, other threads or an address in memory decide is a graph break.
"""

from __future__ import annotations

import contextlib
import operator
import sys
import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import Attr, ConstantSource, Source
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    MadeBy,
    NotConcrete,
    Tracer,
    Unreconstructible,
    Value,
)
from flambeau_capture.values.constant import LITERALS, Constant, KnownObject, refuse_unknown
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.hashable_keys import Identity
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import SliceValue, TupleValue
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.iterators.builtin import (
    IndexIterator,
    ReversedIterator,
    SequenceIterator,
)
from flambeau_capture.values.iterators.existing_iterators import CallIterator
from flambeau_capture.values.objects.attributes import find_in_class
from flambeau_capture.values.objects.made.made_models import (
    BUFFERS,
    MODELS,
    nothing_around,
    state_of,
)
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import already_tracked, wrap_known, wraps_type
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue

_NEVER = frozenset({"__sizeof__", "__dir__", "__dict__", "__weakref__", "_at_fork_reinit"})
_OF_ADDRESS = frozenset({"__repr__", "__str__", "__format__"})


class MadeObject(KnownObject):
    """`source`: of one that the program had already, which was in the state `before`."""

    described = "{0.cls.__module__}.{0.cls.__qualname__} object made here"
    cls: type
    built_once = True

    def __init__(self, tx: Tracer, made: Any, source: Source | None = None) -> None:
        self.cls = type(made)
        self.model = MODELS[self.cls]
        self._given = made
        self._made = self.model.own(made) if source is not None and self.model.given else made
        self.source = source
        self.by: MadeBy | None = None  # of a view
        self._graph = tx.graph
        self._parts: list[Value] | None = None
        self._commit: Callable[[], None] | None = None
        if source is not None:
            self._before = state_of(made)
            self._commit = partial(self._assume, tx, source)
        elif self.model.fixed:
            self._parts = [answer(tx, part) for part in self.model.made(made)[1]]

    @property
    def object(self) -> Any:
        """Capture's own object; that the program's is like it is guarded."""
        if self._commit is not None:
            commit, self._commit = self._commit, None
            commit()
        return self._made

    def _assume(self, tx: Tracer, source: Source) -> None:
        question = _Alike(self.cls, self._before)
        tx.guard(source, "CALL", question, f"is like {self._given!r}")
        if self.cls in BUFFERS:
            tx.require_own_memory()

    def as_python(self) -> Any:
        """A copy, which stays as it is; of one whose use depends on nothing else."""
        if not self.model.shown or self.model.around is not nothing_around:
            raise NotConcrete(self.describe())
        if self.model.fixed:
            return self.object
        fn, args = self.model.made(self.object)
        return fn(*args)

    def copied(self) -> Any:
        """What a call may be tried on."""
        return self.object if self.model.fixed else self.model.own(self.object)

    def as_key(self) -> Any:
        """What is equal, and has the same hash, as long as it can be a key."""
        return self.object if self.model.shown else Identity(self)

    def own_object(self) -> Any:
        if self.source is None:
            raise NotConcrete(self.describe())
        if self.is_changed():
            raise NotConcrete(self.describe())
        return self._given

    def is_changed(self) -> bool:
        """Whether one of the program's is no longer as it came."""
        return not self.model.fixed and state_of(self.object) != self._before

    def changes(self, tx: Tracer) -> None:
        """Something may be done to it."""
        if self.model.fixed:
            return
        if self.source is not None and tx.heap.writes_later():
            self.unknown("messages may be on their way to it: use")
        tx.heap.changed(self)
        if tx.graph is not self._graph:
            raise Break("FB0025", f"the body of a function uses {self.describe()}")

    def check(self) -> None:
        """Break where one of the program's was changed that cannot be set to a state."""
        if self.source is not None and self.model.restore is None and self.is_changed():
            self.unknown("a change")

    def truth(self, tx: Tracer) -> bool:
        return bool(act(tx, bool, [self]).value)  # type: ignore[attr-defined]

    def length(self, tx: Tracer) -> int:
        return int(act(tx, len, [self]).value)  # type: ignore[attr-defined]

    def contains(self, tx: Tracer, item: Value) -> bool:
        return bool(act(tx, operator.contains, [self, item]).value)  # type: ignore[attr-defined]

    def get_item(self, tx: Tracer, key: Value) -> Value:
        return act(tx, operator.getitem, [self, key])

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        act(tx, operator.setitem, [self, key, value])

    def del_item(self, tx: Tracer, key: Value) -> None:
        act(tx, operator.delitem, [self, key])

    def iterate(self, tx: Tracer) -> IteratorValue:
        self.changes(tx)
        if hasattr(self.cls, "__next__"):
            return CallIterator(self)
        if not hasattr(self.cls, "__getitem__"):
            act(tx, iter, [self])
            raise AssertionError(self.describe())
        made = IndexIterator(self)
        made.cls = type(iter(self.object))
        return made

    def reversed(self, tx: Tracer) -> IteratorValue:
        if not (hasattr(self.cls, "__getitem__") and hasattr(self.cls, "__len__")):
            act(tx, reversed, [self])
            raise AssertionError(self.describe())
        return ReversedIterator(self, self.length(tx))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in self.model.outside or name in _NEVER:
            found = find_in_class(self.cls, name)
            if found is None or not isinstance(found[1], types.MethodDescriptorType):
                self.unknown(f"attribute {name!r}")
            return BoundMethod(self, name)  # the call is the break
        made = self._made if hasattr(self.cls, name) else self.object
        if callable(getattr(self.cls, name, None)) and not isinstance(getattr(made, name), type):
            found = getattr(made, name)
            return BoundMethod(self, name) if found.__self__ is made else wrap_known(tx, found)
        part = getattr(self.object, name, None)
        if self.source is not None and self.model.fixed and type(part) not in LITERALS:
            return tx.wrap(part, Attr(self.source, name))
        return act(tx, getattr, [self, Constant(name)])

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        if self.cls.__dictoffset__:
            super().set_attr(tx, name, value)
        act(tx, setattr, [self, Constant(name), value])

    def del_attr(self, tx: Tracer, name: str) -> None:
        if self.cls.__dictoffset__:
            super().del_attr(tx, name)
        act(tx, delattr, [self, Constant(name)])

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in self.model.outside or name in _NEVER:
            self.unknown(f"method {name!r}")
        if not self.model.shown and name in _OF_ADDRESS | {"__hash__"}:
            self.unknown(f"method {name!r}")
        if not self.model.text and name in _OF_ADDRESS:
            self.unknown(f"method {name!r}")
        if name == "__iter__" and not args:
            return self if hasattr(self.cls, "__next__") else self.iterate(tx)
        if name == "__exit__":  # which ends the same whatever was raised
            args = [Constant(None)] * len(args)
        if name == "__getattribute__" and len(args) == 1 and args[0].cls is str:
            return tx.get_attr(self, args[0].as_python())
        if name == "__setattr__" and self.cls.__dictoffset__:
            self.unknown(f"method {name!r}")
        fn = getattr(self._made, name)
        return act(tx, fn, [self, *args], kwargs, name)

    def text(self, tx: Tracer, method: str) -> str:
        return str(self.call_method(tx, method, [], {}).as_python())

    def rebuild(self, writer: Any) -> None:
        try:
            fn, args = self.model.made(self.object)
        except NotConcrete as error:
            if self.by is not None:
                self.by.write(self, writer)
                return
            raise Unreconstructible(self, f"{self.describe()}: {error}") from None
        parts = self._parts if self._parts is not None else [Constant(arg) for arg in args]
        with writer.building(self):
            writer.call(fn, parts)

    def replay(self, writer: Any) -> None:
        """Set the program's own to the state that it has here."""
        if self.source is not None and self.model.restore is not None and self.is_changed():
            _, args = self.model.made(self.object)
            writer.do(self.model.restore, [self, *map(Constant, args)])


@dataclass(frozen=True)
class _Alike:
    """A guard's question: an object is of a class, and in a state."""

    kind: type
    state: Any

    def __call__(self, obj: Any) -> bool:
        return (
            type(obj) is self.kind
            and MODELS[self.kind].plain(obj)
            and MODELS[self.kind].alone(obj)
            and state_of(obj) == self.state
        )


# -- calls ------------------------------------------------------------------------------------


class _Carried:
    """What stands for a value that is moved and not looked at."""


class KnownArguments:
    """Objects for arguments, and the values that they stand for."""

    def __init__(self, tx: Tracer, carries: bool = False) -> None:
        self._tx = tx
        self._carries = carries
        self._values: dict[int, tuple[Any, Value]] = {}
        self._lists: list[tuple[ListValue, list[Any], list[Any]]] = []
        self.made: list[MadeObject] = []
        self.drained = False

    def of(self, value: Value, inside: bool = False) -> Any:
        made: Any
        if isinstance(value, MadeObject):
            self.made.append(value)
            return self._note(value.object, value)
        if isinstance(value, Constant) and value.cls in LITERALS:
            return value.value
        if isinstance(value, SymbolValue) and not inside:
            return value.as_python()
        if isinstance(value, ListValue) and value.cls is list:
            made = [self.of(part, True) for part in value.parts()]
            self._lists.append((value, made, list(made)))
            return self._note(made, value)
        if isinstance(value, TupleValue) and value.cls is tuple:
            return self._note(tuple(self.of(part, True) for part in value.parts()), value)
        if isinstance(value, SliceValue):
            return slice(*(self.of(bound) for bound in value.parts()))
        if isinstance(value, SetValue | DictValue) and value.cls in (set, frozenset, dict):
            made = value.as_python()
            items = [*made, *made.values()] if isinstance(made, dict) else made
            if all(type(item) in LITERALS for item in items):
                return self._note(made, value)
        if isinstance(value, IteratorValue) and not inside:
            self.drained = True
            return iter([self.of(item, True) for item in value.drain(self._tx)])
        if self._carries and inside:
            return self._note(_Carried(), value)
        raise NotConcrete(value.describe())

    def _note(self, made: Any, value: Value) -> Any:
        self._values[id(made)] = (made, value)
        return made

    def value(self, made: Any) -> Value:
        known = self._values.get(id(made))
        return answer(self._tx, made, self.value) if known is None else known[1]

    def write_back(self) -> None:
        """What a call has done to lists that it was given."""
        for value, made, before in self._lists:
            if len(made) != len(before) or any(a is not b for a, b in zip(made, before)):
                value.replace(self._tx, [self.value(item) for item in made])


def answer(tx: Tracer, made: Any, of: Callable[[Any], Value] | None = None) -> Value:
    """The value of what a call on known objects has made."""
    inner = partial(answer, tx) if of is None else of
    kind = type(made)
    if kind in LITERALS:
        return Constant(made)
    if kind is list:
        return ListValue([inner(item) for item in made])
    if kind is tuple:
        return TupleValue([inner(item) for item in made])
    if isinstance(made, type) or kind in (dict, set, frozenset, slice):
        return tx.wrap_new(made)
    if kind in MODELS:
        found: Value | None = tx.heap.find(made)
        if found is not None:
            return found
        if not MODELS[kind].plain(made):
            raise Break("FB0005", f"{kind.__name__} that code of the program is part of")
        return tx.heap.value_of(made, lambda: MadeObject(tx, made))
    if hasattr(kind, "__next__"):
        return SequenceIterator(TupleValue([inner(item) for item in made]))
    if isinstance(made, tuple) and kind.__module__ in ("datetime", "decimal", "time"):
        return tx.wrap_new(made)
    raise Break("FB0009", f"{kind.__module__}.{kind.__qualname__} object made by a function in C")


def act(
    tx: Tracer, fn: Any, args: Args, kwargs: Kwargs | None = None, method: str | None = None
) -> Value:
    """Call a function on what is known; `method`: it is bound to the first argument, by that name.

    What it raises is raised in the program, where nothing else can have come of the call.
    """
    owner = args[0] if method is not None else None
    carries = isinstance(owner, MadeObject) and method in owner.model.carries
    given = KnownArguments(tx, carries)
    try:
        plain = [given.of(arg) for arg in args]
        named = {name: given.of(arg) for name, arg in (kwargs or {}).items()}
    except NotConcrete as error:
        refuse_unknown(tx, fn if method is None else _unbound(owner, method), args, kwargs or {})
        shown = getattr(fn, "__qualname__", None) or type(fn).__name__
        raise Break("FB0009", f"{shown} with {error}") from None
    if isinstance(owner, MadeObject) and method is not None:
        if owner.model.waits(owner.object, method, (*plain[1:], *named.values())):
            owner.unknown(f"method {method!r}")
        unbound = BoundMethod(owner, method).unbound()  # whose errors name the class that has it
        fn = partial(fn, *plain[1:]) if unbound is None else partial(unbound, *plain)
        plain = []
    for each in given.made:
        each.changes(tx)
    try:
        with contextlib.ExitStack() as stack:
            for around in {_around(fn), *(each.model.around for each in given.made)}:
                stack.enter_context(around(tx))
            found = fn(*plain, **named)
    except BufferError as error:  # of a view that nobody may have any more
        raise Break("FB0009", f"{error}") from None
    except Exception as error:
        if given.drained:
            raise Break("FB0009", f"{fn} refuses what an iterator gives") from None
        given.write_back()
        for each in given.made:
            each.check()
        tx.raise_as_python(error)
    given.write_back()
    for each in given.made:
        each.check()
    value = given.value(found)
    if isinstance(value, MadeObject) and value.by is None and value.cls is memoryview:
        value.by = _view_by(fn, args, kwargs or {}, method)
    return value


def _unbound(owner: Value | None, method: str) -> Any:
    assert owner is not None
    return BoundMethod(owner, method).unbound() or getattr(owner.cls, method)


def _around(fn: Any) -> Callable[[Tracer], AbstractContextManager[None]]:
    """What the call of a class, or of a function of it, depends on."""
    kind = fn if isinstance(fn, type) else getattr(fn, "__self__", None)
    model = MODELS.get(kind) if isinstance(kind, type) else None
    return nothing_around if model is None else model.around


_VIEWS: dict[Any, Any] = {memoryview: memoryview, operator.getitem: operator.getitem}


def _view_by(fn: Any, args: Args, kwargs: Kwargs, method: str | None) -> MadeBy | None:
    """How a view is made again of what it is a view of."""
    fixed = all(isinstance(arg, Constant | SliceValue) for arg in (*args[1:], *kwargs.values()))
    by = _VIEWS.get(fn) if method is None else getattr(memoryview, method, None)
    return MadeBy(by, (*args,), {**kwargs}) if fixed and by is not None else None


@wraps_type(*(kind for kind, model in MODELS.items() if model.fixed or model.given))
def wrap_known_state(tx: Tracer, obj: Any, source: Source) -> Value:
    """An object of the program whose state is known: what it is, is guarded once it is read. One
    that was seen in several states is data, as one that others may change is."""
    known = already_tracked(tx, obj, source)
    if known is not None:
        return known
    tx.guard(source, "TYPE_MATCH", type(obj))
    return tx.heap.value_of(obj, lambda: _by_state(tx, obj, source))


def _by_state(tx: Tracer, obj: Any, source: Source) -> Value:
    model = MODELS[type(obj)]
    if not (model.plain(obj) and model.alone(obj)) or sys.getsizeof(obj) > _LARGE:
        return OpaqueValue(obj, source)
    try:
        state = state_of(obj)
    except NotConcrete:
        return OpaqueValue(obj, source)
    if not isinstance(source, ConstantSource) and tx.differs(source, state):
        return OpaqueValue(obj, source)
    return MadeObject(tx, obj, source)


_LARGE = 1 << 12  # bytes, which a guard compares at every call
