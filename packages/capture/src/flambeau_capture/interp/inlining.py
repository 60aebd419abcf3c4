"""Inlining: what becomes of a call of a Python function.

In: a function value and arguments. Out: a value if the table of rules says what the call is, or
None: interpret it. Invariant: functions that must not be looked into break the graph by name.
"""

from __future__ import annotations

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.interp.binding import bind
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.callables import (
    OWN,
    Action,
    call_at_capture,
    describe_call,
    evaluate_call,
)
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.tensors.graph_calls import graph_call


def before_inlining(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    real = fn.real
    if real is None:
        return None
    rule = tx.rule_of(real)
    found: Value | None
    if rule.of_called:
        found = rule.handler(tx, fn, args, kwargs)
        return found
    if rule.action is Action.INLINE:
        return None
    if rule.action is Action.BREAK:
        if compat.is_foreign_break(real, tx.frame_code().co_filename):
            return Constant(None)
        raise Break(rule.reason, f"call_function {describe_call(real, args)}")
    if rule.row == OWN and rule.action is not Action.GRAPH:
        bind(tx, fn, args, kwargs)  # raises what Python does for arguments that do not fit
    if rule.handler is not None:
        found = rule.handler(tx, args, kwargs)
        return found
    if rule.action is Action.GRAPH:
        return graph_call(tx, "call_function", real, args, kwargs)
    if rule.action is Action.EVALUATE:
        return evaluate_call(tx, real, args, kwargs)
    if rule.action is Action.CONSTANT:
        return call_at_capture(tx, real, args, kwargs)
    python = rule.python
    return tx.call(tx.wrap(python, ConstantSource(python, python.__name__)), args, kwargs)
