"""Extension points: allow_in_graph, substitutions, constants, polyfills of the user.

In: functions, of Python or built in. Out: the same functions, known to capture as constant, as
forbidden, or by a replacement that is traced instead. Invariant: a function runs outside of capture
as it did before; a registration holds for code that is captured after it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any, TypeVar

import torch

from flambeau_capture.frame.function_marks import BREAK, IN_GRAPH, MARK
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.functions.call_rules import (
    RULES,
    Action,
    CallRule,
    breaks,
    call_at_capture,
    handles,
    own_rule,
)

F = TypeVar("F", bound=Callable[..., Any])


def allow_in_graph(fn: F) -> F:
    """Record calls of `fn` as one node of the graph, without looking into it.

    `fn` is a Python function, or anything else that is called: a built-in, a class. An
    `autograd.Function` stays as it is: its `apply` is in the graph with its own backward. Raises
    TypeError on what cannot be called.
    """
    _callable("allow_in_graph", fn)
    if isinstance(fn, FunctionType):
        fn.__dict__[MARK] = IN_GRAPH
    elif not (isinstance(fn, type) and issubclass(fn, torch.autograd.Function)):
        RULES[fn] = CallRule(Action.GRAPH)
    return fn


def disallow_in_graph(fn: F) -> F:
    """Calls of `fn` end the graph and run in Python, as if `graph_break()` stood around them.

    `fn` may be a Python function or one of torch's. Raises TypeError on what cannot be called.
    """
    _callable("disallow_in_graph", fn)
    if isinstance(fn, FunctionType):
        fn.__dict__[MARK] = BREAK
    else:
        breaks("FB0006", fn)
    return fn


def assume_constant_result(fn: F) -> F:
    """Calls of `fn` are made at capture and their result is taken to be the same ever after.

    No guard watches what `fn` reads: that the result does not change is the caller's word. The
    arguments of a call must be there at capture (constants; objects, modules and tensors that the
    program has before the call and does not change in it), else the call ends the graph.
    """
    _callable("assume_constant_result", fn)
    handles(fn, action=Action.CONSTANT)(
        lambda tx, args, kwargs: call_at_capture(tx, fn, args, kwargs)
    )
    return fn


def substitute_in_graph(
    original: Callable[..., Any], *, skip_signature_check: bool = False
) -> Callable[[F], F]:
    """A decorator: where captured code calls `original`, the decorated function is traced.

    The replacement is Python that capture can follow and that gives the same results; outside of
    capture `original` runs. Raises TypeError when the two signatures differ, unless
    `skip_signature_check`, and ValueError when `original` has a replacement already.
    """
    _callable("substitute_in_graph", original)

    def decorate(replacement: F) -> F:
        if not isinstance(replacement, FunctionType):
            raise TypeError(f"a replacement is a Python function, not {replacement!r}")
        rule = own_rule(original)
        known = None if rule is None else rule.handler
        if (
            isinstance(known, partial)
            and known.func is _traced
            and known.args[0] is not replacement
        ):
            raise ValueError(f"{_name(original)} is replaced already, by {known.args[0]!r}")
        if not skip_signature_check:
            _same_signature(original, replacement)
        handles(original, action=Action.POLYFILL)(partial(_traced, replacement))
        return replacement

    return decorate


def _traced(replacement: FunctionType, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A handler: the call of a replacement under capture."""
    return tx.call_python(replacement, args, kwargs)


def _same_signature(original: Callable[..., Any], replacement: FunctionType) -> None:
    try:
        expected = inspect.signature(original)
    except ValueError:  # a built-in function that lacks its own
        return
    given = inspect.signature(replacement)
    if _shape(expected) != _shape(given):
        raise TypeError(
            f"{_name(original)}{expected} is replaced by a function of another signature, "
            f"{replacement.__name__}{given}"
        )


def _shape(signature: inspect.Signature) -> list[tuple[str, object, bool]]:
    """Names, kinds, and which parameters have defaults; annotations do not matter."""
    return [
        (parameter.name, parameter.kind, parameter.default is not inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]


def _callable(name: str, fn: object) -> None:
    if not callable(fn):
        raise TypeError(f"{name} takes a function, not {fn!r}")


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)
