"""The folder stays within its limit, and what was used last stays in it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from flambeau_inductor.cache import CacheStore, Key, intact, key, size_limit

SIZE = 10_000


def filled(folder: Path, count: int, limit: int = 1 << 30) -> list[Key]:
    """Entries of about SIZE bytes, the first used longest ago, all before the grace."""
    store, keys = CacheStore(folder, limit=limit), []
    for number in range(count):
        keys.append(key("kernels", n=str(number)))
        place = store.entry(
            keys[-1], lambda f: (f / "data").write_bytes(b"x" * SIZE) and None
        ).folder
        age(place, 3600 - number)
    return keys


def age(place: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(place / "digests.json", (then, then))


def present(folder: Path, keys: list[Key]) -> list[bool]:
    return [intact(CacheStore(folder).place(each)) for each in keys]


def test_the_oldest_go_first(tmp_path: Path):
    keys = filled(tmp_path, 10)
    gone = size_limit.sweep(tmp_path, 6 * SIZE)
    assert 4 <= gone <= 6
    assert present(tmp_path, keys) == [False] * gone + [True] * (10 - gone)
    assert sum(each.size for each in size_limit.entries_under(tmp_path)) <= 6 * SIZE


def test_reading_makes_an_entry_young(tmp_path: Path):
    keys = filled(tmp_path, 10)
    assert CacheStore(tmp_path).find(keys[0]) is not None
    size_limit.sweep(tmp_path, 3 * SIZE)
    assert present(tmp_path, keys)[0] is True


def test_what_is_in_use_stays_even_over_the_limit(tmp_path: Path):
    keys = filled(tmp_path, 4)
    for each in keys:
        age(CacheStore(tmp_path).place(each), 1)
    assert size_limit.sweep(tmp_path, SIZE) == 0
    assert all(present(tmp_path, keys))


def test_within_the_limit_nothing_goes(tmp_path: Path):
    keys = filled(tmp_path, 5)
    assert size_limit.sweep(tmp_path, 100 * SIZE) == 0 and all(present(tmp_path, keys))


def test_writing_sweeps_by_itself(tmp_path: Path):
    filled(tmp_path, 60, limit=20 * SIZE)
    assert sum(each.size for each in size_limit.entries_under(tmp_path)) <= 24 * SIZE


def test_leftovers_of_killed_processes_go(tmp_path: Path):
    (tmp_path / ".new-dead").mkdir()
    (tmp_path / ".new-dead" / "half").write_text("x")
    (tmp_path / ".new-alive").mkdir()
    then = time.time() - 2 * size_limit.STALE
    os.utime(tmp_path / ".new-dead", (then, then))
    size_limit.sweep(tmp_path, 1 << 20)
    assert not (tmp_path / ".new-dead").exists() and (tmp_path / ".new-alive").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 4 << 30), ("1000", 1000), ("2K", 2048), ("500M", 500 << 20), ("3 GiB", 3 << 30)],
)
def test_the_limit(monkeypatch: pytest.MonkeyPatch, text: str, expected: int):
    monkeypatch.setenv(size_limit.LIMIT, text)
    assert size_limit.limit() == expected


def test_a_limit_that_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(size_limit.LIMIT, "plenty")
    with pytest.raises(ValueError, match="FLAMBEAU_CACHE_SIZE is 'plenty'"):
        size_limit.limit()
