"""The guard type: kind, sources, expectation, reason.

In: a kind, the sources of the values, parameters, the user's line that made it necessary. Out: the
answer in plain Python and the text of a failure. Invariant: a guard whose values cannot be reached
does not hold, whatever the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flambeau_capture.guards.kinds import GuardKind, Params, register
from flambeau_capture.source import Scope, Source, load


@dataclass(frozen=True)
class Guard:
    kind: GuardKind
    sources: tuple[Source, ...]
    params: Params
    user_line: str | None = None

    def examined(self) -> tuple[Source, ...]:
        step = self.kind.step
        return self.sources if step is None else tuple(step(source) for source in self.sources)

    def examined_value(self, scope: Scope) -> Any:
        """The value in question, or the values of a relation."""
        values = [load(source, scope) for source in self.examined()]
        return values if self.kind.relation is not None else next(iter(values), None)

    def holds(self, scope: Scope) -> bool:
        try:
            return self.kind.holds(self.examined_value(scope), self.params)
        except Exception:  # what cannot be read or compared is not what it was
            return False

    def __str__(self) -> str:
        where = ", ".join(str(source) for source in self.sources) or "global state"
        return f"{where} {self.kind.name}"


@dataclass(frozen=True)
class GuardFailure:
    """A guard that does not hold, with the two values."""

    guard: Guard
    expected: str
    got: str

    def in_words(self) -> str:
        return f"{self.guard}, expected {self.expected}, got {self.got}"

    def __str__(self) -> str:
        line = f"\n{self.guard.user_line}" if self.guard.user_line else ""
        return f"{self.guard}: expected {self.expected}, got {self.got}{line}"


def failure_of(guard: Guard, scope: Scope) -> GuardFailure:
    """The failure of a guard that is known not to hold."""
    expected = guard.kind.expected(guard.params)
    try:
        value = guard.examined_value(scope)
    except Exception as error:  # the failure itself: it is what is reported
        return GuardFailure(guard, expected, f"nothing there ({type(error).__name__}: {error})")
    try:
        got = guard.kind.got(value, guard.params)
    except Exception as error:  # as above: an object that cannot be described
        got = f"an object that raised {type(error).__name__}: {error}"
    return GuardFailure(guard, expected, got)


OBJECT_ALIASING = register(
    "OBJECT_ALIASING",
    lambda values, params: values[0] is values[1],
    expected=lambda params: "one object",
    got=lambda value, params: "two objects",
    relation="same",
)
NO_ALIASING = register(
    "NO_ALIASING",
    lambda values, params: len({id(value) for value in values}) == len(values),
    expected=lambda params: "different objects",
    got=lambda value, params: "one object twice",
    relation="distinct",
)
