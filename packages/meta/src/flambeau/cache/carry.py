"""The disk cache as one file, for another machine of the same kind.

In: a cache folder, a file. Out: the file; entries in another folder. Invariant: a file that was
changed, or that was made with other versions or on another kind of processor, is refused with the
reason and changes nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from flambeau_inductor.cache import (
    OWN,
    CacheStore,
    cache_folder,
    intact,
    key_from,
    objection,
    size_limit,
    surroundings,
)

from flambeau.errors import Refused
from flambeau.packaging import archive

KIND = "cache"


def save(path: str | Path, folder: str | Path | None = None) -> int:
    """Write all whole entries of the cache folder to one file; how many there were."""
    place = cache_folder(None if folder is None else str(folder))
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
    place = cache_folder(None if folder is None else str(folder))
    reason = objection(place)
    if reason is not None:
        raise Refused(f"the cache folder {place} is not used: {reason}")
    here = surroundings()
    there = archive.facts_of(Path(path), KIND)
    for name in sorted({*here, *there}):
        if here.get(name) != there.get(name):
            raise Refused(f"{path}: made with other {name}: {_about(there, name)}, here "
                          f"{_about(here, name)}")  # fmt: skip
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


def _about(facts: dict[str, str], name: str) -> str:
    text = str(facts.get(name, "nothing"))
    return text if len(text) < 200 else f"{text[:197]}..."
