"""Content-addressed store of a cache folder.

In: a key, files. Out: an entry: a folder with these files. Invariant: a folder is used only if it
belongs to this user and nobody else may write to it, since what is read from it is run; an entry
appears whole or not at all, and only with the digests written with it; a disk that cannot be
written to costs the entry, never the compile.

Cache of small results that took long to find. In: a text that names the question, a value of JSON's
kinds. Out: the value, or None. Invariant: a value is found only under the same versions and
processor it was put under, and only whole; a disk that fails is counted, never raised.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from flambeau_inductor.cache import size_limit
from flambeau_inductor.cache.environment_key import Key, processor, versions
from flambeau_inductor.cache.environment_key import key as key_of
from flambeau_inductor.errors import CacheWarning, warn
from flambeau_inductor.options import CACHE_DIR

PRIVATE = 0o700
USE_ANOTHER = f"name a folder of yours in {CACHE_DIR}"
_said: set[str] = set()
"""Warnings that this process has seen."""


def cache_folder(named: str | None = None) -> Path:
    """The folder named, or by `FLAMBEAU_CACHE_DIR`, or the user's own; it need not exist."""
    wanted = named or os.environ.get(CACHE_DIR)
    return Path(wanted).expanduser().absolute() if wanted else user_cache_path("flambeau")


def objection(folder: Path) -> str | None:
    """Make `folder` if it is not there; why it must not be used, or None."""
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        facts = folder.stat()
    except OSError as error:
        return f"it cannot be made ({error.strerror or error})"
    if hasattr(os, "getuid") and facts.st_uid != os.getuid():
        return f"it belongs to another user ({USE_ANOTHER})"
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (`chmod go-w {folder}` forbids it, or {USE_ANOTHER})"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return "it cannot be written to"
    return None


SECONDS = 60.0
"""How long a process waits for another one that makes the same entry."""
DIGESTS = "digests.json"
KEY = "key.json"
OWN = frozenset({DIGESTS, KEY})
"""Files that the store itself adds to an entry."""


