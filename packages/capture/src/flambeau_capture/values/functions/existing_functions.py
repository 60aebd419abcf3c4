"""Functions, methods and cells that existed before the frame.

In: a callable and its source. Out: its value. Invariant: a function that is made anew for each call
is guarded by its code, every other one by identity.
"""

from __future__ import annotations

import types
from typing import Any

from flambeau_capture._native import compiled, disabled
from flambeau_capture.breaks import Break
from flambeau_capture.source import Attr, ConstantSource, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.functions.cells import CellValue, is_empty
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.methods import MethodValue
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import wraps_type
from flambeau_capture.values.stable_modules import trusted_callable


@wraps_type(types.FunctionType)
def wrap_function(tx: Tracer, obj: types.FunctionType, source: Source) -> Value:
    pinned = not _made_per_call(tx, obj, source)
    if pinned:
        tx.guard(source, "FUNCTION_MATCH", obj)
        if not trusted_callable(obj):
            tx.guard(
                Attr(ConstantSource(obj, obj.__qualname__), "__code__"), "ID_MATCH", obj.__code__
            )
    else:
        tx.guard(Attr(source, "__code__"), "ID_MATCH", obj.__code__)
    known: Value | None = tx.heap.find(obj)
    if known is not None:
        if not pinned and known.source is not None:
            tx.guard_alias(source, known.source)
        return known
    made = function_value(tx, obj, source, pinned)
    tx.heap.know(obj, made)
    return made


def function_value(
    tx: Tracer, obj: types.FunctionType, source: Source, pinned: bool
) -> FunctionValue:
    return FunctionValue(
        obj.__code__,
        tx.scope_of(obj.__globals__),
        name=obj.__name__,
        qualname=obj.__qualname__,
        real=obj,
        source=ConstantSource(obj, obj.__qualname__) if pinned else source,
        pinned=pinned,
        tx=tx,
    )


def _made_per_call(tx: Tracer, obj: types.FunctionType, source: Source) -> bool:
    """Functions among a frame's arguments or closures are often made anew for each call; any other
    is where another one stood when code was last made."""
    if source.is_local():
        return True
    return not isinstance(source, ConstantSource) and tx.replaced(source, obj)


@wraps_type(types.MethodType)
def wrap_method(tx: Tracer, obj: types.MethodType, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", types.MethodType)
    receiver = tx.wrap(obj.__self__, Attr(source, "__self__"))
    function = tx.wrap(obj.__func__, Attr(source, "__func__"))
    return MethodValue(receiver, function, source)


@wraps_type(types.CellType)
def wrap_cell(tx: Tracer, obj: Any, source: Source) -> Value:
    known: Value | None = tx.heap.find(obj)
    if known is not None:
        place = known.place()
        assert place is not None
        tx.guard_alias(place, source)
        return known
    tx.guard(source, "TYPE_MATCH", types.CellType)
    try:
        pending = (obj.cell_contents, Attr(source, "cell_contents"))
    except ValueError:
        tx.guard(source, "CALL", is_empty, "is empty")
        made = CellValue(real=obj, source=source, tx=tx)
    else:
        made = CellValue(real=obj, source=source, pending=pending, tx=tx)
    tx.heap.know(obj, made)
    return made


@wraps_type(compiled)
def wrap_compiled(tx: Tracer, obj: Any, source: Source) -> Value:
    """A compiled callable inside captured code is the function it was made from."""
    tx.guard(source, "ID_MATCH", obj)
    return tx.wrap(obj.fn, ConstantSource(obj.fn, "compiled function"))


@wraps_type(disabled)
def wrap_disabled(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return DisabledValue(obj, source)


class DisabledValue(OpaqueValue):
    """A function that is not to be looked into."""

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        raise Break("FB0006", f"call of disabled {getattr(self.real, '__name__', 'function')}")
