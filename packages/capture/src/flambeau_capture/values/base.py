"""Base class of values (variable trackers), one subclass per kind.

In: nothing. Out: `Value`, the protocol that every kind implements; `Tracer`, the interpreter that a
value is given; `UserError`, a Python exception of the program; `MadeBy`, the call of a library
in whose place a polyfill made a value. Invariant: a value's Python identity is the identity of its
`Value`; two values are the same object for the program exactly if they are the same `Value`
(constants excepted).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

import torch

from flambeau_capture.breaks import REASONS, Break, BreakReport, UserLine
from flambeau_capture.polyfills import iterating
from flambeau_capture.source import Source
from flambeau_capture.values.stand_ins import refuses

if TYPE_CHECKING:
    from flambeau_capture.interp.tracer import SymbolicTracer

Tracer: TypeAlias = "SymbolicTracer"  # which is built on values: a name for annotations alone

Args = Sequence["Value"]
Kwargs = Mapping[str, "Value"]


@dataclass(frozen=True)
class Caller:
    """An interpreted frame as messages name it."""

    filename: str
    lineno: int
    name: str
    namespace: dict[str, Any]


class UserError(Exception):
    """An exception of the program, until a handler takes it; `step`: where it was raised; `stop`:
    the frames as they were before, if nothing had changed then and no handler is around them."""

    stop: Any = None

    def __init__(self, value: Value, step: int | None = None, again: bool = False) -> None:
        super().__init__(value)
        self.value = value
        self.step = step
        self.again = again  # raised before: it keeps the context it has
        self.lines: tuple[UserLine, ...] = ()


@contextmanager
def suppressed(*kinds: type[BaseException]) -> Iterator[None]:
    """Inside, an exception of the program of these kinds ends the block, and nothing more."""
    try:
        yield
    except UserError as error:
        if not issubclass(error.value.cls, kinds):
            raise


class NotConcrete(Exception):
    """A value has no Python object that stands for it at capture time. `instead`: the break where
    one is needed, if it is another than that of who needs it."""

    instead: Break | None = None


@contextmanager
def needing(id: str, text: Callable[[NotConcrete], str]) -> Iterator[None]:
    """Objects are needed at capture time: a break where a value has none."""
    try:
        yield
    except NotConcrete as error:
        raise error.instead or Break(id, text(error)) from None


class Unreconstructible(Exception):
    """A value that bytecode cannot build again; `step` and `lines`: where it came to be."""

    def __init__(self, value: Value, why: str) -> None:
        super().__init__(why)
        self.value = value
        kept, made = value.kept, value.stays_since
        self.step = getattr(value, "step", -1) if made is None else made
        self.step = self.step if kept is None else kept.step
        self.lines = getattr(value, "lines", ())

    def report(self) -> BreakReport:
        """The break where Python makes it instead."""
        if self.value.kept is not None:
            return self.value.kept.report
        return BreakReport(REASONS[self.value.made_in_python], str(self), self.lines)


class Kept(NamedTuple):
    """What eager keeps for later calls, in place of which another stands. seen: how many changes
    there had been; step and report: where and why the graph is to end if that shows."""

    seen: int
    step: int
    report: BreakReport


_ITERATED = ("__iter__", "__getitem__")


class Value:
    """A value of the program. Every operation that a kind does not know is a graph break."""

    source: Source | None = None
    in_cells = False  # whether it is made with cells, which may hold it
    made_in_python = "FB0021"  # the break where Python makes what bytecode cannot build
    answers_as_itself = False  # whether CPython may be given its object, which never changes
    is_open = False  # whether it is a number that is left open
    built_once = False  # whether generated code that needs it twice is to have one object
    stays_since: int | None = None  # it may not leave the frame, which made it at that step
    kept: Kept | None = None  # it must not be written to, or leave
    described = "{0.__class__.__name__}({0.cls.__name__})"  # a format of the value

    if TYPE_CHECKING:

        @property
        def cls(self) -> type:
            """The Python class. A kind has an attribute of that name, or a property."""

    def describe(self) -> str:
        """A few words for messages."""
        return self.described.format(self)

    def __str__(self) -> str:
        return self.describe()

    def __repr__(self) -> str:
        return f"<{self.describe()}>"

    def unknown(self, operation: str) -> NoReturn:
        raise Break("FB0009", f"{operation} of {self.describe()}")

    def cannot(self, tx: Tracer, fn: Callable[..., Any], names: Iterable[str], *given: Any) -> None:
        """Raise what a function raises where its class has none of the methods that it calls."""
        error = None if issubclass(self.cls, type) else refuses(fn, self.cls, names, *given)
        if error is not None:
            tx.raise_as_python(error)

    def lacks(self, tx: Tracer, name: str, shown: str | None = None) -> NoReturn:
        """Raise what Python raises where an object has no attribute of a name."""
        shown = self.cls.__name__ if shown is None else shown
        tx.raise_error(AttributeError, f"'{shown}' object has no attribute '{name}'")

    def as_python(self) -> Any:
        """The Python object, or a copy of a container; NotConcrete where part of it is unknown."""
        raise NotConcrete(self.describe())

    def own_object(self) -> Any:
        """The program's object itself, as long as this call has not changed it; else as above."""
        return self.as_python()

    def graph_argument(self) -> Any:
        """What a graph's node holds for it; a break where it can hold nothing for it."""
        with needing("FB0015", lambda _: self.describe()):
            plain = self.as_python()
        if not _holdable(plain):
            raise Break("FB0015", self.describe())
        return plain

    def place(self) -> Source | None:
        """Where the program's own object is, for guards that compare objects."""
        return self.source

    def holds(self) -> Iterable[Value]:
        """The values that it keeps alive, of those that capture knows."""
        return ()

    def special(self, tx: Tracer, name: str) -> bool:
        """Whether its class is the program's and says itself what a special method does."""
        return False

    def truth(self, tx: Tracer) -> bool:
        """An object is true, unless its class says that it may be false."""
        if any(name in vars(kind) for kind in self.cls.__mro__ for name in ("__bool__", "__len__")):
            self.unknown("truth")
        return True

    def length(self, tx: Tracer) -> int:
        self.cannot(tx, len, ("__len__",))
        self.unknown("len")

    def count(self, tx: Tracer) -> Value:
        """Its length as the program has it: a number that may be open."""
        return tx.wrap_new(self.length(tx))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        self.unknown(f"attribute {name!r}")

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        self.unknown(f"assignment to attribute {name!r}")

    def del_attr(self, tx: Tracer, name: str) -> None:
        self.unknown(f"deletion of attribute {name!r}")

    def get_item(self, tx: Tracer, key: Value) -> Value:
        self.cannot(tx, operator.getitem, ("__getitem__", "__class_getitem__"), 0)
        self.unknown("subscript")

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        self.cannot(tx, operator.setitem, ("__setitem__",), 0, 0)
        self.unknown("assignment to a subscript")

    def del_item(self, tx: Tracer, key: Value) -> None:
        self.unknown("deletion of a subscript")

    def contains(self, tx: Tracer, item: Value) -> bool:
        self.cannot(tx, operator.contains, (*_ITERATED, "__contains__"), 0)
        self.unknown("containment test")

    def iterate(self, tx: Tracer) -> IteratorValue:
        self.cannot(tx, iter, _ITERATED)
        raise Break("FB0014", f"iteration over {self.describe()}")

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        call = self.forwards(tx, args, kwargs)
        if call is None:
            raise Break("FB0005", f"call of {self.describe()}")
        return tx.call(*call)

    def forwards(self, tx: Tracer, args: Args, kwargs: Kwargs) -> tuple[Value, Args, Kwargs] | None:
        """The call that calling this value is, where it is nothing but another call."""
        return None

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        return tx.call(tx.get_attr(self, name), args, kwargs)

    def reconstruct(self, writer: Any) -> None:
        """Write the bytecode that finds the value, or makes it, and pushes it."""
        if self.source is not None:
            writer.load_source(self.source)
        else:
            self.rebuild(writer)

    def rebuild(self, writer: Any) -> None:
        """Write the bytecode that makes a value which the program did not have before."""
        raise Unreconstructible(self, f"{self.describe()} cannot be rebuilt")


