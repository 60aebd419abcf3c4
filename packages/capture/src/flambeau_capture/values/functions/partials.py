"""`functools.partial` as a value.

In: a partial of the program, or the parts of a new one. Out: `PartialValue`. Invariant: the
function and its arguments are values of their own.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from flambeau_capture.source import Attr, ConstantSource, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.tuples import TupleValue
from flambeau_capture.values.objects.opaque import FrozenValue
from flambeau_capture.values.registry import wraps_type


class PartialValue(Value):
    """functools.partial."""

    built_once = True

    def __init__(
        self, fn: Value, args: list[Value], kwargs: dict[str, Value], source: Source | None = None
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.source = source

    @property
    def cls(self) -> type:
        return functools.partial

    def describe(self) -> str:
        return f"partial({self.fn.describe()})"

    def as_python(self) -> Any:
        return functools.partial(
            self.fn.as_python(),
            *(arg.as_python() for arg in self.args),
            **{key: arg.as_python() for key, arg in self.kwargs.items()},
        )

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "func":
            return self.fn
        if name == "args":
            return TupleValue(self.args)
        if name == "keywords":
            return DictValue([(Constant(k), v) for k, v in self.kwargs.items()], tx=tx)
        if not hasattr(functools.partial, name):
            tx.raise_error(AttributeError, f"'functools.partial' object has no attribute '{name}'")
        self.unknown(f"attribute {name!r}")

    def forwards(self, tx: Tracer, args: Args, kwargs: Kwargs) -> tuple[Value, Args, Kwargs]:
        return self.fn, [*self.args, *args], {**self.kwargs, **kwargs}

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return tx.call(self.fn, [*self.args, *args], {**self.kwargs, **kwargs})

    def reconstruct(self, writer: Any) -> None:
        if self.source is not None:
            writer.load_source(self.source)
        else:
            writer.call(
                _make_partial,
                [
                    self.fn,
                    TupleValue(self.args),
                    DictValue([(Constant(k), v) for k, v in self.kwargs.items()]),
                ],
            )


def _make_partial(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return functools.partial(fn, *args, **kwargs)


@wraps_type(functools.partial)
def wrap_partial(tx: Tracer, obj: functools.partial[Any], source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", functools.partial)
    args = tx.wrap(obj.args, Attr(source, "args"))
    keywords = tx.wrap(obj.keywords, Attr(source, "keywords"))
    assert isinstance(args, TupleValue) and isinstance(keywords, DictValue)
    named = {key.as_python(): value for key, value in keywords.entries()}
    return PartialValue(tx.wrap(obj.func, Attr(source, "func")), args.parts(), named, source)


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
