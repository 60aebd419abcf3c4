"""Bisection over captured frames, and over missing guards.

In: a program that is wrong though its graphs run as they are. Out: a `Verdict`. Invariant: a guard
is blamed only where the same call is right when nothing was compiled before it.
"""

from __future__ import annotations

import re

from flambeau_capture.observe.records import EntryRecord

from flambeau.bisecting.trials import TrialProgram
from flambeau.bisecting.verdict import Verdict
from flambeau.testing.comparison import Difference

CALL = re.compile(r"call (\d+), ")


class Entries:
    """Keeps the entries that a run made."""

    def __init__(self) -> None:
        self.found: list[EntryRecord] = []

    def __call__(self, kind: str, record: object) -> None:
        if isinstance(record, EntryRecord):
            self.found.append(record)


def blame_capture(program: TrialProgram, found: Difference) -> Verdict:
    """A guard, a frame, or capture as a whole."""
    entries = Entries()
    program.attempt("again, looking at its frames", "eager", capture={"watch": entries})
    if len(program.calls) > 1:
        afresh = Entries()
        right = program.attempt(
            "each call compiled afresh", "eager", afresh=True, capture={"watch": afresh}
        )
        if right is None:
            return _guard(entries, afresh, _fewest_calls(program, found))
    names = list(dict.fromkeys(entry.function for entry in entries.found))
    for name in names if len(names) > 1 else []:
        only = {"debug_function": name}
        wrong = program.attempt(f"only frames of {name}", "eager", capture=only)
        if wrong is not None:
            return Verdict("capture", step="frame", name=name, lines=_places(entries, name))
    name = names[0] if len(names) == 1 else ""
    return Verdict("capture", step="frame", name=name, lines=_places(entries, name))


def _fewest_calls(program: TrialProgram, found: Difference) -> str:
    """Two of the calls that go wrong alone, if two do: one that compiles, one that it misleads."""
    number = CALL.match(found.place)
    if number is None:
        return ""
    calls, last = program.calls, int(number[1]) - 1
    for first in range(last):
        chosen = [calls[first], calls[last]]
        two = TrialProgram(program.fn, chosen, program.options, program.cache_dir, program.check)
        if two.attempt(f"calls {first + 1} and {last + 1} alone", "eager") is not None:
            program.tried += two.tried
            return f"it takes call {first + 1} and then call {last + 1}"
    return ""


def _guard(entries: Entries, afresh: Entries, fewest: str) -> Verdict:
    """An entry was used that should not have been: what a new one would have guarded."""
    had = {str(guard) for entry in entries.found for guard in entry.guards.items}
    lacks = [
        str(guard)
        for entry in afresh.found
        for guard in entry.guards.items
        if str(guard) not in had
    ]
    used = entries.found[-1].function if entries.found else ""
    told = f"of {used}: an entry was used for a call that it does not fit"
    lines = tuple(f"a new entry would also guard {guard}" for guard in dict.fromkeys(lacks))
    lines = (lines or _places(entries, used)) + ((fewest,) if fewest else ())
    note = "a script of the two calls: flambeau.repro.write_calls(path, fn, [Call(args), ...])"
    return Verdict("capture", step="guards", name=told, lines=lines, note=note)


def _places(entries: Entries, name: str) -> tuple[str, ...]:
    found = [f"{e.filename}:{e.lineno} {e.function}" for e in entries.found if e.function == name]
    return tuple(dict.fromkeys(found))
