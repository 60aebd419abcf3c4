"""Inspection of the cache folder: entries, sizes, reasons for misses.

In: a folder (the one in use by default). Out: figures, keys, differences. Invariant: looking
changes nothing; clearing removes whole entries, which another process may be about to make again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flambeau_inductor.cache import Key, cache_folder, differences, key_from, objection, size_limit


@dataclass(frozen=True)
class Info:
    """Figures of a cache folder. `entries` and `bytes` by kind; `limit`: the bytes it may grow to.

    objection: why it is not used, "" where it is.
    """

    folder: Path
    entries: dict[str, int]
    bytes: dict[str, int]
    limit: int
    objection: str = ""

    def __str__(self) -> str:
        lines = [f"{self.folder}: {sum(self.bytes.values()):,} of {self.limit:,} bytes"]
        lines += [f"  {n:6} {kind}, {self.bytes[kind]:,} bytes" for kind, n in self.entries.items()]
        lines += [f"  not used: {self.objection}"] if self.objection else []
        return "\n".join(lines)


def info(folder: str | Path | None = None) -> Info:
    """Figures of the cache folder."""
    place = _folder(folder)
    entries: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    reason = objection(place) if place.exists() else None
    for each in size_limit.entries_under(place):
        entries[each.kind] += 1
        sizes[each.kind] += each.size
    return Info(place, dict(sorted(entries.items())), dict(sizes), size_limit.limit(), reason or "")


def clear(folder: str | Path | None = None, kind: str | None = None) -> int:
    """Remove every entry, or those of one kind; how many there were."""
    place = _folder(folder)
    found = [each for each in size_limit.entries_under(place) if kind in (None, each.kind)]
    for each in found:
        size_limit.remove(place, each.folder)
    return len(found)


def keys(folder: str | Path | None = None, kind: str = "graphs") -> list[Key]:
    """The keys of the entries of one kind, the one that was used last first."""
    found = [each for each in size_limit.entries_under(_folder(folder)) if each.kind == kind]
    found.sort(key=lambda each: -each.used)
    return [read for each in found if (read := _key(each.folder)) is not None]


def why_miss(one: Any, other: Any) -> list[str]:
    """Which parts of two keys differ, each with the first place where it does; [] for equal ones.

    one, other: keys, or compiled callables, of which the graphs are compared in order.
    """
    first, second = _keys_of(one), _keys_of(other)
    found = []
    if len(first) != len(second):
        found.append(f"{len(first)} graphs with a key against {len(second)}")
    for number, (left, right) in enumerate(zip(first, second, strict=False)):
        prefix = f"graph {number}: " if max(len(first), len(second)) > 1 else ""
        found += [f"{prefix}{text}" for text in differences(left, right)]
    return found


def _keys_of(value: Any) -> Sequence[Key]:
    if isinstance(value, Key):
        return [value]
    from flambeau.api import report  # keys are compared without the compiler too

    return [each.key for each in report(value).records if each.key is not None]


def _key(place: Path) -> Key | None:
    """The key that lies in an entry; None for one that is gone or broken."""
    try:
        return key_from((place / "key.json").read_text())
    except (OSError, ValueError):
        return None


def _folder(folder: str | Path | None) -> Path:
    return cache_folder(None if folder is None else str(folder))
