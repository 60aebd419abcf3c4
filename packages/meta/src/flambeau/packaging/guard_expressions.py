"""Guard expressions on dynamic shapes, as plain data, and where a call has its sizes.

In: trees of JSON's kinds over numbered symbols; the arguments of a call. Out: values, text, or the
condition that is broken. Invariant: a tree is data, evaluated exactly, by one table of operations:
neither sympy nor torch is needed to check one.

A tree is an int, `["s", k]` (symbol k), `["float", text]`, or a list of an operation's name and its
operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau_aot.sizes import OPERATIONS, SizeOperation

Tree = Any


class UnknownOperation(ValueError):
    """A tree that this version has no meaning for, with the operation's name."""


def evaluated(tree: Tree, values: Sequence[int | float]) -> Any:
    """What a tree comes to where symbol k is `values[k]`. Raises UnknownOperation."""
    if isinstance(tree, int):
        return tree
    name, *parts = tree
    if name == "s":
        return values[parts[0]]
    if name == "float":
        return float(parts[0])
    return _operation(name).of([evaluated(part, values) for part in parts])


def _operation(name: str) -> SizeOperation:
    if name not in OPERATIONS:
        raise UnknownOperation(f"a condition on sizes has the operation {name!r}")
    return OPERATIONS[name]


def holds(tree: Tree, values: Sequence[int | float]) -> bool:
    """Whether a condition holds; one that has no value (a division by zero) does not."""
    try:
        return bool(evaluated(tree, values))
    except ArithmeticError:
        return False


def first_broken(trees: Sequence[Tree], values: Sequence[int | float]) -> Tree | None:
    """The first condition that does not hold."""
    return next((tree for tree in trees if not holds(tree, values)), None)


def symbols(tree: Tree) -> set[int]:
    """The numbers of the symbols that a tree has."""
    if not isinstance(tree, list | tuple) or tree[0] == "float":
        return set()
    return {tree[1]} if tree[0] == "s" else set().union(*map(symbols, tree[1:]))


def written(tree: Tree, names: Sequence[str]) -> str:
    """A tree as Python, symbol k by `names[k]`."""
    if isinstance(tree, int):
        return str(tree)
    name, *parts = tree
    if name == "s":
        return str(names[parts[0]])
    if name == "float":
        return str(parts[0])
    operation = _operation(name)
    texts = [written(part, names) for part in parts]
    if not operation.takes_arguments:
        texts = [
            f"({text})" if isinstance(part, list) and part[0] not in ("s", "float") else text
            for part, text in zip(parts, texts, strict=True)
        ]
    return operation.text(texts)


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

    def values(
        self, leaves: Sequence[Any], named: Callable[[int], str] = "argument {}".format
    ) -> list[int]:
        """The values of the symbols in a call. Raises ValueError where that call is not fit.
        named: what an argument is called."""
        values = [leaves[at].shape[dim] for at, dim in self.places]

        def where(tree: Tree) -> str:
            return ", ".join(
                f"{self.names[at]} = {values[at]} (dimension {self.places[at][1]} of "
                f"{named(self.places[at][0])})"
                for at in sorted(symbols(tree))
            )

        broken = first_broken(self.conditions, values)
        if broken is not None:
            raise ValueError(f"{where(broken)}: made for sizes with {written(broken, self.names)}")
        for at, dim, tree in self.equal:
            if leaves[at].shape[dim] != evaluated(tree, values):
                raise ValueError(
                    f"{named(at)}: dimension {dim} is {leaves[at].shape[dim]}, made for "
                    f"{written(tree, self.names)}; {where(tree)}"
                )
        return values

    check = values
    """The same, as the open sizes of `flambeau_capture` have it."""

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
