"""The parts of a function that programs read: its defaults, closure, annotations, `__dict__`.

In: a `FunctionValue` and a name. Out: `PARTS`, and `new_part` for a function that the program made.
Invariant: the parts of an existing function are read through their source, so they are guarded.
"""

from __future__ import annotations

import types
from typing import Any

from flambeau_capture.source import Attr
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.methods import BoundMethod


def _defaults_part(fn: FunctionValue, tx: Tracer) -> Value:
    from flambeau_capture.values.containers.tuples import TupleValue

    found = fn.defaults()
    return TupleValue(found) if found else Constant(None)


def _kwdefaults_part(fn: FunctionValue, tx: Tracer) -> Value:
    from flambeau_capture.values.containers.dicts import DictValue

    found = fn.kwdefaults()
    return DictValue([(Constant(k), v) for k, v in found.items()]) if found else Constant(None)


def _closure_part(fn: FunctionValue, tx: Tracer) -> Value:
    from flambeau_capture.values.containers.tuples import TupleValue

    found = fn.closure()
    return TupleValue(found) if found else Constant(None)


def _dict_part(fn: FunctionValue, tx: Tracer) -> Value:
    from flambeau_capture.values.containers.dicts import DictValue

    if fn.real is None:
        hidden = ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__")
        shown: list[tuple[Value, Value]] = [
            (Constant(k), v) for k, v in fn.attributes.items() if k not in hidden
        ]
        return FunctionDict(shown, fn)
    fn.guard_part("__dict__")
    items = [
        (Constant(key), tx.wrap(value, Attr(fn.base(), key)))
        for key, value in fn.real.__dict__.items()
        if key not in fn.attributes
    ]
    items += [(Constant(key), value) for key, value in fn.attributes.items()]
    return DictValue(items, tx=tx)


def _class_part(fn: FunctionValue, tx: Tracer) -> Value:
    return tx.wrap_new(types.FunctionType)


def _wrapper_part(fn: FunctionValue, tx: Tracer) -> Value:
    return BoundMethod(fn, "__get__")


PARTS = {
    "__defaults__": _defaults_part,
    "__kwdefaults__": _kwdefaults_part,
    "__closure__": _closure_part,
    "__dict__": _dict_part,
    "__class__": _class_part,
    "__get__": _wrapper_part,
}


def new_part(fn: FunctionValue, tx: Tracer, name: str) -> Value:
    from flambeau_capture.values.containers.dicts import DictValue

    if name == "__annotations__":
        if fn.annotations is None:
            return DictValue(tx=tx)
        flat = fn.annotations.parts()  # type: ignore[attr-defined]
        found = DictValue(list(zip(flat[::2], flat[1::2])), tx=tx)
        fn.attributes[name] = found
        return found
    if name == "__module__":
        return tx.wrap_new(fn.scope.namespace.get("__name__"))
    first = fn.code.co_consts[0] if fn.code.co_consts else None
    return tx.wrap_new(first if isinstance(first, str) else None)


class FunctionDict(Value):
    """`__dict__` of a function under construction: functools.update_wrapper writes to it."""

    def __init__(self, shown: list[tuple[Value, Value]], fn: FunctionValue) -> None:
        self.fn = fn
        self.shown = shown

    @property
    def cls(self) -> type:
        return dict

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return BoundMethod(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        from flambeau_capture.values.containers.dicts import DictValue, pairs_of

        if name == "update":
            for key, value in pairs_of(tx, args[0]):
                self.fn.set_attr(tx, key.as_python(), value)
            return Constant(None)
        return DictValue(self.shown, tx=tx).call_method(tx, name, args, kwargs)

    def reconstruct(self, writer: Any) -> None:
        writer.load(self.fn)
        writer.load_attr("__dict__")
