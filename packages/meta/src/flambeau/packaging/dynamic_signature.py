"""Dynamic shapes of a packaged function: where they are found, and their constraints.

In: the arguments of a call. Out: nothing, or ValueError with the condition that they break.
Invariant: plain data, checked by `conditions` alone: no symbolic mathematics is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.packaging.guard_expressions import Tree, evaluated, first_broken, written


@dataclass(frozen=True)
class OpenForm:
    """Symbol k is called `names[k]` and found at `places[k]`: an argument, and its dimension.

    equal: (argument, dimension, tree): sizes that have to be what the tree comes to. conditions:
    trees that have to hold.
    """

    names: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    equal: tuple[tuple[int, int, Tree], ...]
    conditions: tuple[Tree, ...]

    def values(self, leaves: Sequence[Any]) -> list[int]:
        """The values of the symbols in a call. Raises ValueError where that call is not fit."""
        values = [int(leaves[at].shape[dim]) for at, dim in self.places]
        broken = first_broken(self.conditions, values)
        if broken is not None:
            raise ValueError(
                f"{self._where(values)}: made for sizes with {written(broken, self.names)}"
            )
        for at, dim, tree in self.equal:
            if leaves[at].shape[dim] != evaluated(tree, values):
                raise ValueError(
                    f"dimension {dim} of argument {at} is {leaves[at].shape[dim]}, made for "
                    f"{written(tree, self.names)} ({self._where(values)})"
                )
        return values

    def check(self, leaves: Sequence[Any]) -> None:
        """Raises ValueError for arguments of other sizes."""
        self.values(leaves)

    def _where(self, values: Sequence[int]) -> str:
        return ", ".join(
            f"{name} = {value} (dimension {dim} of argument {at})"
            for name, value, (at, dim) in zip(self.names, values, self.places, strict=True)
        )

    def lines(self) -> list[str]:
        """The conditions as text, one a line."""
        return [written(tree, self.names) for tree in self.conditions]

    def data(self) -> dict[str, Any]:
        """The same of JSON's kinds."""
        return {"names": self.names, "places": self.places, "equal": self.equal,
                "conditions": self.conditions}  # fmt: skip


def open_form_from(data: Mapping[str, Any] | None) -> OpenForm | None:
    """What `OpenForm.data` gave. Raises LookupError, TypeError or ValueError for anything else."""
    if data is None:
        return None
    made = OpenForm(
        tuple(map(str, data["names"])),
        tuple((int(at), int(dim)) for at, dim in data["places"]),
        tuple((int(at), int(dim), tree) for at, dim, tree in data["equal"]),
        tuple(data["conditions"]),
    )
    made.lines()  # raises for what this version has no meaning for
    return made