class Lease:
    """A private folder that is removed when nobody holds this any more, or at exit."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flambeau-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """`folder` holds the files; `hit`: they were there already.

    fault: why it could not be kept on the disk; `lease` keeps the folder alive then.
    """

    folder: Path
    hit: bool
    fault: str = ""
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class CacheStore:
    """Entries under `folder`. `lease` keeps a folder alive that goes away with this store.

    limit: bytes beyond which the entries that were used longest ago are removed.
    """

    folder: Path
    lease: Lease | None = None
    limit: int = field(default_factory=size_limit.limit)

    def place(self, key: Key) -> Path:
        """Where the entry of `key` is, if it is."""
        return self.folder / key.kind / key.digest[:2] / key.digest

    def find(self, key: Key) -> Path | None:
        """The folder of the entry of `key`, all of whose files are as they were written."""
        place = self.place(key)
        if not intact(place):
            return None
        with suppress(OSError):  # one that was just moved away is made again by its reader
            os.utime(place / DIGESTS)  # when it was last used
        return place

    def entry(self, key: Key, make: Callable[[Path], None]) -> CacheEntry:
        """The entry of `key`; `make` puts its files into the folder it is given if it is absent.
        Of processes that lack it at one time, one makes it, and the others wait for that."""
        found = self.find(key)
        if found is not None:
            return CacheEntry(found, True)
        lock = self.folder / f".lock-{key.digest}"
        with size_limit.locked(lock, SECONDS, once=True):
            found = self.find(key)
            return self._made(key, make) if found is None else CacheEntry(found, True)

    def _made(self, key: Key, make: Callable[[Path], None]) -> CacheEntry:
        try:
            return self._written(key, make)
        except OSError as error:
            lease = Lease()
            make(lease.folder)
            return CacheEntry(lease.folder, False, error.strerror or str(error), lease)

    def put(self, key: Key, files: Mapping[str, bytes | Path]) -> str:
        """Keep files as the entry of `key`; a path is linked or copied. The fault, or ""."""

        def make(folder: Path) -> None:
            for name, content in files.items():
                if isinstance(content, Path):
                    _link(content, folder / name)
                else:
                    (folder / name).write_bytes(content)

        try:
            self._written(key, make)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def drop(self, key: Key) -> None:
        """Remove the entry of `key`, if there is one; a disk that cannot be written to keeps it."""
        place = self.place(key)
        if place.exists():
            with suppress(OSError):
                size_limit.remove(self.folder, place)

    def _written(self, key: Key, make: Callable[[Path], None]) -> CacheEntry:
        place = self.place(key)
        place.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
        try:
            make(aside)
            (aside / KEY).write_text(key.text())
            size = _write_digests(aside)
            kept = _put(aside, place)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        size_limit.grown(self.folder, size, self.limit)
        return CacheEntry(kept, False)


def open_store(named: str | None = None) -> CacheStore:
    """The store in the folder named (see `cache_folder`).

    If that must not be used, a warning says why and the store is a private folder of this process.
    """
    folder = cache_folder(named)
    reason = objection(folder)
    if reason is None:
        return CacheStore(folder)
    text = (
        f"the cache folder {folder} is not used: {reason}; kernels will be built again in the next "
        "process"
    )
    if text not in _said:  # once a process, whoever opens it
        _said.add(text)
        warn(text, CacheWarning)
    lease = Lease()
    return CacheStore(lease.folder, lease)


def intact(place: Path) -> bool:
    """Whether the entry is there and each file is the one that was written."""
    try:
        digests = json.loads((place / DIGESTS).read_text())
        return bool(digests) and all(
            _digest(place / name) == expected for name, expected in digests.items()
        )
    except (OSError, ValueError, AttributeError):
        return False


def _write_digests(folder: Path) -> int:
    """Write the digests down; the size of all files in bytes."""
    paths = sorted(folder.iterdir())
    (folder / DIGESTS).write_text(json.dumps({path.name: _digest(path) for path in paths}))
    return sum(path.stat().st_size for path in folder.iterdir())


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _link(source: Path, target: Path) -> None:
    """The same file under another name; a copy where the file system has no such thing."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _put(aside: Path, place: Path) -> Path:
    """Rename `aside` to `place`; a broken entry there is moved away, a whole one is kept."""
    for _ in range(3):
        try:
            os.rename(aside, place)
            return place
        except OSError:
            if intact(place):
                return place
            size_limit.remove(place.parents[2], place)
    raise OSError(f"{place} can neither be replaced nor used")


VALUE = "value.json"


@dataclass(slots=True)
class KeptValues:
    """Values of one kind (`autotune`, `backends`). `faults`: why some could not be
    kept, or were not used."""

    store: CacheStore
    kind: str
    hits: int = 0
    misses: int = 0
    faults: list[str] = field(default_factory=list)

    def get(self, key: str) -> dict[str, Any] | None:
        """What was put under `key`; None where nothing was, or where it is broken."""
        wanted = self._key(key)
        place = self.store.find(wanted)
        try:
            found = None if place is None else json.loads((place / VALUE).read_text())
        except (OSError, ValueError):  # swept away, or put there by somebody else
            found = None
        if not isinstance(found, dict):
            if self.store.place(wanted).exists():
                self.faults.append(f"a value of {self.kind} that was broken; it is found anew")
            self.misses += 1
            return None
        self.hits += 1
        return found

    def put(self, key: str, value: Mapping[str, Any]) -> bool:
        """Keep `value`, in place of what was kept before; whether that went well."""
        place = self._key(key)
        self.store.drop(place)
        fault = self.store.put(place, {VALUE: json.dumps(dict(value)).encode()})
        if fault:
            self.faults.append(fault)
        return not fault

    def _key(self, text: str) -> Key:
        return key_of(self.kind, asked=text, versions=versions(), processor=processor())


def open_values(cache_dir: str | None, kind: str) -> KeptValues:
    """The values of `kind` in the cache folder (see `cache_folder`).

    The device that was measured, and whatever else decides, belongs into the keys.
    """
    if not kind.isidentifier():
        raise ValueError(f"a kind of values is a word, not {kind!r}")
    return KeptValues(open_store(cache_dir), kind)
