"""Reader of a trace folder.

In: the folder that FLAMBEAU_TRACE or `flambeau.trace` named. Out: one `ProcessEvents` a process.
Invariant: a line that was cut short (the process was killed) is counted, not an error; nothing
outside of the folder is read, whatever an event says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flambeau.errors import FlambeauError
from flambeau.tracing.writer import EVENTS, FORMAT, PROCESS

Event = dict[str, Any]
MOST_TEXT = 400_000
"""A longer artefact is cut in the page, and says so."""


class NoTrace(FlambeauError):
    """There is no trace in a folder."""


@dataclass(frozen=True)
class ProcessEvents:
    """What one process wrote. `broken`: lines that could not be read."""

    folder: Path
    process: dict[str, Any]
    events: tuple[Event, ...]
    broken: int = 0

    def of_kind(self, kind: str) -> list[Event]:
        """Its events of one kind, in order."""
        return [event for event in self.events if event["kind"] == kind]

    def text(self, path: str) -> str:
        """An artefact's text."""
        place = (self.folder / path).resolve()
        if not place.is_relative_to(self.folder.resolve()):
            return f"{path} is outside of the trace and was not read"
        try:
            text = place.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return f"{path} cannot be read: {error}"
        if len(text) > MOST_TEXT:
            return f"{text[:MOST_TEXT]}\n... {len(text) - MOST_TEXT} characters more in {path}\n"
        return text


def load(root: Path) -> list[ProcessEvents]:
    """The parts of a trace, the earliest first. Raises NoTrace where there is none."""
    parts = [_part(place.parent) for place in sorted(root.glob(f"*/{PROCESS}"))]
    if not parts:
        raise NoTrace(f"{root} holds no trace: run a program with FLAMBEAU_TRACE={root}")
    return sorted(parts, key=lambda part: float(part.process.get("started", 0.0)))


def _part(folder: Path) -> ProcessEvents:
    process = json.loads((folder / PROCESS).read_text(encoding="utf-8"))
    if process.get("format") != FORMAT:
        raise NoTrace(f"{folder} is a trace of format {process.get('format')}, not {FORMAT}")
    events: list[Event] = []
    broken = 0
    lines = (folder / EVENTS).read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            broken += 1
    return ProcessEvents(folder, process, tuple(events), broken)
