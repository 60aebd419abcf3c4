"""Slices as values.

In: three bounds. Out: `SliceValue`. Invariant: a slice of a Python sequence has known bounds; that
of a tensor may have tensors for bounds.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import Source
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import constant_of, evaluate
from flambeau_capture.values.functions.methods import BoundMethod


class SliceValue(Value):
    built_once = True

    def __init__(
        self, start: Value, stop: Value, step: Value, source: Source | None = None
    ) -> None:
        self.bounds = (start, stop, step)
        self.source = source

    @property
    def cls(self) -> type:
        return slice

    def parts(self) -> list[Value]:
        return list(self.bounds)

    def describe(self) -> str:
        return "slice"

    def truth(self, tx: Tracer) -> bool:
        return True

    def as_python(self) -> Any:
        return slice(*(bound.as_python() for bound in self.bounds))

    def as_slice(self) -> slice:
        """The slice with integer bounds."""
        try:
            found: slice = self.as_python()
        except NotConcrete as error:
            raise Break("FB0002", f"{error} as a bound of a slice") from None
        if any(issubclass(bound.cls, type) for bound in self.bounds):
            raise Break("FB0002", "a class as a bound of a slice")
        return found

    def graph_argument(self) -> Any:
        return slice(*(bound.graph_argument() for bound in self.bounds))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        names = ("start", "stop", "step")
        if name in names:
            return self.bounds[names.index(name)]
        return BoundMethod(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "indices":
            return tx.wrap_new(evaluate(tx, self.as_slice().indices, constant_of(args[0])))
        self.unknown(f"method {name!r}")

    def reconstruct(self, writer: Any) -> None:
        writer.call(slice, list(self.bounds))
