"""The words of the code: what the check finds in a planted tree, and nothing in this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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


NATIVE = {
    "a function": ("int was_told(void);\n", "line 1: was_told says 'told'"),
    "a variable": ("int f(void) {\n  int told;\n}\n", "line 2: told says 'told'"),
    "a macro": ("#define TOLD 1\n", "TOLD says 'told'"),
    "a block of comment": ("/* It is\n   told once. */\n", "line 2: prose says 'told'"),
    "a comment to the end of the line": ("int x; // told once\n", "prose says 'told'"),
    "after a quotation mark": ("char c = '\"'; // told '\"'\n", "prose says 'told'"),
    "a measured time": ("int x; /* takes 12 us */\n", "a measured time"),
}
"""Faults of a file in C or C++."""


@pytest.mark.parametrize("path", ["csrc/hook.c", "csrc/compat/names.h", "src/flambeau_one/vec.h"])
@pytest.mark.parametrize("fault", NATIVE)
def test_a_fault_of_a_native_file_is_found(fault: str, path: str, tmp_path: Path) -> None:
    text, said = NATIVE[fault]
    file = tree(tmp_path) / "packages" / "one" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    (found,) = words.faults(tmp_path)
    assert found.startswith(f"packages/one/{path}: ") and said in found


def test_what_is_quoted_in_a_native_file_is_no_name(tmp_path: Path) -> None:
    file = tree(tmp_path) / "packages" / "one" / "csrc" / "hook.c"
    file.parent.mkdir(parents=True)
    file.write_text('char *a = "told // told", *b = "\\" told"; /* as `told` says */\n')
    assert words.faults(tmp_path) == []


def test_the_sources_use_the_words_of_the_glossary() -> None:
    assert words.faults() == []


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_is_found(fault: str, tmp_path: Path) -> None:
    text, said = PLANTED[fault]
    (found,) = words.faults(tree(tmp_path, module=text))
    assert said in found


@pytest.mark.parametrize("folder", ["tools", "tools/gpu", "benchmarks/zoo"])
def test_a_first_line_of_a_program_is_looked_at(folder: str, tmp_path: Path) -> None:
    file = tree(tmp_path) / folder / "watching.py"
    file.parent.mkdir(parents=True)
    file.write_text(PLANTED["a first line that is a clause"][0])
    (found,) = words.faults(tmp_path)
    assert found.startswith(f"{folder}/watching.py: ") and "is a clause" in found


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


@pytest.mark.parametrize(("longer", "found"), [(0, 0), (1, 1)])
def test_a_subject_is_short(longer: int, found: int, tmp_path: Path) -> None:
    assert [*words.subject_faults(tmp_path)] == []  # no history
    git = ("git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    subject = "s" * (words.LONGEST_SUBJECT + longer)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", subject], check=True)
    assert len([*words.subject_faults(tmp_path)]) == found
