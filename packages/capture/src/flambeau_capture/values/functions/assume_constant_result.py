"""Functions whose result the program vouches for.

In: a function and a call of it. Out: its result, had by calling it while capturing. Invariant: what
the function reads is not guarded; that it stays the same is the program's word.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.observe.unguarded import unguarded
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.functions.callables import describe_call

unguarded(
    "results of functions marked by `assume_constant_result`",
    "that they stay is the program's word",
)


def call_at_capture(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """The result of a call whose arguments are known (no tensors), else a break."""
    try:
        plain = [arg.as_python() for arg in args]
        named = {key: arg.as_python() for key, arg in kwargs.items()}
    except NotConcrete as missing:
        what = f"{describe_call(fn, args)}: {missing} is not known at capture"
        raise Break("FB0005", what) from None
    result = fn(*plain, **named)
    return tx.wrap(result, ConstantSource(result, f"{getattr(fn, '__name__', 'constant')}()"))