_HOLDABLE = (
    int, float, bool, str, bytes, complex, type(None), type(Ellipsis), torch.dtype, torch.device,
    torch.layout, torch.memory_format, slice, range,
)  # fmt: skip
_CLASSES = (float, int, bool, complex)


def _holdable(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_holdable(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(k, str) and _holdable(v) for k, v in value.items())
    return isinstance(value, _HOLDABLE) or any(value is kind for kind in _CLASSES)


class IteratorValue(Value):
    """An iterator. `advance` answers the next item, or None at the end."""

    built_once = True

    def advance(self, tx: Tracer) -> Value | None:
        raise NotImplementedError

    def iterate(self, tx: Tracer) -> IteratorValue:
        return self

    def contains(self, tx: Tracer, item: Value) -> bool:
        return tx.call_python(iterating.contains, [self, item], {}).truth(tx)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in ("__next__", "__iter__"):
            return tx.bound_method(self, name)
        self.unknown(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__iter__":
            return self
        if name == "__next__":
            item = self.advance(tx)
            if item is None:
                tx.raise_error(StopIteration)
            return item
        self.unknown(f"method {name!r}")

    def drain(self, tx: Tracer) -> Iterator[Value]:
        while (item := self.advance(tx)) is not None:
            yield item


def objects_of(args: Args, kwargs: Kwargs) -> tuple[list[Any], dict[str, Any]]:
    """The objects that arguments stand for."""
    named = {name: arg.as_python() for name, arg in kwargs.items()}
    return [arg.as_python() for arg in args], named


def unpack(tx: Tracer, value: Value, hint: bool = False) -> list[Value]:
    """All items of an iterable; `hint`: room is made for them by their number first."""
    items = value.iterate(tx)
    if hint:
        tx.ask_length_hint(value)
    return list(items.drain(tx))


@dataclass(frozen=True, eq=False)
class MadeBy:
    original: Any
    args: tuple[Value, ...]
    kwargs: dict[str, Value]

    def kind(self, otherwise: type) -> type:
        """The class of what was made."""
        return self.original if isinstance(self.original, type) else otherwise

    def write(self, value: Value, writer: Any) -> None:
        with writer.building(value):
            writer.call(self.original, self.args, self.kwargs)


#: the class of what `itertools.tee` makes
TEE: type = type(itertools.tee(())[0])


class SharedItems(MadeBy):
    """One of several that read the same items: none is made again by itself."""

    def write(self, value: Value, writer: Any) -> None:
        raise Unreconstructible(value, "one of several iterators over the same items")
