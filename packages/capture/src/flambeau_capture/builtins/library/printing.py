"""`print`.

In: calls of `print`. Out: None, and calls of the file's `write`, or one call of `print` for what
goes to a stream of Python's own. Invariant: what is printed is put together where the program
prints it, in the same order; it is written when the graph has run, unless code of the program
receives it, which ends the graph before.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.library.logging_and_warnings import put_off
from flambeau_capture.builtins.texts import text_value
from flambeau_capture.effects.side_effects import DeferredCall
from flambeau_capture.polyfills.calling import print_to
from flambeau_capture.source import Attr
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, constant_of, is_none
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import describe_call, handles
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made.made_objects import MadeObject
from flambeau_capture.values.registry import itself
from flambeau_capture.values.tensors.numbers.open_text import OpenText
from flambeau_capture.values.tensors.tensor import TensorValue


@handles(print)
def _print(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    shown = f"call_function {describe_call(print, args)}"
    if not kwargs.keys() <= _NAMES:
        raise Break("FB0023", shown)
    file = kwargs.get("file", Constant(None))
    written = tx.scope_of(vars(sys)).written
    redirected = written.get("stdout")
    if is_none(file) and redirected is not None:
        file = redirected
    name = next((n for n in _TAKEN if file.source == Attr(itself(sys), n)), None)
    sep, end = (_separator(kwargs, each, text, shown) for each, text in _SEPARATORS)
    flush = kwargs.get("flush", Constant(False))
    if is_none(file) or (name is not None and name not in written):
        name = name or "stdout"
        put_off(tx, sys, shown, _TAKEN[name])
        if tx.graph is not tx.graph.outermost:
            raise Break("FB0023", shown)
        if not tx.graph.is_empty() and not tx.options.nopython and not tx.graph.ends_before_more:
            ends = tx.graph.ends_before_more = Break("FB0023", shown)
            ends.stop, ends.lines = tx.step(), tx.user_lines()
        _print_later(tx, name, args, sep, end, Constant(flush.truth(tx)))
        return Constant(None)
    if not isinstance(file, MadeObject | ObjectValue):
        raise Break("FB0023", shown)
    return tx.call_python(print_to, [file, TupleValue(list(args)), sep, end, flush])


def _print_later(
    tx: Tracer, name: str, args: Args, sep: Constant, end: Constant, flush: Constant
) -> None:
    texts: list[Value] = []
    for value in args:
        if texts and not isinstance(value, Constant):  # code of its own may print, or raise
            _log(tx, name, texts, sep, sep, Constant(False))
            texts = []
        if isinstance(value, TensorValue):
            raise Break("FB0023", f"call_function {describe_call(print, args)}")
        texts.append(text_value(tx, value, "__str__"))
    _log(tx, name, texts, sep, end, flush)


def _log(
    tx: Tracer, name: str, texts: Sequence[Value], sep: Constant, end: Constant, flush: Constant
) -> None:
    for each in (*texts, sep, end):
        if not isinstance(each, OpenText) and not constant_of(each).isascii():
            raise Break("FB0023", f"call_function print of {each.describe()}, beyond ASCII")
    tx.heap.log(DeferredCall(_write, [Constant(name), sep, end, flush, *texts], writes=True))


def _write(name: str, sep: str, end: str, flush: bool, *texts: str) -> None:
    print(*texts, sep=sep, end=end, file=getattr(sys, name), flush=flush)


def _is_taken_by_python(name: str, module: Any) -> bool:
    """Whether what is printed ends in no code but Python's, which raises nothing then."""
    stream: Any = getattr(module, name, None)
    kind: Any = type(stream)
    if (
        getattr(kind, "write", None) not in (io.StringIO.write, io.TextIOWrapper.write)
        or stream.closed
    ):
        return False
    return issubclass(kind, io.StringIO) or type(stream.buffer).__module__ == "_io"


_TAKEN = {name: partial(_is_taken_by_python, name) for name in ("stdout", "stderr")}
_SEPARATORS = (("sep", " "), ("end", "\n"))
_NAMES = frozenset({"sep", "end", "file", "flush"})


def _separator(kwargs: Kwargs, name: str, otherwise: str, shown: str) -> Constant:
    given = kwargs.get(name, Constant(None))
    if is_none(given):
        return Constant(otherwise)
    if not isinstance(given, Constant) or given.cls is not str:
        raise Break("FB0023", shown)
    return given
