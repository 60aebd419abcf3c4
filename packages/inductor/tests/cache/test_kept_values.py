"""Small values: found again under the same key, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from flambeau_inductor.cache import open_values
from flambeau_inductor.cache import store as store_module


def test_found_again_by_another_object(tmp_path: Path):
    first = open_values(str(tmp_path), "autotune")
    assert first.get("mm 64") is None
    assert first.put("mm 64", {"config": [1, 2], "seconds": 1e-5})
    second = open_values(str(tmp_path), "autotune")
    assert second.get("mm 64") == {"config": [1, 2], "seconds": 1e-5}
    assert second.get("mm 65") is None
    assert open_values(str(tmp_path), "backends").get("mm 64") is None
    assert (second.hits, second.misses) == (1, 1)


def test_the_last_one_counts(tmp_path: Path):
    values = open_values(str(tmp_path), "autotune")
    values.put("a", {"n": 1})
    values.put("a", {"n": 2})
    assert values.get("a") == {"n": 2}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"n": 2}'])
def test_a_changed_one_is_unknown(tmp_path: Path, text: str):
    values = open_values(str(tmp_path), "autotune")
    values.put("a", {"n": 1})
    (path,) = tmp_path.rglob("value.json")
    path.write_text(text)
    assert values.get("a") is None
    assert values.put("a", {"n": 3}) and values.get("a") == {"n": 3}


def test_a_disk_that_fails_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    values = open_values(str(tmp_path), "autotune")

    def full(*args: object, **kwargs: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module.tempfile, "mkdtemp", full)
    assert values.put("a", {"n": 1}) is False
    assert values.faults == ["No space left on device"] and values.get("a") is None


def test_a_kind_is_a_word(tmp_path: Path):
    with pytest.raises(ValueError, match="is a word"):
        open_values(str(tmp_path), "../elsewhere")
