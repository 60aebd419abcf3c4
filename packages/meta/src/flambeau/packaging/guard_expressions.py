"""Guard expressions on dynamic shapes, as plain data.

In: trees of JSON's kinds over numbered symbols. Out: their values, and their text. Invariant: a
tree is data, evaluated exactly and by one table of operations alone: neither sympy nor torch is
needed to check one.

A tree is an int, `["s", k]` (symbol k), `["float", text]`, or a list of an operation's name and its
operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from flambeau_aot.size_operations import OPERATIONS, SizeOperation

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


def symbols_in(tree: Tree) -> frozenset[int]:
    """The symbols that a tree mentions."""
    if isinstance(tree, int) or tree[0] == "float":
        return frozenset()
    if tree[0] == "s":
        return frozenset((int(tree[1]),))
    return reduce(frozenset.union, map(symbols_in, tree[1:]), frozenset())
