"""Size limit of the cache folder, and eviction.

In: a folder of entries, how much was added. Out: a folder within its limit. Invariant: what was
used within the last minute stays, for a process may be about to load it; one process sweeps at a
time, and one that is killed while it does leaves whole entries.

When an entry was last used is the time of its digests file, which a reader sets.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

LIMIT = "FLAMBEAU_CACHE_SIZE"
DEFAULT_LIMIT = 4 << 30
GROWTH = ".growth"
LOCK = ".lock"
SHARE = 16
"""A sweep happens each time another 1/SHARE of the limit was written."""
LOW = 0.8
"""A sweep goes down to this part of the limit."""
GRACE = 60.0
STALE = 3600.0
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True)
class CachedEntry:
    """An entry: its bytes, and when it was last used, in seconds since the epoch."""

    folder: Path
    kind: str
    size: int
    used: float


def limit() -> int:
    """The bytes that `FLAMBEAU_CACHE_SIZE` allows (`500M`, `2G`, a number), else 4 GiB.

    Raises ValueError for a text that is none of these.
    """
    text = os.environ.get(LIMIT, "").strip()
    if not text:
        return DEFAULT_LIMIT
    try:
        return parsed(text)
    except ValueError as error:
        raise ValueError(f"{LIMIT} is {error}") from None


def parsed(text: str) -> int:
    """Bytes, as `500M`, `2G` or a number say them. Raises ValueError for another text."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]?)I?B?", text.upper())
    if found is None:
        raise ValueError(f"{text!r}: say a number of bytes, or one with K, M, G or T")
    return int(found[1]) * UNITS[found[2]]


def entries_under(folder: Path) -> Iterator[CachedEntry]:
    """Every entry under `folder`."""
    for digests in folder.glob("[!.]*/??/*/digests.json"):
        place = digests.parent
        try:
            size = sum(path.stat().st_size for path in place.iterdir())
            yield CachedEntry(place, digests.parents[2].name, size, digests.stat().st_mtime)
        except OSError:  # it was moved away while we looked
            continue


def grown(folder: Path, size: int, most: int) -> None:
    """Note that `size` bytes were added, and sweep when that is due."""
    try:
        with open(folder / GROWTH, "ab") as file:
            file.write(f"{size}\n".encode())
        written = sum(map(int, (folder / GROWTH).read_bytes().split()))
    except (OSError, ValueError):
        written = most  # what cannot be noted is looked at
    if written * SHARE >= most:
        sweep(folder, most)


def sweep(folder: Path, most: int, low: float = LOW) -> int:
    """Where there is more than `most`, remove what was used longest ago until `low` of it is kept;
    how many entries went."""
    with locked(folder / LOCK) as alone:
        if not alone:
            return 0
        now = time.time()
        _remove_leftovers(folder, now)
        found = sorted(entries_under(folder), key=lambda each: each.used)
        total = sum(each.size for each in found)
        gone = 0
        if total > most:
            for each in found:
                if total <= most * low or each.used > now - GRACE:
                    break
                remove(folder, each.folder)
                total -= each.size
                gone += 1
        (folder / GROWTH).unlink(missing_ok=True)
        return gone


def remove(folder: Path, place: Path) -> None:
    """Take an entry away: nobody sees it half gone."""
    away = Path(tempfile.mkdtemp(prefix=".old-", dir=folder))
    try:
        os.rename(place, away / "entry")
    except FileNotFoundError:
        pass  # another process was faster
    finally:
        shutil.rmtree(away, ignore_errors=True)


def _remove_leftovers(folder: Path, now: float) -> None:
    """What processes left that were killed while they wrote."""
    for path in chain.from_iterable(folder.glob(f".{kind}-*") for kind in ("new", "old", "lock")):
        try:
            if path.stat().st_mtime < now - STALE:
                path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:
            continue


@contextmanager
def locked(path: Path, seconds: float = 0.0, once: bool = False) -> Iterator[bool]:
    """Whether no other process, or thread, has the lock, after so long a wait for it; it goes away
    with a process that dies. once: so does its file, with who has it. A file system without locks
    grants none."""
    with ExitStack() as stack:
        held, pause, ended = False, 1e-3, time.monotonic() + seconds
        try:
            while not (held := _taken(path, stack)) and time.monotonic() < ended:
                time.sleep(pause)
                pause = min(2 * pause, 0.1)
        except OSError:
            pass  # none is granted
        if held and once:
            stack.callback(path.unlink, missing_ok=True)
        yield held


def _taken(path: Path, stack: ExitStack) -> bool:
    """Whether the lock is free; `stack` has it then."""
    with ExitStack() as own:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        own.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        own.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)  # a forked process has it open, too
        try:
            if not os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return False  # who had it has removed the file
        except FileNotFoundError:
            return False
        stack.push(own.pop_all())
    return True
