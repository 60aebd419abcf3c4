"""The digest of source files: noted, and never that of files as they were."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from flambeau_inductor.cache import environment_key as sources

PACKAGE = "package_with_a_digest"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a package, as if it had been there for long."""
    package = tmp_path / PACKAGE
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "kernel.h").write_text("int one;")
    (package / "inner" / "note.txt").write_text("nobody reads this")
    (package / "module.py").write_text("x = 1\n")
    (tmp_path / "cache").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sources, "SETTLED", -(10**12))
    sys.modules.pop(PACKAGE, None)
    return package / "module.py"


def _code(folder: Path | None) -> str:
    sources.code.cache_clear()
    return sources.code((PACKAGE,), folder)


def test_a_note_is_used_until_a_file_changes(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = module.parents[1] / "cache"
    first = _code(folder)
    assert first == _code(None)
    with monkeypatch.context() as inside:
        inside.setattr(sources, "_read", lambda *asked: pytest.fail("read again"))
        assert _code(folder) == first
        (module.parent / "inner" / "note.txt").write_text("nor this")
        assert _code(folder) == first
    before = module.stat()
    module.write_text("x = 2\n")  # as long as before, and of the same time
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = _code(folder)
    assert second != first
    assert second == _code(None) == _code(folder)
    (module.parent / "inner" / "kernel.h").rename(module.parent / "kernel.h")
    assert _code(folder) not in (first, second)


def test_nothing_is_noted_of_files_just_written(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SETTLED", 3600 * 10**9)
    folder = module.parents[1] / "cache"
    os.utime(module, (time.time() - 10**6,) * 2)
    _code(folder)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("text", ["", "gone", "0" * 64, f"{'0' * 64} {'0' * 64}\n", "\0" * 130])
def test_a_broken_note_is_written_anew(module: Path, text: str) -> None:
    folder = module.parents[1] / "cache"
    expected = _code(folder)
    (note,) = folder.iterdir()
    whole = note.read_text()
    note.write_text(text)
    assert _code(folder) == expected
    assert note.read_text() == whole


def test_a_folder_that_is_not_there_costs_the_note(module: Path) -> None:
    assert _code(module.parents[1] / "missing") == _code(None)
