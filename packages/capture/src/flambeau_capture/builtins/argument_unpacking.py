"""Handlers whose parameters are those of the function that they stand for.

In: callables, and functions of the tracer and of the values that such a call is given. Out: rows in
the table of rules. Invariant: what a call is given fits the callable by then (`check_call`), so
that it fits the handler, whose parameters have the same names and defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.functions.call_rules import answers


def spread(handlers: Mapping[Any, Callable[..., Value | None]]) -> None:
    """Register handlers that are one expression each."""
    answers({fn: partial(_spread, handler) for fn, handler in handlers.items()})


def _spread(
    handler: Callable[..., Value | None], tx: Tracer, args: Args, kwargs: Kwargs
) -> Value | None:
    return handler(tx, *args, **kwargs)
