"""The guard type: kind, sources, expectation, reason.

In: a kind, the sources of the values, parameters, the user's line that made it necessary. Out: the
answer in plain Python and the text of a failure. Invariant: a guard whose values cannot be reached
does not hold, whatever the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flambeau_capture.guards.kinds import GuardKind, Params, register
from flambeau_capture.source import Scope, Source, load


@dataclass(frozen=True)
class Guard:
    """`relation` is None for a question about one value (or none, for the state of the process);
    "same", "distinct" and "sizes" ask about the objects at several sources."""

    kind: GuardKind
    sources: tuple[Source, ...]
    params: Params
    user_line: str | None = None

    @property
    def relation(self) -> str | None:
        return _RELATIONS.get(self.kind.name)

    def examined(self) -> tuple[Source, ...]:
        step = self.kind.step
        return self.sources if step is None else tuple(step(source) for source in self.sources)

    def values(self, scope: Scope) -> list[Any]:
        return [load(source, scope) for source in self.examined()]

    def holds(self, scope: Scope) -> bool:
        try:
            return self._answer(self.values(scope))
        except Exception:  # what cannot be read or compared is not what it was
            return False

    def _answer(self, values: list[Any]) -> bool:
        if self.relation is not None:
            return self.kind.holds(values, self.params)
        return self.kind.holds(values[0] if values else None, self.params)

    def __str__(self) -> str:
        where = ", ".join(str(source) for source in self.sources) or "global state"
        return f"{where} {self.kind.name}"


@dataclass(frozen=True)
class GuardFailure:
    """A guard that does not hold, with the two values."""

    guard: Guard
    expected: str
    got: str

    def __str__(self) -> str:
        line = f"\n{self.guard.user_line}" if self.guard.user_line else ""
        return f"{self.guard}: expected {self.expected}, got {self.got}{line}"


def failure_of(guard: Guard, scope: Scope) -> GuardFailure:
    """The failure of a guard that is known not to hold."""
    expected = guard.kind.expected(guard.params)
    try:
        values = guard.values(scope)
    except Exception as error:  # the failure itself: it is what is reported
        return GuardFailure(guard, expected, f"nothing there ({type(error).__name__}: {error})")
    try:
        asked = values if guard.relation is not None else (values[0] if values else None)
        return GuardFailure(guard, expected, guard.kind.got(asked, guard.params))
    except Exception as error:  # as above: an object that cannot be described
        return GuardFailure(
            guard, expected, f"an object that raised {type(error).__name__}: {error}"
        )


def _relation(name: str, holds: Callable[[Any, Params], bool], texts: tuple[str, str]) -> GuardKind:
    return register(
        GuardKind(
            name,
            holds=holds,
            check=lambda params: ("PIN", 0),
            expected=lambda params: texts[0],
            got=lambda value, params: texts[1],
        )
    )


OBJECT_ALIASING = _relation(
    "OBJECT_ALIASING", lambda values, params: values[0] is values[1], ("one object", "two objects")
)
NO_ALIASING = _relation(
    "NO_ALIASING",
    lambda values, params: len({id(value) for value in values}) == len(values),
    ("different objects", "one object twice"),
)

_RELATIONS = {"OBJECT_ALIASING": "same", "NO_ALIASING": "distinct", "SIZES": "sizes"}
