"""`print` as a side effect of compiled code.

In: calls of `print`. Out: None, and an entry in the log of effects, or calls of the `write` of a
file of the program's. Invariant: what is printed is printed in the program's order, when the graph
has run: that is put off only where Python's own streams receive it. A text is that of the line
where it is printed: a tensor's is the text of a copy that the graph makes there. The text of a
tensor with a derivative names the function that computed it, so it is a graph break.
"""

from __future__ import annotations

import io
import sys
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.introspection import text_of
from flambeau_capture.builtins.logging_and_warnings import put_off
from flambeau_capture.effects.side_effects import DeferredCall
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate, is_none
from flambeau_capture.values.functions.call_rules import describe_call, handles
from flambeau_capture.values.iterators.existing_iterators import ForeignIterator
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made_objects import MadeObject
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue

#: the packages whose streams pass on what they are given
_OF_STREAMS = frozenset({"_io", "io", "_pytest", "ipykernel"})


def _passes_on(stream: Any) -> bool:
    """Whether what is written to a stream is read by no code of the program."""
    package = type(stream).__module__.partition(".")[0]
    return issubclass(type(stream), io.TextIOBase) and package in _OF_STREAMS


def _shows(module: Any) -> bool:
    """A guard's question: what is printed goes to a stream that passes it on, or nowhere."""
    return module.stdout is None or _passes_on(module.stdout)


@handles(print)
def _print(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = dict(kwargs)
    file = given.pop("file", Constant(None))
    flush = given.pop("flush", Constant(False)).truth(tx)
    shown = f"call_function {describe_call(print, args)}"
    try:
        plain = {name: value.as_python() for name, value in given.items()}
    except NotConcrete as error:
        raise Break("FB0023", f"{shown} with {error}") from None
    evaluate(tx, print, file=io.StringIO(), **plain)  # in its own words
    sep = " " if plain.get("sep") is None else plain["sep"]
    end = "\n" if plain.get("end") is None else plain["end"]
    passed_on = isinstance(file, OpaqueValue | ForeignIterator) and _passes_on(file.real)
    if not is_none(file) and not passed_on:
        _write(tx, file, args, sep, end, flush, shown)
        return Constant(None)
    if is_none(file) and "stdout" in tx.scope_of(vars(sys)).written:
        raise Break("FB0023", f"{shown}, which code of the program receives")
    if not passed_on:
        put_off(tx, sys, shown, _shows)
    parts = [_part(tx, arg, shown) for arg in args]
    options = [file, Constant(sep), Constant(end), Constant(flush)]
    tx.heap.log(DeferredCall(_print_later, [*options, *parts]))
    return Constant(None)


def _print_later(file: Any, sep: str, end: str, flush: bool, *parts: Any) -> None:
    print(*parts, file=file, sep=sep, end=end, flush=flush)


def _part(tx: Tracer, value: Value, shown: str) -> Value:
    """What has, later, the text that a value has now."""
    if isinstance(value, TensorValue):
        if type(value) is not TensorValue or value.fake.requires_grad:
            raise Break("FB0023", shown)
        return value.call_method(tx, "clone", [], {})
    if isinstance(value, SymbolValue):
        return value
    return Constant(text_of(tx, value, "__str__"))


def _write(
    tx: Tracer, file: Value, args: Args, sep: str, end: str, flush: bool, shown: str
) -> None:
    """Call the `write` of an object of the program as `print` does."""
    if not isinstance(file, ObjectValue | MadeObject):
        raise Break("FB0023", f"{shown} to {file.describe()}")
    write = tx.get_attr(file, "write")
    for place, arg in enumerate(args):
        if place:
            tx.call(write, [Constant(sep)], {})
        tx.call(write, [Constant(text_of(tx, arg, "__str__"))], {})
    tx.call(write, [Constant(end)], {})
    if flush:
        tx.call(tx.get_attr(file, "flush"), [], {})
