"""Entries appear whole, are checked, and are made again when broken."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from flambeau_inductor import CacheWarning
from flambeau_inductor.cache import CacheEntry, CacheStore, intact, key, open_store, size_limit
from flambeau_inductor.cache import store as store_module

KEY = key("kernels", text="some")


def writer(text: str, made: list[str] | None = None) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "data").write_text(text)
        (folder / "more").write_bytes(b"\0\1")
        if made is not None:
            made.append(text)

    return make


def leftovers(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.name.startswith((".new-", ".old-", ".lock-"))]


def test_made_once(tmp_path: Path):
    store, made = CacheStore(tmp_path), []
    first = store.entry(KEY, writer("one", made))
    second = CacheStore(tmp_path).entry(KEY, writer("two", made))
    assert not first.hit and second.hit and made == ["one"]
    assert first.folder == second.folder and (second.folder / "data").read_text() == "one"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "harm",
    [
        lambda place: (place / "data").write_text("on"),
        lambda place: (place / "data").write_text("two"),
        lambda place: (place / "more").unlink(),
        lambda place: (place / "digests.json").write_text("{"),
        lambda place: (place / "digests.json").write_text("{}"),
        lambda place: (place / "digests.json").write_text("[1]"),
        lambda place: (place / "digests.json").unlink(),
    ],
)
def test_a_broken_entry_is_made_again(tmp_path: Path, harm: Callable[[Path], object]):
    store = CacheStore(tmp_path)
    place = store.entry(KEY, writer("one")).folder
    harm(place)
    assert not intact(place)
    again = store.entry(KEY, writer("one"))
    assert not again.hit and intact(again.folder)
    assert (again.folder / "data").read_text() == "one"
    assert leftovers(tmp_path) == []


def test_what_fails_leaves_nothing(tmp_path: Path):
    def fails(folder: Path) -> None:
        (folder / "data").write_text("half")
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        CacheStore(tmp_path).entry(KEY, fails)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def at_once(folder: Path, make: Callable[[Path], None], count: int = 6) -> list[CacheEntry]:
    together, found = threading.Barrier(count), list[CacheEntry]()

    def work() -> None:
        together.wait()
        with suppress(ValueError):
            found.append(CacheStore(folder).entry(KEY, make))

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_of_many_at_once_one_makes_it(tmp_path: Path):
    made: list[str] = []
    found = at_once(tmp_path, writer("same", made))
    assert len(found) == 6 and len({entry.folder for entry in found}) == 1
    assert made == ["same"] and sum(not entry.hit for entry in found) == 1
    assert intact(found[0].folder) and leftovers(tmp_path) == []


def test_where_that_one_fails_another_makes_it(tmp_path: Path):
    made: list[str] = []

    def fails_once(folder: Path) -> None:
        made.append("tried")
        if len(made) == 1:
            raise ValueError("on purpose")
        writer("same")(folder)

    assert len(at_once(tmp_path, fails_once)) == 5 and made == ["tried"] * 2
    assert leftovers(tmp_path) == []


def test_nobody_waits_for_ever_for_who_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "SECONDS", 0.05)
    with size_limit.locked(tmp_path / f".lock-{KEY.digest}") as held:
        entry = CacheStore(tmp_path).entry(KEY, writer("one"))
    assert held and not entry.hit and intact(entry.folder)


def test_a_process_forked_while_an_entry_is_made_has_no_lock_on_it(tmp_path: Path):
    children: list[int] = []

    def forks(folder: Path) -> None:
        children.append(os.fork())
        if children == [0]:
            signal.pause()
        raise ValueError("on purpose")

    try:
        with suppress(ValueError):
            CacheStore(tmp_path).entry(KEY, forks)
        with size_limit.locked(tmp_path / f".lock-{KEY.digest}", once=True) as held:
            assert held
        assert leftovers(tmp_path) == []
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


def test_a_folder_that_must_not_be_used_is_named_and_a_private_one_serves(tmp_path: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.warns(CacheWarning, match="others may write to it") as told:
        store = open_store(str(shared))
        open_store(str(shared))
    assert [each.filename for each in told] == [__file__]  # once, at a line of the caller's
    assert list(shared.iterdir()) == []
    private = store.entry(KEY, writer("one")).folder
    assert intact(private) and not private.is_relative_to(shared)
    del store
    assert not private.exists()


def test_the_warning_is_shown_once(tmp_path: Path):
    tmp_path.chmod(0o777)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            open_store(str(tmp_path))
    assert [w.category for w in seen] == [CacheWarning]
