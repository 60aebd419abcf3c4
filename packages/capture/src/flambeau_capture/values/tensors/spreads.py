"""Spreads (standard deviations and variances): of how many elements, for how many results.

In: the arguments of a node and its result. Out: counts, and the correction. Invariant: a count that
is open stays a symbol.
"""

from __future__ import annotations

from typing import Any

from torch import fx

SPREADS = frozenset({"std", "var", "std_mean", "var_mean"})
"""The operators, by name."""


def is_of_too_few(args: Any, kwargs: Any, result: Any) -> bool:
    """Whether a spread is over no more elements than its correction: eager warns at every call."""
    count, results, correction = spread_of(args, kwargs, result)
    left = results * correction
    return isinstance(count, int) and isinstance(left, int | float) and count <= left


def spread_of(args: Any, kwargs: Any, result: Any) -> tuple[Any, Any, Any]:
    """How many elements a spread is of, how many results it has, and the correction of each."""
    first = result[0] if isinstance(result, tuple) else result
    given = kwargs.get("unbiased", next((x for x in args[1:] if type(x) is bool), True))
    correction = kwargs.get("correction", int(given))
    of = args[0] if args else kwargs["input"]
    count = of.meta["val"].numel() if isinstance(of, fx.Node) else None
    return count, first.numel(), 1 if correction is None else correction
