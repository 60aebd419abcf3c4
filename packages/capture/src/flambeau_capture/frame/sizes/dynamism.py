"""Dynamic shapes: which sizes and numbers stay symbolic, by the program's marks and calls so far.

In: marks of the program; the sizes and numbers seen at each place of a code object. Out: the
dimensions of a tensor that become symbols, and whether a number does. Invariant: with
a backend that takes no symbols (of a kind), nothing does (of that kind); with `dynamic=False`,
nothing that is not marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.errors import ConstraintViolation
from flambeau_capture.frame.sizes.marks import (
    ANY,
    FROM_ONE,
    Bounds,
    beyond,
    marked_dims,
    required_dims,
)
from flambeau_capture.frame.sizes.policies import (
    OPEN,
    Padding,
    Policy,
    SizePolicies,
    opened,
    padding,
)
from flambeau_capture.graph.symbolic_shapes import LARGEST
from flambeau_capture.identity import IdentityMap
from flambeau_capture.resume_runtime import CALLEE
from flambeau_capture.source import (
    Attr,
    Called,
    ClosureCell,
    ClosureSource,
    ConstantSource,
    Default,
    Global,
    GlobalOf,
    InstanceAttr,
    Item,
    KwDefault,
    Local,
    NextItem,
    NumberOf,
    SizeOf,
    Source,
)

_NOTHING = 0  # the address of no object
KINDS = frozenset({"sizes", "integers", "floats", "data"})
#: steps to a number that run none of the program's code and mean the same whoever takes them
_PLAIN_STEPS = (
    Local, ClosureSource, Global, InstanceAttr, Item, GlobalOf, ClosureCell, Default, KwDefault,
    NextItem, Called,
)  # fmt: skip

#: what a function, its closure's cells and a bound method are made of
_OF_CALLABLES = frozenset({"__closure__", "cell_contents", "__self__", "__func__"})


def kinds_taken(backend: Any) -> frozenset[str]:
    """The kinds of symbols that a backend takes, by its attribute `supports_symbols`: all of them
    where it has none or says True, none where it says False, or those that it lists."""
    told = getattr(backend, "supports_symbols", True)
    if isinstance(told, bool | None):
        return frozenset() if told is False else KINDS
    if unknown := frozenset(told) - KINDS:
        raise ValueError(f"supports_symbols names {sorted(unknown)}; there are {sorted(KINDS)}")
    return frozenset(told)


@dataclass
class _CodeHistory:
    """What was seen of one code object, by the places of its frame."""

    static: str | None = None  # why its graphs have no symbols
    #: by place and rank: weights and biases that come by turns are two kinds of tensors
    sizes: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    open: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    #: those that the frame itself changes, or data decides: it may begin at any size, 1 too
    grown: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    #: those of which it keeps a part, so that a stride follows from no size
    strided: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    #: of the arguments and their parts, not of what is stored in objects
    given: set[tuple[str, int]] = field(default_factory=set)
    numbers: dict[str, Any] = field(default_factory=dict)
    objects: dict[str, int | None] = field(default_factory=dict)
    contents: dict[str, Any] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)
    #: numbers of a place that an operator, or an unknown one, needed as constants
    needed: dict[tuple[str, str | None], list[int | float]] = field(default_factory=dict)
    choices: dict[str, bool | None] = field(default_factory=dict)  # None: made both ways
    decided: set[str] = field(default_factory=set)  # places of branches
    counters: set[str] = field(default_factory=set)  # numbers that the frame itself changes
    refused: set[str] = field(default_factory=set)  # places, by a backend that was tried
    varying: set[str] = field(default_factory=set)
    sized_by_data: set[str] = field(default_factory=set)  # beginnings of names
    left_by_data: set[str] = field(default_factory=set)
    no_data_sizes: str | None = None  # why its graphs end where data decides
    early_numbers: bool = (
        False  # whether numbers of tensors of one element are read before the graph
    )
    general: bool | None = None  # whether Python's queries of counts were answered in general
    any_positions: bool = True  # whether loops are over any positions of what is true
    any_way: bool = True  # whether branches whose arms compute numbers are left open
    checks: bool | None = None  # whether graphs have checked what the program raises for
    called: bool = False


class DynamismTracker:
    """What one compiled callable knows of what varies."""

    def __init__(self, choice: bool | None, backend: Any) -> None:
        self.policies: SizePolicies | None = None
        self._taken = kinds_taken(backend)
        #: a graph of it that raises has written to nothing, and is run again as it is
        self.writes_last = bool(getattr(backend, "writes_last", False))
        #: numbers that leave are among its graphs' results, as those of an export
        self.returns_numbers = bool(getattr(backend, "returns_numbers", False))
        self.choice = choice if self._taken else False
        self._codes: IdentityMap[CodeType, _CodeHistory] = IdentityMap()

    def _seen(self, code: CodeType) -> _CodeHistory:
        found = self._codes.find(code)
        if found is None:
            found = self._codes[code] = _CodeHistory()
        return found

    def forbid(self, code: CodeType, why: str) -> None:
        """From here on the graphs of a code object have no symbols."""
        self._seen(code).static = why

    def forbidden(self, code: CodeType) -> str | None:
        return self._seen(code).static

    def sized_by_data(self, code: CodeType, source: Source) -> None:
        """What a resume function finds on its stack is as long as a tensor's data says: it is
        another length at every call, and its first dimension is open from the first on."""
        self._seen(code).sized_by_data.add(source.name())

    def left_by_data(self, code: CodeType, source: Source, sizes: Sequence[Any]) -> None:
        """The same for a variable that a graph leaves to a resume function: for the dimensions that
        depend on data. Nothing is assumed of its elements."""
        found = {dim for dim, size in enumerate(sizes) if compat.own_data_symbols(size)}
        if found:
            self._seen(code).grown.setdefault((source.name(), len(sizes)), set()).update(found)
            self._seen(code).left_by_data.add(source.name())

    def is_left_by_data(self, code: CodeType, source: Source) -> bool:
        return source.name() in self._seen(code).left_by_data

    def data_sizes(self, code: CodeType) -> bool:
        """Whether what depends on data is a symbol."""
        taken = {"sizes", "data"} <= self._taken
        return taken and self._allowed(code) and self.no_data_sizes(code) is None

    def refuse_data_sizes(self, code: CodeType, why: str) -> None:
        """From here on its graphs end where a size depends on data."""
        self._seen(code).no_data_sizes = why

    def no_data_sizes(self, code: CodeType) -> str | None:
        """Why its graphs end where a size depends on data; None: they do not."""
        return self._seen(code).no_data_sizes

    def reads_early(self, code: CodeType) -> bool:
        """Whether numbers of tensors of one element are read before the graph: Python needs one."""
        return self._allowed(code) and self._seen(code).early_numbers

    def read_early(self, code: CodeType) -> None:
        """From here on they are, all of them."""
        self._seen(code).early_numbers = True

    def answers_in_general(self, code: CodeType) -> bool:
        """Whether a query of Python's about a count is answered as for counts in general; noted, as
        that is taken back first where it does not hold (`expect_less`)."""
        seen = self._seen(code)
        if seen.general is None:
            seen.general = True
        return seen.general

    def checks_in_graph(self, code: CodeType) -> bool:
        """Whether its graphs check what the program raises for; noted, as the answer above is."""
        seen = self._seen(code)
        if seen.checks is None:
            seen.checks = True
        return seen.checks

    def loops_by_position(self, code: CodeType) -> bool:
        """Whether its loops over the positions of what is true are captured for any of them."""
        return self._seen(code).any_positions and self.answers_in_general(code)

    def loop_over_all(self, code: CodeType) -> None:
        """From here on they are captured as if all positions were there."""
        self._seen(code).any_positions = False

    def joins_branches(self, code: CodeType) -> bool:
        """Whether branches are left open whose arms only compute numbers."""
        return self._seen(code).any_way

    def decide_branches(self, code: CodeType) -> None:
        """From here on they are decided: an arm had an effect."""
        self._seen(code).any_way = False

    def is_decided(self, code: CodeType, place: str) -> bool:
        """Whether the branch at a place is decided, because more than variables follows from it."""
        return place in self._seen(code).decided

    def decide_branch(self, code: CodeType, place: str) -> None:
        """From here on it is."""
        self._seen(code).decided.add(place)

    def check_less(self, code: CodeType) -> None:
        """From here on its graphs end where the program raises for what data says."""
        self._seen(code).checks = False

    def expect_less(self, code: CodeType) -> str:
        """What its graphs have assumed of data holds seldom: they are to assume less. In words."""
        seen = self._seen(code)
        if seen.checks:
            seen.checks = False
            return "ends its graphs where the program raises for what data says"
        if seen.general:
            seen.general = False
            return "ends its graphs where Python decides on a count"
        seen.no_data_sizes = "what was assumed of data did not hold in most calls"
        return "ends its graphs where a size depends on data"

    def assigned(self, code: CodeType, variables: Sequence[str]) -> None:
        """Variables that a resume function takes over and the program has assigned: what objects
        they hold is as likely as not another at every call (`for block in self.blocks`)."""
        known = self._seen(code).objects
        known.update(dict.fromkeys((Local(name).name() for name in variables), None))

    def _allowed(self, code: CodeType) -> bool:
        return self.choice is not False and self.forbidden(code) is None

    def dims(self, code: CodeType, source: Source, tensor: torch.Tensor) -> dict[int, Bounds]:
        """The dimensions to leave open, with the bounds that were given for them."""
        if self.forbidden(code) is not None or "sizes" not in self._taken:
            return {}
        marked, fixed = marked_dims(tensor)
        found = self._varying_dims(code, source, tensor) if self._allowed(code) else {}
        if policies := self.policies_of(code, source, tensor):
            found = {dim: bounds for dim, bounds in found.items() if dim not in policies}
            found |= opened(policies, tuple(tensor.shape))
        found |= {dim: bounds for dim, bounds in marked.items() if 0 <= dim < tensor.dim()}
        return {dim: bounds for dim, bounds in found.items() if dim not in fixed}

    def policies_of(
        self, code: CodeType, source: Source, tensor: torch.Tensor
    ) -> dict[int, Policy]:
        """What `sizes=` says of a tensor's dimensions."""
        return {} if self.policies is None else self.policies.of(code, source, tensor.dim())

    def padding(self, code: CodeType, source: Source, tensor: torch.Tensor) -> Padding:
        """The dimensions of an argument that are padded, where no mark says another thing."""
        if self.policies is None or not isinstance(tensor, torch.Tensor):
            return {}
        marked, fixed = marked_dims(tensor)
        found = padding(self.policies_of(code, source, tensor), tuple(tensor.shape))
        return {dim: one for dim, one in found.items() if dim not in marked and dim not in fixed}

    def _varying_dims(
        self, code: CodeType, source: Source, tensor: torch.Tensor
    ) -> dict[int, Bounds]:
        """Those that no mark leaves open."""
        name, seen = source.name(), self._seen(code)
        sizes = tuple(tensor.shape)
        place = name, len(sizes)
        before = seen.sizes.get(place, sizes)
        varying = seen.open.setdefault(place, set())
        varying |= {i for i, (old, new) in enumerate(zip(before, sizes)) if old != new}
        seen.sizes[place] = sizes
        if all(isinstance(step, Local | Item) for step in source.path()):
            seen.given.add(place)
        if sizes and name.startswith((*seen.sized_by_data,)):
            seen.grown.setdefault(place, set()).add(0)
        found = dict.fromkeys(range(len(sizes)) if self.choice else sorted(varying), ANY)
        return found | dict.fromkeys(sorted(seen.grown.get(place, ())), FROM_ONE)

    def grows(self, code: CodeType, place: str, tensor: torch.Tensor) -> bool:
        """Whether a tensor that was read at a place has other sizes now that a frame has run, or
        strides that follow from no size: a cache, whose dimensions are open from here on. False:
        that was known, or none was read."""
        seen = self._seen(code)
        sizes = seen.sizes.get(where := (place, tensor.dim()))
        if sizes is None or not self._allowed(code) or "sizes" not in self._taken:
            return False
        grown = seen.grown.setdefault(where, set())
        now = [
            compat.hint(size) if isinstance(size, torch.SymInt) else size for size in tensor.shape
        ]
        new = {i for i, size in enumerate(now) if size not in (None, sizes[i])} - grown
        grown |= new
        for i in new:
            _open_growth(seen, now[i] - sizes[i])
        strided = seen.strided.setdefault(where, set())
        cut = compat.strides_of_their_own(tensor) - strided
        strided |= cut
        return bool(new or cut)

    def required(self, code: CodeType, source: Source, tensor: torch.Tensor) -> frozenset[int]:
        """The dimensions that the program is not to make constants of. Raises ConstraintViolation
        where a size is outside of the bounds that its mark has."""
        marked, by_marks = marked_dims(tensor)[0], required_dims(tensor)
        for dim in sorted(marked.keys() & by_marks):
            if beyond(size := tensor.shape[dim], marked[dim]):
                raise ConstraintViolation(
                    f"dimension {dim} of {source.name()} is {size}, and mark_dynamic was given "
                    f"{marked[dim][0]} to {marked[dim][1]} for it: give bounds that it is within"
                )
        policies = self.policies_of(code, source, tensor)
        return by_marks | {dim for dim, one in policies.items() if one == OPEN}

    def strides(self, code: CodeType, source: Source, tensor: torch.Tensor) -> frozenset[int]:
        """The dimensions whose strides are open, whatever the sizes are."""
        return frozenset(self._seen(code).strided.get((source.name(), tensor.dim()), ()))

    def first_call(self, code: CodeType, arguments: Mapping[str, object]) -> bool:
        """Whether a code object was not called yet; the sizes of what it is given are noted."""
        seen = self._seen(code)
        first, seen.called = not seen.called, True
        for name, value in arguments.items() if first else ():
            if isinstance(value, torch.Tensor):
                self.dims(code, Local(name), value)
            elif type(value) is int or type(value) is float:
                self.varies(code, Local(name), value)
        return first

    def varies(self, code: CodeType, source: Source, value: int | float) -> bool:
        """Whether a number is another than it was here when code was last made for it."""
        if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
            return False
        kind = "floats" if isinstance(value, float) else "integers"
        if not self._allowed(code) or kind not in self._taken:
            return False
        name = source.name()
        if isinstance(source, NumberOf):  # of an input of the graph
            return name not in self._seen(code).refused
        if not (all(_is_plain(step) for step in source.path()) or _of_class(source)):
            return False
        if any(isinstance(step, NextItem) for step in source.path()):
            return True
        seen = self._seen(code)
        before = seen.numbers.get(name)
        if type(before) is type(value) and before != value:
            seen.varying.add(name)
        seen.numbers[name] = value
        first = name in seen.refused and seen.needed[name, None] == [value]
        return name in seen.varying and not first

    def counts(self, code: CodeType, place: str, value: Any) -> bool:
        """Whether a number that was seen at a place is another now that a frame has run: a counter,
        which is open from here on. False: that was known, or it is no such number."""
        seen = self._seen(code)
        before: Any = seen.numbers.get(place)
        if type(value) not in (int, float) or type(before) is not type(value):
            return False
        if before == value or place in seen.varying or not self._allowed(code):
            return False
        seen.varying.add(place)
        seen.counters.add(place)
        _open_growth(seen, value - before)
        return True

    def comes_out(self, code: CodeType, place: str, answer: bool, leaves: Iterable[Source]) -> bool:
        """Whether a comparison comes out both ways: it had another answer at this line when code
        was last made, or it depends on what the frame itself changes. The answer is noted."""
        seen = self._seen(code)
        if seen.choices.setdefault(place, answer) != answer:
            seen.choices[place] = None
        grown = {(name, dim) for (name, _), dims in seen.grown.items() for dim in dims}
        return seen.choices[place] is None or any(
            (source.base.name(), source.key) in grown
            if isinstance(source, SizeOf)
            else source.name() in seen.counters
            for source in leaves
        )

    def note_need(
        self, code: CodeType, operator: str | None, source: Source, value: int | float
    ) -> None:
        """An operator needs a number that was left open as a constant; None: one of those that
        take it, as the backend has found. What is special at 0 and 1 may be general elsewhere."""
        known = self._seen(code).needed.setdefault((source.name(), operator), [])
        if value not in (-1, 0, 1, *known):
            known.append(value)

    def needed_by(
        self, code: CodeType, operator: str, source: Source, value: int | float
    ) -> int | float | None:
        """Another number that an operator needed there. Rule: of a number that is a constant to
        some operator, two make graphs of their own, and a third ends the graph at that operator."""
        seen = self._seen(code).needed
        for one in (operator, None):
            known = seen.get((source.name(), one), [])
            if len(known) > 1:
                return next(each for each in known if each != value)
        return None

    def refuse(self, code: CodeType, source: Source, value: int | float) -> bool:
        """The backend takes no graph with this number left open; whether that helps: the first one
        is a constant then, and for a second the graph ends where an operator takes it."""
        seen = self._seen(code)
        seen.refused.add(source.name())
        known = seen.needed.setdefault((source.name(), None), [])
        helps = value not in known and len(known) < 2
        if helps:
            known.append(value)
        return helps

    def steady(self, code: CodeType, source: Source, tensor: torch.Tensor) -> bool:
        """Whether small tensors had equal elements whenever code was made for a function: once one
        does not, they are data, and so is what follows from them after a break."""
        known = self._seen(code).contents
        name, elements = source.name(), tensor.tolist()
        if known.setdefault(name, elements) != elements:
            known[name] = None
        return None not in known.values()

    def replaced(self, code: CodeType, source: Source, value: object) -> bool:
        """Whether another object stood here, or further up the path, when code was last made."""
        if any(isinstance(step, NextItem) for step in source.path()):
            return True  # the next item of an iterator is another from call to call
        known = self._seen(code).objects
        name = source.name()
        before = known.setdefault(name, id(value))
        if before is not None and before != id(value):
            known[name] = None  # from here on it counts as replaced
        elif any(known.get(step.name(), 0) is None for step in source.path()[:-1]):
            known[name] = None  # what it is a part of is replaced
        return known[name] is None

    def differs(self, code: CodeType, source: Source, state: object) -> bool:
        """Whether an object was in another state here when code was last made: a container of
        another length, a date of another day."""
        known = self._seen(code).states
        name = source.name()
        if known.setdefault(name, state) != state:
            known[name] = None
        return known[name] is None

    def gone(self, code: CodeType, source: Source) -> bool:
        """The object that was seen here has ended, and its address may be another's next: whatever
        stands here from now on is another object. Whether that was not known."""
        known = self._seen(code).objects
        name = source.name()
        if known.get(name, _NOTHING) in (_NOTHING, None):
            return False
        known[name] = _NOTHING
        return True


def _open_growth(seen: _CodeHistory, by: int | float) -> None:
    """What a frame counts, or makes longer, by the size of an argument is open as that size is: the
    tokens that a cache is given are another number in each call, as the cache's length is."""
    for place in seen.given if by > 1 else ():
        dims = {dim for dim, size in enumerate(seen.sizes[place]) if size == by}
        seen.grown.setdefault(place, set()).update(dims)


def _is_plain(step: Source) -> bool:
    """Whether a step runs none of the program's code; the parts of a waiting frame are such."""
    if isinstance(step, ConstantSource):
        return isinstance(step.object, FunctionType)
    if not isinstance(step, Attr):
        return isinstance(step, _PLAIN_STEPS)
    if step.key in ("func", "args", "keywords"):
        return step.root() == Local(CALLEE)
    return step.key in _OF_CALLABLES


def _of_class(source: Source) -> bool:
    """Whether it is an attribute of a class, which is read as `type` reads it, or of a function."""
    if not isinstance(source, Attr) or not isinstance(source.base, ConstantSource):
        return False
    owner = source.base.object
    return isinstance(owner, FunctionType) or type(owner) is type  # nothing can hide its own
