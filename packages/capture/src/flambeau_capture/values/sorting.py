"""Sorting values whose keys are known.

In: values and the keywords of `sorted`. Out: the values in order. Invariant: the order is the one
Python's stable sort gives; keys that are not constants are a graph break, not a guess.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate


def sort_values(tx: Tracer, items: list[Value], kwargs: Kwargs) -> list[Value]:
    key, reverse = kwargs.get("key"), kwargs.get("reverse")
    no_key = key is None or (isinstance(key, Constant) and key.value is None)
    keys = items if no_key or key is None else [tx.call(key, [item], {}) for item in items]
    try:
        plain = [one.as_python() for one in keys]
    except NotConcrete as error:
        raise Break("FB0001", f"sorting by {error}") from None
    backwards = reverse is not None and reverse.truth(tx)

    def sort() -> list[int]:
        return sorted(range(len(items)), key=lambda index: plain[index], reverse=backwards)

    order: Any = evaluate(tx, sort)
    return [items[index] for index in order]
