"""Modes: named sets of options.

In: a mode's name. Out: the options it sets, as plain data.
Invariant: a mode asks only for options that exist; one whose options do not is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flambeau.errors import UnknownMode

MODES: Mapping[str, Mapping[str, object]] = {
    "default": {},
    "max-autotune": {"max_autotune": True},
    "reduce-overhead": {"cuda_graphs": True},
    "never-slower": {},  # how graphs are served, not how they are compiled
}


def available(options: Collection[str]) -> list[str]:
    """The modes whose options all exist."""
    return [name for name, sets in MODES.items() if all(key in options for key in sets)]


def options_of(mode: str | None, options: Collection[str]) -> Mapping[str, object]:
    """The options that a mode sets; `options` names those that exist.

    Raises UnknownMode for a name that is not in the table, and for a mode of which an option is
    missing in the installed packages.
    """
    if mode is None:
        return {}
    if not isinstance(mode, str) or mode not in MODES:
        raise UnknownMode("mode", mode, available(options))
    missing = [key for key in MODES[mode] if key not in options]
    if missing:
        more = f" (mode {mode!r} sets {', '.join(missing)}, which no installed package has yet)"
        raise UnknownMode("mode", mode, available(options), more)
    return MODES[mode]
