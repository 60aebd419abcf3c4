"""Which folder is used, and which is refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from flambeau_inductor.cache import cache_folder, objection
from flambeau_inductor.cache import store as module


def test_the_option_wins_over_the_environment(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "env"))
    assert cache_folder() == tmp_path / "env"
    assert cache_folder(str(tmp_path / "named")) == tmp_path / "named"


def test_the_users_folder_otherwise(monkeypatch, tmp_path: Path):
    monkeypatch.delenv("FLAMBEAU_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder()
    assert folder.name == "flambeau" and not folder.exists()


def test_a_new_folder_is_private(tmp_path: Path):
    folder = tmp_path / "a" / "b"
    assert objection(folder) is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_to(tmp_path: Path, mode: int):
    tmp_path.chmod(mode)
    found = objection(tmp_path) or ""
    assert found.startswith("others may write to it") and f"`chmod go-w {tmp_path}`" in found


def test_a_folder_of_someone_else(monkeypatch, tmp_path: Path):
    tmp_path.chmod(0o700)
    mine = os.getuid()
    monkeypatch.setattr(module.os, "getuid", lambda: mine + 1)
    found = objection(tmp_path) or ""
    assert found.startswith("it belongs to another user") and "FLAMBEAU_CACHE_DIR" in found


def test_a_folder_that_cannot_be_written_to(monkeypatch, tmp_path: Path):
    tmp_path.chmod(0o700)
    monkeypatch.setattr(module.os, "access", lambda path, how: False)
    assert objection(tmp_path) == "it cannot be written to"


def test_a_file_where_the_folder_should_be(tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert "cannot be made" in str(objection(tmp_path / "file" / "below"))
    assert "cannot be made" in str(objection(tmp_path / "file"))
