"""The cache folder: entries, reasons for misses, and its transfer as one file.

In: a folder (the one in use by default), a file. Out: figures, keys, differences; entries in
another folder. Invariant: looking changes nothing; clearing removes whole entries; a file that was
changed, or made with other versions or for another processor, is refused and changes nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flambeau_inductor.cache import (
    OWN,
    CacheStore,
    Key,
    cache_folder,
    differences,
    intact,
    key,
    key_from,
    objection,
    size_limit,
    surroundings,
)

from flambeau.errors import Refused
from flambeau.packaging import archive
from flambeau.shown import Shown


@dataclass(frozen=True, repr=False)
class Info(Shown):
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


def prune(most: int | None = None, folder: str | Path | None = None) -> int:
    """Remove the entries that were used longest ago until `most` bytes are left (None: the limit);
    how many went. Those of the last minute stay."""
    place = _folder(folder)
    if not place.exists():
        return 0
    return size_limit.sweep(place, size_limit.limit() if most is None else most, low=1.0)


def verify(folder: str | Path | None = None) -> list[Path]:
    """The entries whose files are not those that were written. Nothing is removed: a broken entry
    is made anew when it is next looked up."""
    return [
        each.folder for each in size_limit.entries_under(_folder(folder)) if not intact(each.folder)
    ]


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


KIND = "cache"


def save(path: str | Path, folder: str | Path | None = None) -> int:
    """Write all whole entries of the cache folder to one file; how many there were."""
    place = _folder(folder)
    files: dict[str, bytes | Path] = {}
    count = 0
    with tempfile.TemporaryDirectory(prefix="flambeau-") as aside:
        for each in size_limit.entries_under(place):
            own = _copied(each.folder, Path(aside) / str(count))
            if own is not None:
                for file in sorted(own.iterdir()):
                    files[f"{each.kind}-{each.folder.name}-{file.name}"] = file
                count += 1
        archive.write(Path(path), KIND, surroundings(), files)
    return count


def _copied(place: Path, own: Path) -> Path | None:
    """A copy of an entry that is whole: another process may remove the entry at any moment."""
    try:
        shutil.copytree(place, own)
    except (OSError, shutil.Error):
        if place.exists():
            raise  # it is our own disk that fails
        shutil.rmtree(own, ignore_errors=True)
        return None
    return own if intact(own) else None


def load(path: str | Path, folder: str | Path | None = None) -> int:
    """Put the entries of a file that `save` wrote into the cache folder; how many were new.

    Raises Refused for a file of another kind of machine, with what differs. What is in the file
    will be run: load your own.
    """
    place = _folder(folder)
    reason = objection(place)
    if reason is not None:
        raise Refused(f"the cache folder {place} is not used: {reason}")
    there = {name: str(fact) for name, fact in archive.facts_of(Path(path), KIND).items()}
    wrong = differences(key(KIND, **there), key(KIND, **surroundings()))
    if wrong:
        raise Refused(f"{path}: made with other {'; '.join(wrong)}, which is what is here")
    aside = Path(tempfile.mkdtemp(prefix=".new-", dir=place))
    try:
        archive.unpack(Path(path), KIND, aside)
        return _take(aside, CacheStore(place))
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _take(aside: Path, store: CacheStore) -> int:
    groups: dict[tuple[str, str], dict[str, Path]] = {}
    for file in aside.iterdir():
        kind, digest, name = file.name.split("-", 2)
        groups.setdefault((kind, digest), {})[name] = file
    new = 0
    for (kind, digest), files in sorted(groups.items()):
        key = key_from(files["key.json"].read_text())
        if key.kind != kind or key.digest != digest:
            raise Refused(f"the entry {digest} does not have the key that it is named by")
        if store.find(key) is None:
            own = {name: file for name, file in files.items() if name not in OWN}
            fault = store.put(key, own)
            if fault:
                raise Refused(f"the entry {digest} cannot be kept: {fault}")
            new += 1
    return new
