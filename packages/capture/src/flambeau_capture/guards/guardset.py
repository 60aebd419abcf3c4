"""Guard set of a frame.

In: guards as capture adds them. Out: `Guards`, the finished set: the native
tree for the frame hook, the plain-Python check, the explanation of a failure, the listing.
Invariant: a guard stands once in a set, however often it is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import TYPE_CHECKING, Any

from flambeau_capture.guards import guard as guard_module
from flambeau_capture.guards.equality import same
from flambeau_capture.guards.guard import Guard, GuardFailure, failure_of
from flambeau_capture.guards.kinds import CLASS_ENTRY, EXISTS, KINDS, Entry, GuardKind
from flambeau_capture.guards.sizes import SIZES, SizeProgram
from flambeau_capture.guards.state import GLOBAL_STATE, GlobalState
from flambeau_capture.guards.tensor import TENSOR_MATCH, TensorSpec
from flambeau_capture.guards.tree import build_tree
from flambeau_capture.source import Scope, Source

if TYPE_CHECKING:
    import torch

    from flambeau_capture._native import GuardTree


class GuardSet:
    """The guards of one frame while it is captured. `code` is the frame's original code: it says
    which argument a name is."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self._guards: dict[tuple[str, tuple[Source, ...]], list[Guard]] = {}
        self._ordered: list[Guard] = []
        self._entries: dict[Source, dict[str, Entry]] = {}
        self._passed_along: dict[Source, str | None] = {}

    def add(
        self, source: Source, kind: str | GuardKind, *params: Any, user_line: str | None = None
    ) -> None:
        """A guard of `kind` (or its name) on the value at `source`."""
        row = KINDS[kind] if isinstance(kind, str) else kind
        if row is EXISTS:
            self._passed_along.setdefault(source, user_line)
            return
        if row is CLASS_ENTRY:
            self._entries.setdefault(source, {}).setdefault(params[0], params)
            return
        prepared = row.prepare(params) if row.prepare is not None else params
        self._add(Guard(row, (source,), prepared, user_line))

    def add_tensor(
        self,
        source: Source,
        tensor: torch.Tensor,
        dynamic_dims: tuple[int, ...] = (),
        dynamic_strides: tuple[int, ...] | None = None,
        user_line: str | None = None,
    ) -> None:
        """TENSOR_MATCH with a tensor's own metadata; sizes of `dynamic_dims` are left open,
        and strides of `dynamic_strides` (None: those that may depend on an open size)."""
        spec = TensorSpec.of(tensor, dynamic_dims, dynamic_strides)
        self._add(Guard(TENSOR_MATCH, (source,), (spec,), user_line))

    def add_alias(self, first: Source, second: Source) -> None:
        """The two sources lead to one object."""
        self._add(Guard(guard_module.OBJECT_ALIASING, (first, second), ()))

    def add_no_alias(self, sources: tuple[Source, ...]) -> None:
        """The sources lead to as many different objects."""
        distinct = tuple(dict.fromkeys(sources))
        if len(distinct) > 1:
            self._add(Guard(guard_module.NO_ALIASING, distinct, ()))

    def add_sizes(self, program: SizeProgram) -> None:
        """A condition on sizes, strides and integers."""
        self._add(Guard(SIZES, program.sources(), (program,)))

    def add_global_state(self, state: GlobalState | None = None) -> None:
        """The state of the thread and the process: as it was at `state`, or as it is now. Capture
        works under modes of its own, so it takes the state before it enters them."""
        self._add(Guard(GLOBAL_STATE, (), (state or GlobalState.now(),)))

    def _add(self, guard: Guard) -> None:
        known = self._guards.setdefault((guard.kind.name, guard.sources), [])
        if not any(same(other.params, guard.params) for other in known):
            known.append(guard)
            self._ordered.append(guard)

    def __len__(self) -> int:
        return len(self._ordered) + len(self._entries)

    def finish(self) -> Guards:
        """Entries of a class are one guard, however many they are. What is passed along need only
        be there, which every other guard on it says as well."""
        entries = [
            Guard(CLASS_ENTRY, (source,), (tuple(found.values()),))
            for source, found in self._entries.items()
        ]
        ways: dict[int, Source] = {}
        for guard in self._ordered:
            for source in guard.examined():
                node: Source | None = source
                while node is not None and id(node) not in ways:
                    ways[id(node)] = node
                    node = node.parent
        reached = set(ways.values())
        there = [
            Guard(EXISTS, (source,), (), line)
            for source, line in self._passed_along.items()
            if source not in reached
        ]
        return Guards((*self._ordered, *entries, *there), self.code)


@dataclass(frozen=True)
class Guards:
    """The finished guards of one compiled entry."""

    items: tuple[Guard, ...]
    code: CodeType

    @cached_property
    def native(self) -> GuardTree:
        """For the frame hook. Made at first use, in the state and with the objects of then."""
        return build_tree(self.items, self.code)

    def check(self, scope: Scope) -> bool:
        """The same answer in plain Python: the reference."""
        return all(guard.holds(scope) for guard in self.items)

    def explain(self, scope: Scope) -> GuardFailure | None:
        """The first guard that does not hold, with the two values."""
        for guard in self.items:
            if not guard.holds(scope):
                return failure_of(guard, scope)
        return None

    def misses(self, scope: Scope) -> int:
        """How many guards do not hold: how far a call is from the entry."""
        return sum(not guard.holds(scope) for guard in self.items)

    def __str__(self) -> str:
        return "\n".join(f"- {guard}" for guard in self.items)
