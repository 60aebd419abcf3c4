"""Entries named by the digest of everything that decides their content.

In: a key, files. Out: an entry: a folder with these files. Invariant: an entry appears whole or not
at all (it is written aside and renamed), and a file is handed out only if it has the digest
that was written down with it; a broken entry counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flambeau_inductor.cache.folder import PRIVATE, cache_folder, objection
from flambeau_inductor.errors import CacheWarning

DIGESTS = "digests.json"
FORMAT = "1"


def key_of(*parts: str) -> str:
    """The digest of `parts`, each told apart from its neighbours."""
    digest = hashlib.sha256()
    for part in (FORMAT, *parts):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """`folder` holds the files; `hit`: they were there already."""

    folder: Path
    hit: bool


class Lease:
    """A private folder that is removed when nobody holds this any more, or at exit."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flambeau-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Store:
    """Entries under `folder`. `lease` keeps a folder alive that goes away with this store."""

    folder: Path
    lease: Lease | None = None

    def entry(self, key: str, make: Callable[[Path], None]) -> Entry:
        """The entry of `key`; `make` puts its files into the folder it is given if it is absent."""
        place = self.folder / key[:2] / key
        if intact(place):
            return Entry(place, True)
        place.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
        try:
            make(aside)
            _write_digests(aside)
            return Entry(_put(aside, place), False)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def open_store(named: str | None = None) -> Store:
    """The store in the folder named (see `cache_folder`).

    If that must not be used, a warning says why and the store is a private folder of this process.
    """
    folder = cache_folder(named)
    reason = objection(folder)
    if reason is None:
        return Store(folder)
    warnings.warn(
        f"the cache folder {folder} is not used: {reason}; kernels will be built again in the next "
        "process (name a folder of yours in FLAMBEAU_CACHE_DIR)",
        CacheWarning,
        stacklevel=2,
    )
    lease = Lease()
    return Store(lease.folder, lease)


def intact(place: Path) -> bool:
    """Whether the entry is there and each file is the one that was written."""
    try:
        digests = json.loads((place / DIGESTS).read_text())
        return bool(digests) and all(
            _digest(place / name) == expected for name, expected in digests.items()
        )
    except (OSError, ValueError, AttributeError):
        return False


def _write_digests(folder: Path) -> None:
    found = {path.name: _digest(path) for path in sorted(folder.iterdir())}
    (folder / DIGESTS).write_text(json.dumps(found))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _put(aside: Path, place: Path) -> Path:
    """Rename `aside` to `place`; a broken entry there is moved away, a whole one is kept."""
    for _ in range(3):
        try:
            os.rename(aside, place)
            return place
        except OSError:
            if intact(place):
                return place
            _move_away(place)
    raise OSError(f"{place} can neither be replaced nor used")


def _move_away(place: Path) -> None:
    away = Path(tempfile.mkdtemp(prefix=".old-", dir=place.parent.parent))
    try:
        os.rename(place, away / "entry")
    except FileNotFoundError:
        pass  # another process was faster
    finally:
        shutil.rmtree(away, ignore_errors=True)
