"""Validation of option values against what the stages declare.

In: an options class of a stage, a field's name, a value. Out: the value, a path as text; or a
`BadOption` that says what would do. Invariant: what may be given is read off the field's annotation
and, for numbers and names, the tables here; no stage meets a value that it has not declared.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from flambeau.errors import BadOption

#: the least and the most of numbers; those that are not here are not negative
LIMITS: Mapping[str, tuple[float, float]] = {
    "capture.cache_size_limit": (1, float("inf")),
    "capture.step_limit": (1, float("inf")),
    "capture.idle_step_limit": (1, float("inf")),
    "inductor.threads": (1, float("inf")),
    "aot.recompute_share": (0, 1),
}
#: fields that are arguments of `compile`, by their names there
ARGUMENTS: Mapping[str, str] = {"nopython": "fullgraph", "dynamic": "dynamic"}
#: folders that are written to
WRITTEN = frozenset({"inductor.debug_dir", "capture.record_failures"})


def checked(owner: type, stage: str, name: str, value: object) -> Any:
    """`value` for the field `name` of the options of a stage; raises BadOption."""
    hint = _hints(owner)[name]
    if isinstance(value, os.PathLike) and str in get_args(hint):
        value = os.fspath(value)
    full = ARGUMENTS.get(name, f"{stage}.{name}")
    if not _fits(hint, value):
        raise BadOption(full, value, _spelled(hint))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        least, most = LIMITS.get(full, (0, float("inf")))
        if not least <= value <= most:
            above = "" if most == float("inf") else f" to {most}"
            raise BadOption(full, value, f"a number from {least}{above or ' on'}")
    if full == "inductor.skip_passes":
        known = _passes()
        for each in value:  # type: ignore[attr-defined]
            if each not in known:
                raise BadOption(full, value, f"names out of {', '.join(sorted(known))}")
    if full in WRITTEN and value is not None:
        try:
            Path(str(value)).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadOption(full, value, f"a folder that can be written ({error})") from error
    return value


@functools.cache
def _hints(owner: type) -> dict[str, Any]:
    return get_type_hints(owner)


def _passes() -> Collection[str]:
    from flambeau_inductor.pipeline import CAPTURED, OPTIONAL, RULES  # which few programs name

    return {*CAPTURED, *OPTIONAL, *RULES}


def _fits(hint: Any, value: object) -> bool:
    origin = get_origin(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(each, value) for each in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(get_args(hint)[0], each) for each in value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is type(None):
        return value is None
    if hint is Callable or (isinstance(origin, type) and issubclass(origin, Callable)):  # type: ignore[arg-type]
        return callable(value)
    return isinstance(value, origin or hint)


def _spelled(hint: Any) -> str:
    """An annotation as words of Python."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_spelled(each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return ", ".join(map(repr, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"a tuple of {_spelled(get_args(hint)[0])}"
    if hint is type(None):
        return "None"
    return getattr(hint, "__name__", str(hint)) if get_origin(hint) is None else "a callable"
