"""The words of the code: what the check finds in a planted tree, and nothing in this one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools import words  # noqa: E402

GLOSSARY = """## Words that are not used

| instead of | say |
| --- | --- |
| `told` | notified |
"""
CLEAN = '"""Notification of watchers.\n\nIn: a watcher. Out: nothing.\n"""\n'
PLANTED = {
    "a first line that is a clause": ('"""Which watchers are there."""\n', "is a clause"),
    "no docstring": ("x = 1\n", "no docstring"),
    "a name": (CLEAN + "def was_told() -> None: ...\n", "was_told says 'told'"),
    "a docstring": (CLEAN + 'def f():\n    """Whom it told."""\n', "prose says 'told'"),
    "a comment": (CLEAN + "x = 1  # told once\n", "prose says 'told'"),
    "a measured time": (CLEAN + "x = 1  # takes 12 us\n", "a measured time"),
}


def tree(root: Path, **modules: str) -> Path:
    (root / "docs").mkdir()
    (root / "docs" / "glossary.md").write_text(GLOSSARY)
    source = root / "packages" / "one" / "src" / "flambeau_one"
    source.mkdir(parents=True)
    for name, text in modules.items():
        (source / f"{name}.py").write_text(text)
    return root


def test_the_sources_use_the_words_of_the_glossary() -> None:
    assert words.faults() == []


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_is_found(fault: str, tmp_path: Path) -> None:
    text, said = PLANTED[fault]
    (found,) = words.faults(tree(tmp_path, module=text))
    assert said in found


def test_names_within_backquotes_are_code(tmp_path: Path) -> None:
    text = CLEAN + "x = 1  # as `told` says\n"
    assert words.faults(tree(tmp_path, module=text)) == []


def test_a_class_name_is_used_once_in_a_package(tmp_path: Path) -> None:
    text = CLEAN + "class Watcher: ...\n"
    (found,) = words.faults(tree(tmp_path, one=text, other=text.replace("class W", "class _W")))
    assert "two classes are called Watcher" in found


def test_modules_do_not_differ_by_an_ending(tmp_path: Path) -> None:
    (found,) = words.faults(tree(tmp_path, watcher=CLEAN, watchers=CLEAN))
    assert "watcher and watchers differ by an ending" in found
