"""Validation of environment variables.

In: the environment, when something is compiled. Out: nothing, or an error that names the variable
and what it may be. Invariant: a value that is wrong is neither ignored nor taken for a fault of a
stage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from flambeau_inductor.cache import size_limit
from flambeau_inductor.options import CACHE_DIR, DEBUG_DIR, VERIFY

from flambeau.distributed import compile_once
from flambeau.errors import FlambeauError, UnknownName, warn
from flambeau.events import logs
from flambeau.switching.variable import INSTALL
from flambeau.tracing.trace import VARIABLE as TRACE

REPRO_AFTER = "FLAMBEAU_REPRO_AFTER"
"""What `flambeau.repro.hook` reads, which is not imported without it."""

DISABLE = "FLAMBEAU_DISABLE"
"""Nothing is compiled: what `flambeau.compile` returns runs as it is."""


class BadSetting(FlambeauError, ValueError):
    """A variable of the environment with a value that means nothing."""


def check_variables() -> None:
    """Raise BadSetting or UnknownName for the first variable that is set to what it cannot be; warn
    of those that no part of Flambeau reads and that are spelled like one that is read."""
    for name in sorted(name for name in os.environ if name.startswith("FLAMBEAU_")):
        if name not in KNOWN and name not in _warned:
            _warned.add(name)
            if close := get_close_matches(name, KNOWN, n=1, cutoff=0.8):
                warn(f"{name} is not read by Flambeau: did you mean {close[0]}?")
    for name, check in CHECKS.items():
        if value := os.environ.get(name, "").strip():
            check(value)


def _names(value: str) -> None:
    known = ("all", *logs.ARTIFACTS)
    for name in filter(None, map(str.strip, value.split(","))):
        if name not in known:
            raise UnknownName(f"artifact in {logs.VARIABLE}", name, known)


def _one_of(name: str, *known: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in known:
            raise BadSetting(f"{name} is {' or '.join(known)}, not {value!r}")

    return check


def _size(value: str) -> None:
    try:
        size_limit.limit()
    except ValueError as error:
        raise BadSetting(str(error)) from None


def _folder(name: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        try:
            Path(value).mkdir(parents=True, exist_ok=True)
            writable = os.access(value, os.W_OK)
        except OSError:
            writable = False
        if not writable:
            raise BadSetting(f"{name} is a folder that can be written to, not {value!r}")

    return check


CHECKS: Mapping[str, Callable[[str], None]] = {
    logs.VARIABLE: _names,
    DISABLE: _one_of(DISABLE, "0", "1"),
    INSTALL: _one_of(INSTALL, "0", "1"),
    "FLAMBEAU_FAULTS": _one_of("FLAMBEAU_FAULTS", "raise"),
    size_limit.LIMIT: _size,
    TRACE: _folder(TRACE),
    DEBUG_DIR: _folder(DEBUG_DIR),
    logs.PROGRESS: _one_of(logs.PROGRESS, "0", "1"),
    compile_once.VARIABLE: _one_of(compile_once.VARIABLE, "0", "1"),
}

#: every variable that a program's user may set
KNOWN = frozenset(
    {
        *CHECKS,
        REPRO_AFTER,
        "FLAMBEAU_REPRO_LEVEL",
        "FLAMBEAU_REPRO_DIR",
        "FLAMBEAU_RECORD_FAILURES",
        "FLAMBEAU_DEBUG_FUNCTION",
        CACHE_DIR,
        VERIFY,
    }
)
_warned: set[str] = set()
