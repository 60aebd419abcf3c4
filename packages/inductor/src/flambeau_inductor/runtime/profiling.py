"""Rows of `torch.profiler` for compiled graphs and their generated kernels.

In: a wrapper's text, and the kernels that it calls by name. Out: spans by `record_function`.
Invariant: without a profiler a call reads one flag; the text that is profiled is the one that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.autograd import profiler


def labelled(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, as a row of that name."""

    def run(*args: Any) -> Any:
        with profiler.record_function(label):
            return function(*args)

    return run


class Unwatched:
    """Stands for `torch.autograd.profiler` in a wrapper that is being profiled."""

    _is_profiler_enabled = False


def with_rows(
    load: Callable[[Mapping[str, object]], Callable[..., Any]],
    known: Mapping[str, Any],
    rows: Mapping[str, str],
) -> Callable[..., Any]:
    """The call that a profiler sees: loaded when it is first looked at.

    load: makes the call of the names that are known to it. rows: labels of the call, by `call`, and
    of kernels by their names.
    """
    made: list[Callable[..., Any]] = []

    def profiled(args: list[Any]) -> Any:
        if not made:
            kernels = {
                name: labelled(rows[name], kernel) for name, kernel in known.items() if name in rows
            }
            call = load({**known, **kernels, "profiler": Unwatched})
            made.append(labelled(rows["call"], call))
        return made[0](args)

    return profiled
