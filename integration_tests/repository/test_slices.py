"""What the plugin of the tests does: of a product of kinds a slice runs that has every kind, sweeps
run the whole; what a long collection leaves is not collected again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.parametrize("one", "abcdef")
@pytest.mark.parametrize("other", "uvwxyz")
def test_product(one, other): pass

@pytest.mark.parametrize("one", "ab")
@pytest.mark.parametrize("other", "uvwxyz")
def test_small_product(one, other): pass

@pytest.mark.parametrize("one", [str(n) for n in range(40)])
def test_list(one): pass

@pytest.mark.sweep(1)
@pytest.mark.parametrize("one", "abcdef")
@pytest.mark.parametrize("other", "uvwxyz")
def test_whole(one, other): pass

@pytest.mark.sweep(6)
@pytest.mark.parametrize("one", "abcdef")
@pytest.mark.parametrize("other", "uvwxyz")
def test_marked(one, other): pass
"""


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory):
    """A function: the cases that a run would take, by their test."""
    folder = tmp_path_factory.mktemp("slices")
    (folder / "test_kinds.py").write_text(TESTS)

    def run(*options: str, **environment: str) -> dict[str, list[str]]:
        text = f"import os, sys, pytest  # beside torch\nos.environ |= {environment!r}\n"
        text += f"sys.path.insert(0, {str(ROOT)!r})\nsys.exit(pytest.main(sys.argv[1:]))"
        given = ["--collect-only", "-q", "-p", "tools.testing", "-p", "no:cacheprovider"]
        command = [sys.executable, "-c", text, *given, *options, "test_kinds.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            if line.startswith("test_kinds.py::"):
                name, _, case = line.partition("::")[2].removesuffix("]").partition("[")
                found.setdefault(name, []).append(case)
        return found

    return run


def test_each_kind_of_a_large_product_runs_twice_and_lists_run_in_whole(collected) -> None:
    found = collected()
    taken = found["test_product"]
    assert 12 <= len(taken) < 36
    for kind in "abcdefuvwxyz":
        assert sum(kind in case.split("-") for case in taken) >= 2
    sizes = {name: len(cases) for name, cases in found.items() if name != "test_product"}
    assert sizes == {"test_small_product": 12, "test_list": 40, "test_whole": 36, "test_marked": 6}
    assert collected(FLAMBEAU_TEST_SEED="7")["test_product"] != taken


def test_sweeps_alone_have_the_whole_of_every_product(collected) -> None:
    found = collected("-m", "sweep", FLAMBEAU_SWEEPS="1")
    sizes = {name: len(cases) for name, cases in found.items()}
    assert sizes == {"test_product": 36, "test_whole": 36, "test_marked": 36}


COLLECTIONS = """
import gc
from tools import testing

testing.LONG = -1.0  # every collection is long
kept, counts = [], []

def test_one():
    counts.append(gc.get_freeze_count())
    kept.extend([] for _ in range(10_000))
    gc.collect()

def test_other():
    assert gc.get_freeze_count() >= counts[0] + 10_000
"""


def test_what_a_long_collection_leaves_is_not_collected_again(tmp_path: Path) -> None:
    (tmp_path / "test_collections.py").write_text(COLLECTIONS)
    text = f"import sys, pytest, torch\nsys.path.insert(0, {str(ROOT)!r})\n"
    text += "sys.exit(pytest.main(sys.argv[1:]))"
    given = ["-q", "-p", "tools.testing", "-p", "no:cacheprovider", "test_collections.py"]
    command = [sys.executable, "-c", text, *given]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
