"""Sorting of values by known keys.

In: values and the keywords of `sorted`. Out: the values in order. Invariant: the order is the one
Python's stable sort gives; keys that are not constants are a graph break, not a guess.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate, is_none
from flambeau_capture.values.objects.attributes import call_special


class _ByComparison:
    """A key that the program's own `<` compares. Keys of one class are asked for `__lt__` alone
    first; only what that leaves open is asked as the operator asks, the same once more."""

    def __init__(self, tx: Tracer, value: Value, alike: bool) -> None:
        self.tx = tx
        self.value = value
        self.alike = alike

    def __lt__(self, other: _ByComparison) -> bool:
        if self.alike and self.value.special(self.tx, "__lt__"):
            found = call_special(self.tx, self.value, "__lt__", [other.value])
            if not (isinstance(found, Constant) and found.value is NotImplemented):
                return found.truth(self.tx)
        return self.tx.binary("<", self.value, other.value).truth(self.tx)


def sort_values(tx: Tracer, items: list[Value], kwargs: Kwargs) -> list[Value]:
    key, reverse = kwargs.get("key"), kwargs.get("reverse")
    no_key = key is None or (is_none(key))
    keys = items if no_key or key is None else [tx.call(key, [item], {}) for item in items]
    try:
        plain: list[Any] = [one.as_python() for one in keys]
    except NotConcrete as error:
        if any(hasattr(one, "fake") for one in keys):
            raise Break("FB0001", f"sorting by {error}") from None
        alike = len({id(one.cls) for one in keys}) == 1
        plain = [_ByComparison(tx, one, alike) for one in keys]
    backwards = reverse is not None and reverse.truth(tx)

    def sort() -> list[int]:
        return sorted(range(len(items)), key=lambda index: plain[index], reverse=backwards)

    order: Any = sort() if plain and isinstance(plain[0], _ByComparison) else evaluate(tx, sort)
    return [items[index] for index in order]
