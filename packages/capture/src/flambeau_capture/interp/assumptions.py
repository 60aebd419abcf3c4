"""Assumptions of one capture: guards, and the sizes, numbers and answers that stay open.

In: sources, and what they hold now. Out: guards; whether a size or number is a symbol, by the marks
and calls so far. Invariant: nothing is assumed of objects of capture's own, nor of what the entry
itself keeps.
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Sequence
from functools import partial
from types import CodeType
from typing import Any
from weakref import WeakMethod

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break, UserLine
from flambeau_capture.effects.side_effects import SideEffects
from flambeau_capture.frame.sizes.dynamism import DynamismTracker
from flambeau_capture.graph.symbolic_shapes import SymbolicShapes
from flambeau_capture.guards import GuardSet
from flambeau_capture.guards.equality import PLAIN
from flambeau_capture.identity import IdentityMap
from flambeau_capture.interp.frame import Frame
from flambeau_capture.options import Options
from flambeau_capture.source import ConstantSource, Source
from flambeau_capture.values.base import Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.registry import trusted_class
from flambeau_capture.values.tensors.tensor import TensorValue

_OF_THE_OBJECT_ITSELF = frozenset(
    {"ID_MATCH", "FUNCTION_MATCH", "TYPE_MATCH", "CONSTANT_MATCH", "NONE_MATCH", "BOOL_MATCH"}
)


class Assumptions:
    """The part of a tracer that says what its graph and bytecode rely on."""

    shapes: SymbolicShapes

    def __init__(
        self,
        code: CodeType,
        origin: CodeType,
        options: Options,
        names: IdentityMap[CodeType, str],
        dynamics: DynamismTracker,
    ) -> None:
        self._code = code
        self.origin = origin  # of a resumption, the code that broke
        self._dynamics = dynamics
        self.options = options
        self.guards = GuardSet(code)
        self.heap = SideEffects()
        self.frames: list[Frame] = []
        self._tensors: list[tuple[Source, Any]] = []
        self._owning = False
        self.identity_keys: dict[Source, None] = {}  # of what tables keep by identity
        self._stored: dict[str, Value] = {}
        self._choices: Counter[str] = Counter()
        self._names = names
        self._lines: dict[tuple[int, int | None], str] = {}

    def guard(self, source: Source | None, kind: str, *params: Any) -> None:
        """Assume something about what a source holds."""
        if source is None or self.is_own(source):
            return
        if isinstance(source, ConstantSource) and kind in _OF_THE_OBJECT_ITSELF:
            # the entry itself keeps the object, whose class a program may set
            if kind != "TYPE_MATCH" or trusted_class(type(source.object)):
                return
        self.guards.add(source, kind, *params, user_line=self._user_line())

    def is_own(self, source: Source) -> bool:
        """Whether a source is in an object of capture's own, of which nothing is to be assumed."""
        root = source.root() if self.heap.has_models() else None
        return isinstance(root, ConstantSource) and self.heap.own_of(root.object) is not None

    def open_dims(self, source: Source, tensor: Any) -> dict[int, tuple[int | None, int | None]]:
        """The dimensions of a tensor whose sizes are to be symbols, with their bounds."""
        if isinstance(source, ConstantSource) or not compat.is_plain_strided(tensor):
            return {}
        return self._dynamics.dims(self._code, source, tensor)

    def open_strides(self, source: Source, tensor: Any) -> frozenset[int]:
        """The dimensions whose strides are to be symbols of their own."""
        return self._dynamics.strides(self._code, source, tensor)

    def require_open(self, source: Source, tensor: Any, sizes: Sequence[Any]) -> None:
        """Of the sizes of a tensor some are not to become constants, by marks or policies."""
        dims = sorted(self._dynamics.required(self._code, source, tensor))
        labels = {f"dimension {dim} of {source.name()}": sizes[dim] for dim in dims}
        self.shapes.require(labels, WeakMethod(self._innermost_line))

    def _innermost_line(self) -> UserLine | None:
        return self.frames[-1].line() if self.frames else None

    def replaced(self, source: Source, value: object) -> bool:
        """Whether another object was found at a source before: then it is not assumed to stay."""
        return self._dynamics.replaced(self._code, source, value)

    def steady(self, source: Source, tensor: Any) -> bool:
        """Whether the elements of a small tensor may be assumed: no others were seen before."""
        if self._dynamics.is_left_by_data(self._code, source):
            return False
        return self.options.nopython or self._dynamics.steady(self.origin, source, tensor)

    def differs(self, source: Source, state: object) -> bool:
        """Whether an object of the program was seen in another state: with another length."""
        return self._dynamics.differs(self._code, source, state)

    def varies(self, source: Source, value: int | float) -> bool:
        """Whether a number is to be a symbol."""
        held = isinstance(source, ConstantSource)
        return not held and self._dynamics.varies(self._code, source, value)

    def guard_tensor(
        self,
        source: Source,
        tensor: Any,
        dims: tuple[int, ...] = (),
        strides: tuple[int, ...] | None = None,
    ) -> None:
        """Assume class, dtype, device, sizes and so on of a tensor."""
        if not isinstance(source, ConstantSource):
            self.guards.add_tensor(source, tensor, dims, strides, self._user_line())
        self._tensors.append((source, tensor))
        if self._owning:
            self._require_own_memory(source, tensor)

    def require_own_memory(self) -> None:
        """Assume that no tensor of the program lies in memory that torch has not allocated."""
        self._owning = True
        for source, tensor in self._tensors:
            self._require_own_memory(source, tensor)

    def _require_own_memory(self, source: Source, tensor: Any) -> None:
        if not compat.owns_memory(tensor):
            raise Break("FB0009", "a tensor that may share memory with a buffer")
        self.guard(source, "CALL", compat.owns_memory, "lies in memory of torch's")

    def guard_alias(self, one: Source, other: Source) -> None:
        """Assume that two sources hold the same object."""
        held = isinstance(one, ConstantSource) and isinstance(other, ConstantSource)
        if one != other and not held:
            self.guards.add_alias(one, other)

    def guard_distinct(self, one: Value, other: Value) -> None:
        """Assume that two values that are different objects stay so."""
        sources = [place for v in (one, other) if (place := v.place()) is not None]
        if len(sources) == 2 and not all(isinstance(source, ConstantSource) for source in sources):
            self.guards.add_no_alias(tuple(sources))

    def guard_key(self, key: Value) -> None:
        """Assume that what a table keeps by identity is no other such object."""
        place = key.place()
        if place is not None and not isinstance(place, ConstantSource):
            self.identity_keys[place] = None

    def guard_equal(self, source: Source, value: Any) -> None:
        """Assume that what a source holds equals a constant, whatever its class."""
        self.guard(source, "CALL", partial(_equals, value), f"== {value!r}")

    def _user_line(self) -> str | None:
        if not self.frames:
            return None
        line = self.frames[0].line()
        return f"{line.filename}:{line.lineno}"

    def reads_early(self) -> bool:
        """Whether numbers of tensors of one element are read before the graph."""
        return self._dynamics.reads_early(self._code)

    def read_early(self) -> None:
        """From the next attempt on they are."""
        self._dynamics.read_early(self._code)

    def data_sizes(self) -> bool:
        """Whether sizes and numbers that depend on data are symbols of the graph."""
        return self._dynamics.data_sizes(self._code)

    def answers_in_general(self) -> bool:
        """Whether a query of Python's about a count is answered as for counts in general."""
        return self._dynamics.answers_in_general(self._code)

    def assumes(self) -> bool:
        """Whether a graph may check what most often holds: where it does not, nothing is lost."""
        return self._dynamics.writes_last and self.data_sizes() and self.answers_in_general()

    def loops_by_position(self) -> bool:
        """Whether a loop over the positions of what is true may be captured for any of them."""
        return self.data_sizes() and self._dynamics.loops_by_position(self._code)

    def loop_over_all(self) -> None:
        """From the next attempt on such loops are as if all positions were there."""
        self._dynamics.loop_over_all(self._code)

    def joins_branches(self) -> bool:
        """Whether a branch whose arms only compute numbers may be left open."""
        return self._dynamics.joins_branches(self._code)

    def decide_branches(self) -> None:
        """From the next attempt on every branch is decided."""
        self._dynamics.decide_branches(self._code)

    def is_decided(self, place: str) -> bool:
        """Whether the branch at a place is decided, because more than variables follows from it."""
        return self._dynamics.is_decided(self._code, place)

    def decide_branch(self, place: str) -> None:
        """From the next attempt on it is."""
        self._dynamics.decide_branch(self._code, place)

    def checks_in_graph(self) -> bool:
        """Whether a graph may check what the program raises for, and be run again where it does."""
        return self._dynamics.checks_in_graph(self._code)

    def note_need(self, operator: str, source: Source, value: int | float) -> None:
        """Note that an operator needs a number of the program as a constant."""
        self._dynamics.note_need(self._code, operator, source, value)

    def needed_by(self, operator: str, source: Source, value: int | float) -> int | float | None:
        """Another number than this that an operator has needed there: the graph ends for it, unless
        it may not."""
        before = self._dynamics.needed_by(self._code, operator, source, value)
        return None if self.options.nopython else before

    # -- open numbers ---------------------------------------------------------------------------

    def stored(self, place: str, value: Value) -> None:
        """Note what the frame stores at a place of the program."""
        self._stored[place] = value

    def has_counters(self) -> bool:
        """Whether numbers and sizes read as constants are others once the frame has run."""
        counts = partial(self._dynamics.counts, self._code)
        grows = partial(self._dynamics.grows, self._code)
        new = [counts(place, value._value) for place, value in self._stored.items()
               if type(value) is Constant]  # fmt: skip
        new += [grows(place, value.fake) for place, value in self._stored.items()
                if isinstance(value, TensorValue) and value.in_graph()]  # fmt: skip
        return any(new)

    def stays_open(self, condition: Any, what: str, grown: bool = True) -> bool:
        """Whether a comparison of open integers is left undecided by an operation that can say both
        answers; grown: also where the frame changes what it compares."""
        if compat.known_condition(condition) is not None:
            return False
        place = f"{what} {self.stack_trace()}"
        self._choices[place] += 1
        place = f"{self._choices[place]} {place}"
        leaves = self.shapes.leaves(condition) if grown else {}
        answer = bool(compat.hint(condition))
        return self._dynamics.comes_out(self._code, place, answer, leaves)

    # -- places ---------------------------------------------------------------------------------

    def name_of(self, code: CodeType) -> str:
        """A function's name as the user knows it: a resume function has its origin's."""
        return self._names.get(code, code.co_name)

    def stack_trace(self) -> str:
        parts = []
        for frame in self.frames:
            positions = frame.current.positions
            line = positions.lineno if positions is not None else None
            key = (id(frame.code), line)
            text = self._lines.get(key)
            if text is None:
                source = linecache.getline(frame.code.co_filename, line or 0).strip()
                name = self.name_of(frame.code)
                text = f'  File "{frame.code.co_filename}", line {line}, in {name}\n    {source}\n'
                self._lines[key] = text
            parts.append(text)
        return "".join(parts)

    def has_let_go(self, obj: object) -> bool:
        """Whether the frame was given an object, or has written to what may have kept it alive, and
        no variable has it now: it may have ended."""
        if not any(obj is one for one in self.frames[0].given) and not self.heap.may_have_kept(obj):
            return False
        held = [*self.frames[0].untouched_objects()]
        for frame in self.frames:
            values = (*frame.variables.values(), *frame.contents(), *frame.stack)
            held += [getattr(value, "real", None) for value in values]
        return not any(obj is one for one in held)

    def has_let_go_some(self) -> bool:
        """The same of any object that a weak reference may be to."""
        given = [one for one in self.frames[0].given if type(one).__weakrefoffset__]
        return any(map(self.has_let_go, given))


def _equals(value: Any, other: Any) -> bool:
    """A guard's question: equality with a constant."""
    kind = type(value)
    plain = PLAIN[kind] if kind in PLAIN and isinstance(other, kind) else kind
    return bool(plain(other) == value)
