"""Getters that existed before the frame: `operator.itemgetter(1)`, `attrgetter("a.b")`, and so on.

In: a getter of the program. Out: `GetterValue`. Invariant: a getter never changes, so the object
itself is guarded; calling it is calling the Python function that does the same.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from flambeau_capture.source import ConstantSource, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.objects.opaque import FrozenValue
from flambeau_capture.values.registry import wraps_type


class GetterValue(FrozenValue):
    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        made, parts = self.real.__reduce__()
        if isinstance(made, functools.partial):  # a methodcaller with named arguments
            parts = (*made.args, *parts)
        named = {name: tx.wrap_new(part) for name, part in getattr(made, "keywords", {}).items()}
        given = [tx.wrap_new(part) for part in parts]
        getter = tx.call_python(tx.rule_of(type(self.real)).python, given, named)
        return tx.call(getter, args, kwargs)


@wraps_type(operator.itemgetter, operator.attrgetter, operator.methodcaller)
def wrap_getter(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return GetterValue(obj, ConstantSource(obj, type(obj).__name__))
