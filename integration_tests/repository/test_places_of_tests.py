"""Where test files lie: at the place of the module that they are named after.

Of prims, inductor and meta, `tests/x/test_y.py` tests `x/y.py`, or the folder `x/y`. A file whose
name is no module's says what it specifies, and lies in the folder that all of it is about, or in a
folder of that one for a subject of several such files. Tests of capture and aot are by behaviour:
their folders are their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MIRRORED = {"prims": "flambeau_prims", "inductor": "flambeau_inductor", "meta": "flambeau"}

ELSEWHERE = {
    "inductor/tests/dynamic/test_open_sizes.py": "symbolic sizes pass through every folder"
}
"""Test files at another place than a module's, and why."""

SUBJECTS = {
    "prims/tests/decomp/layouts": "strides of results",
    "prims/tests/decomp/numbers": "rounding, dtypes, infinities and NaN",
    "prims/tests/decomp/refusals": "what eager refuses",
    "inductor/tests/codegen/cpp/sanitizers": "kernels under sanitizers",
    "inductor/tests/codegen/cpp/vectors": "vector instructions",
    "inductor/tests/codegen/triton/offline": "kernels compiled without a GPU",
    "inductor/tests/whole_graphs": "all stages of the package",
    "meta/tests/compiled": "the compiled callable",
    "meta/tests/planning": "memory and time, planned",
}
"""Folders of tests that no folder of the sources has, and what their files are about."""


def places(source: Path) -> set[Path]:
    """Modules and folders below a package's sources, without endings and leading underscores."""
    files = [*source.rglob("*.py")]
    inside = {path.relative_to(source).with_suffix("") for path in files}
    inside |= {path.parent.relative_to(source) for path in files}
    return {path.with_name(path.name.strip("_")) if path.name else path for path in inside}


def misplaced(tests: Path, source: Path) -> Iterator[tuple[Path, str]]:
    """Test files in a folder that the package does not have, or away from what has their name."""
    known = places(source)
    for path in sorted(tests.rglob("test_*.py")):
        place = path.relative_to(tests)
        if str(path.parent.relative_to(tests.parents[1])) in SUBJECTS:
            place = place.parent.with_name(place.name)
        place = place.with_name(place.stem.removeprefix("test_"))
        if place in known:
            continue
        named = sorted(str(each) for each in known if each.name == place.name)
        if place.parent not in known:
            yield path, f"the package has no folder {place.parent}"
        elif named:
            yield path, f"what has its name is {' and '.join(named)}"


@pytest.mark.parametrize("package", MIRRORED)
def test_test_files_lie_where_their_modules_do(package: str) -> None:
    folder = ROOT / "packages" / package
    found = {
        str(path.relative_to(ROOT / "packages")): why
        for path, why in misplaced(folder / "tests", folder / "src" / MIRRORED[package])
    }
    assert {path: why for path, why in found.items() if path not in ELSEWHERE} == {}
    gone = {path for path in ELSEWHERE if path.startswith(f"{package}/")} - set(found)
    assert not gone, "exceptions that are none"


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_subjects_folder_has_tests_of_its_own(subject: str) -> None:
    package, _, place = subject.partition("/tests/")
    assert list((ROOT / "packages" / subject).glob("test_*.py"))
    assert not (ROOT / "packages" / package / "src" / MIRRORED[package] / place).exists()


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("fuse/test_legality.py", None),
        ("test_fuse.py", None),
        ("test_private.py", None),
        ("fuse/test_sums_of_columns.py", None),
        ("test_legality.py", "what has its name is fuse/legality"),
        ("fusing/test_legality.py", "the package has no folder fusing"),
        ("fusing/test_sums_of_columns.py", "the package has no folder fusing"),
    ],
)
def test_a_misplaced_test_file_is_found(test: str, said: str | None, tmp_path: Path) -> None:
    files = ("src/fuse/__init__.py", "src/fuse/legality.py", "src/_private.py", f"tests/{test}")
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    found = [why for _, why in misplaced(tmp_path / "tests", tmp_path / "src")]
    assert found == ([] if said is None else [said])
