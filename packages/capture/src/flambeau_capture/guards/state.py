"""GLOBAL_STATE: the guard on modes and defaults of thread and process.

In: the state as it is. Out: a `GlobalState` that compares the present state with itself, in plain
Python, and the native pattern that does the same. Invariant: every row of `readers()` is compared
by both, natively through a probe where one is verified, else by calling the reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flambeau_capture.guards.equality import same
from flambeau_capture.guards.kinds import register, shown
from flambeau_capture.guards.state_readers import readers

if TYPE_CHECKING:
    from flambeau_capture._native import StatePattern


@dataclass(frozen=True)
class GlobalState:
    """Values by name, in the order of `readers()`."""

    values: tuple[tuple[str, Any], ...]

    @classmethod
    def now(cls) -> GlobalState:
        return cls(tuple((name, read()) for name, read in readers().items()))

    def difference(self) -> tuple[str, str] | None:
        """The first thing that is not now as it was: expected, got."""
        table = readers()
        for name, value in self.values:
            present = table[name]()
            if not same(value, present):
                return f"{name} {shown(value)}", f"{name} {shown(present)}"
        return None

    def pattern(self) -> StatePattern:
        from flambeau_capture.guards._state_probes import state_pattern  # torch, at first use

        return state_pattern(self.values)


GLOBAL_STATE = register(
    "GLOBAL_STATE",
    lambda value, params: params[0].difference() is None,
    expected=lambda params: (params[0].difference() or ("the state at capture",))[0],
    got=lambda value, params: (params[0].difference() or ("", "the same"))[1],
    check=lambda params: ("STATE", params[0].pattern()),
    cost=0,
)
