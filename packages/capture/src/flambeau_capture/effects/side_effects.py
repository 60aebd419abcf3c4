"""Tracked objects and their pending side effects.

In: objects of the program as they are wrapped, and changes to their values. Out: one value per
object (so aliases stay aliases) and the log of what to write back, in order of the first change.
Invariant: capture never touches an object of the program; every change lives here until the
generated code makes it.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

V = TypeVar("V")


class Replayable(Protocol):
    """A value whose changes the generated code can make on the object itself."""

    source: Any

    def replay(self, writer: Any) -> None: ...


class SideEffects:
    """Identity of existing objects, and the mutation log."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[Any, Any]] = {}
        self._changed: dict[int, Replayable] = {}
        self._uses: list[Replayable] = []
        self._attributes: dict[int, tuple[Any, Any]] = {}  # dicts of instances, and whose
        self._models: dict[int, tuple[Any, Any]] = {}  # by what stands for a value of the frame
        self._models_of: dict[int, Any] = {}  # by the value
        self._parts: dict[int, tuple[Any, Any]] = {}  # what else there is of such objects
        self.context: Any = None  # that the frame has made, and runs code in
        self.version = 0
        self._writes = 0
        self.touched: list[Any] = []  # values that changed, in order; None: some iterator
        self.answers: dict[Any, Any] = {}  # of cached functions, so that they stay one object
        self.answering = 0  # calls of cached functions that are interpreted
        #: what such a call reads, where that is to be known
        self.reads: Callable[[Any, str, Any], None] | None = None

    def find(self, obj: Any) -> Any | None:
        """The value that already stands for an object."""
        entry = self._values.get(id(obj))
        return None if entry is None else entry[1]

    def know(self, obj: Any, value: Any) -> None:
        """Let a value stand for an object, which is kept alive so that its id stays its own."""
        self._values[id(obj)] = (obj, value)

    def value_of(self, obj: Any, make: Callable[[], V]) -> V:
        """The value that stands for an object, made where there is none."""
        found: V | None = self.find(obj)
        if found is None:
            found = make()
            self.know(obj, found)
        return found

    def set_model(self, model: Any, value: Any) -> None:
        """Let an object of capture's own stand for a value that the program made in this frame."""
        self._models[id(model)] = (model, value)
        self._models_of[id(value)] = model

    def part(self, obj: Any, value: Any) -> None:
        """Note how the program's own is found that an object of capture's own corresponds to."""
        self._parts[id(obj)] = (obj, value)

    def model(self, value: Any) -> Any:
        """The object that stands for a value, if one does."""
        return self._models_of.get(id(value))

    def find_model(self, obj: Any) -> Any | None:
        """The value that an object stands for."""
        return self._models[id(obj)][1] if id(obj) in self._models else None

    def has_models(self) -> bool:
        return bool(self._models)

    def own_of(self, obj: Any) -> Any | None:
        """The value to load in place of an object that is capture's own."""
        found = self._models.get(id(obj)) or self._parts.get(id(obj))
        return None if found is None else found[1]

    def take_attributes(self, attributes: dict[str, Any], owner: Any) -> bool:
        """Let an object's value stand for the dict of its attributes; False where another object
        shares the dict, or the program has used the dict itself."""
        holder = self._attributes.setdefault(id(attributes), (attributes, owner))
        return holder[1] is owner and id(attributes) not in self._values

    def are_attributes(self, obj: dict[Any, Any]) -> bool:
        """Whether a dict holds the attributes of an object that has a value."""
        return id(obj) in self._attributes

    def changed(self, value: Replayable | None = None) -> None:
        """Something in the interpreted state changed; a value given is to be replayed."""
        self.version += 1
        self.touched.append(value)
        if value is not None and value.source is not None:
            self._writes += 1
            self._changed.setdefault(id(value), value)

    def is_changed(self, value: Any) -> bool:
        """Whether a value has changes that are to be replayed."""
        return id(value) in self._changed

    def log(self, effect: Replayable) -> None:
        """An effect on no object of its own (a global variable, a cell)."""
        self.version += 1
        self._writes += 1
        self._changed.setdefault(id(effect), effect)

    def use(self, effect: Replayable) -> None:
        """A call that changes nothing but what Python counts of it."""
        self.version += 1
        self._uses.append(effect)

    def uses(self) -> list[Replayable]:
        return list(self._uses)

    def drop_uses(self, number: int) -> None:
        """Keep so many calls: the others are made in another way."""
        del self._uses[number:]

    def writes(self) -> int:
        """How often something that outlives the frame was written to."""
        return self._writes

    def effects(self) -> list[Replayable]:
        return list(self._changed.values())

    def writes_later(self) -> bool:
        """Whether a call that was put off may write to a stream of the program's."""
        return any(getattr(effect, "writes", False) for effect in self._changed.values())

    def may_have_kept(self, target: object) -> bool:
        """Whether something that the program has written to holds an object, or did: itself, or by
        what it holds. Not all of a large one is looked at."""
        changed = {id(value) for value in self._changed.values()}
        level = [obj for obj, value in self._values.values() if id(value) in changed]
        for _ in range(_DEPTH if level else 0):
            level = [one for one in gc.get_referents(*level) if not isinstance(one, _NOT_LOOKED_AT)]
            if any(one is target for one in level):
                return True
            del level[_LOOKED_AT:]
        return False

    @contextmanager
    def separate(self) -> Iterator[dict[int, Replayable]]:
        """Changes of a block, in a log of their own: the block's user says what becomes of them."""
        before, self._changed = self._changed, {}
        try:
            yield self._changed
        finally:
            self._changed = before

    def known(self) -> list[tuple[Any, Any]]:
        """Every object seen, with its value."""
        return list(self._values.values())

    def forget(self) -> None:
        """Hold nothing any more."""
        self._values.clear()
        self._models.clear()
        self._models_of.clear()
        self._parts.clear()
        self._attributes.clear()
        self._changed.clear()
        self._uses.clear()
        self.touched.clear()
        self.answers.clear()


_DEPTH, _LOOKED_AT = 3, 1000
_NOT_LOOKED_AT = (type, types.ModuleType, types.FunctionType, int, float, str)


@dataclass(frozen=True, eq=False)
class DeferredCall:
    """A call to be made when the compiled code has run. `arguments`: values that never change;
    `writes`: it may write to a stream that the program has."""

    function: Callable[..., Any]
    arguments: Sequence[Any]
    writes: bool = False
    source = None

    def replay(self, writer: Any) -> None:
        writer.do(self.function, self.arguments)
