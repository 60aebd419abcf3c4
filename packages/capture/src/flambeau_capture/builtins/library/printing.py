"""`print` to a file that capture knows.

In: calls of `print`. Out: None, and calls of the file's `write`. Invariant: what goes to the
program's own output is a graph break, so that it is there when the program is there.
"""

from __future__ import annotations

import sys

from flambeau_capture.breaks import Break
from flambeau_capture.polyfills.calling import print_to
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import describe_call, handles
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made.made_objects import MadeObject


@handles(print)
def _print(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    shown = f"call_function {describe_call(print, args)}"
    file = kwargs.get("file", Constant(None))
    redirected = tx.scope_of(vars(sys)).written.get("stdout")
    if is_none(file) and redirected is not None:
        file = redirected
    if not isinstance(file, MadeObject | ObjectValue):
        raise Break("FB0023", shown)
    sep, end = (_separator(kwargs, name, text, shown) for name, text in _SEPARATORS)
    flush = kwargs.get("flush", Constant(False))
    return tx.call_python(print_to, [file, TupleValue(list(args)), sep, end, flush])


_SEPARATORS = (("sep", " "), ("end", "\n"))


def _separator(kwargs: Kwargs, name: str, otherwise: str, shown: str) -> Value:
    given = kwargs.get(name, Constant(None))
    if is_none(given):
        return Constant(otherwise)
    if not isinstance(given, Constant) or given.cls is not str:
        raise Break("FB0023", shown)
    return given
