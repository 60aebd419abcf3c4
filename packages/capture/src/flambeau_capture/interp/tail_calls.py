"""Calls whose result is what the instruction pushes.

In: the calling frame, a value and arguments. Out: the result. Invariant: a frame entered here is
`linked` to its caller, which means: if it stops at a graph break, both can be resumed, the caller
with the callee's result on its stack.
"""

from __future__ import annotations

from flambeau_capture.builtins.construction import made_by_init, new_object, nothing_answered
from flambeau_capture.interp.frame import Frame
from flambeau_capture.resuming import drive
from flambeau_capture.values.base import Args, Kwargs, Value
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.objects.attributes import assume_making, class_attribute
from flambeau_capture.values.objects.classes import ClassValue


def tail_call(frame: Frame, fn: Value, args: Args, kwargs: Kwargs) -> Value:
    """Call `fn` from the instruction that `frame` is at; nothing is done to what it returns."""
    tx = frame.tx
    made: Value | None = None
    while True:
        if isinstance(fn, FunctionValue):
            if fn.real is not drive:
                break
            fn, args = args[0], args[1:]
            continue
        if made is None and isinstance(fn, ClassValue) and made_by_init(fn.python_class):
            assume_making(tx, fn.python_class)
            made = new_object(fn)
            fn = class_attribute(tx, made, fn.python_class, "__init__")
            continue
        instead = fn.forwards(tx, args, kwargs)
        if instead is None:
            break
        fn, args, kwargs = instead
    if not isinstance(fn, FunctionValue):
        result = tx.call(fn, args, kwargs)
    else:
        result = tx.inline(fn, args, kwargs, linked=True, instead=made)
    if made is None:
        return result
    nothing_answered(tx, result)
    return made
