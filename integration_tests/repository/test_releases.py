"""Releases: two commits that name each other, from which the released folder comes back."""

import subprocess
import sys

import pytest
from packaging.specifiers import SpecifierSet

from tools import releases

FRAGMENT = """import pathlib, sys
for each in pathlib.Path("changes").glob("*.md"): each.unlink()
with open("CHANGELOG.md", "a") as file: file.write("assembled\\n")
"""
ASSEMBLE = [sys.executable, "-c", FRAGMENT]


def git(root, *arguments):
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A repository with two packages, of which `inductor` declares `prims`."""
    for variable in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(variable, "t")
    for variable in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(variable, "t@example.org")
    wanted = {"capture": [], "aot": [], "meta": [], "prims": []}
    wanted["inductor"] = ["flambeau-prims>=0.1.0,<0.2", "torch>=2.11"]
    for package, declared in wanted.items():
        folder = tmp_path / "packages" / package
        source = folder / "src" / f"flambeau_{package}"
        source.mkdir(parents=True)
        (folder / "changes").mkdir()
        (folder / "changes" / "+a.added.md").write_text("New.\n")
        (folder / "CHANGELOG.md").write_text("# Changelog\n")
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "x"\ndependencies = {declared}\n'
        )
        (source / "__about__.py").write_text('__version__ = "0.0.0"\n')
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "start")
    return tmp_path


def list_slowest(root):
    page = root / releases.TEST_COSTS
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"The slowest at {len(releases.released(root))} releases.\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "costs")


def version_of(folder, package):
    return (folder / "src" / f"flambeau_{package}" / "__about__.py").read_text()


def test_a_release_comes_back_as_it_was(root, tmp_path_factory):
    first = releases.cut(root, "prims", "0.1.0", ASSEMBLE)
    (root / "packages/prims/changes/+b.added.md").write_text("More.\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "more")
    with pytest.raises(releases.ReleaseError, match=r"tests\.md is as at prims 0\.1\.0"):
        releases.cut(root, "prims", "0.1.3", ASSEMBLE)
    list_slowest(root)
    second = releases.cut(root, "prims", "0.1.3", ASSEMBLE)
    assert releases.released(root, "prims") == [first, second]
    out = tmp_path_factory.mktemp("old")
    assert '"0.1.0"' in version_of(releases.extract(root, first, out), "prims")
    assert '"0.1.3"' in version_of(root / "packages/prims", "prims")
    assert "assembled" in (root / "packages/prims/CHANGELOG.md").read_text()


def test_the_ends_of_a_range(root):
    for version in ("0.1.0", "0.1.2", "0.1.10", "0.2.0"):
        releases.cut(root, "prims", version, ASSEMBLE)
        (root / "packages/prims/changes/+b.added.md").write_text("More.\n")
        list_slowest(root)
    wanted = releases.sibling_ranges(root, "inductor")
    assert list(wanted) == ["prims"]
    ends = releases.ends(releases.released(root, "prims"), wanted["prims"])
    assert [each.version for each in ends] == ["0.1.0", "0.1.10"]
    assert releases.ends(releases.released(root, "prims"), SpecifierSet(">=0.3")) == []
    assert releases.dependents(root, "prims") == ["inductor"]


@pytest.mark.parametrize(
    ("package", "version", "said"),
    [
        ("prims", "zero", "not a version"),
        ("nothing", "0.1.0", "no package 'nothing'"),
        ("inductor", "0.1.0", "release prims first"),
    ],
)
def test_what_cannot_be_released_says_why(root, package, version, said):
    with pytest.raises(releases.ReleaseError, match=said):
        releases.cut(root, package, version, ASSEMBLE)


def test_a_version_must_rise_and_have_news(root):
    releases.cut(root, "prims", "0.1.0", ASSEMBLE)
    with pytest.raises(releases.ReleaseError, match="not above it"):
        releases.cut(root, "prims", "0.1.0", ASSEMBLE)
    with pytest.raises(releases.ReleaseError, match="nothing to announce"):
        releases.cut(root, "prims", "0.1.1", ASSEMBLE)


def test_a_failed_release_leaves_the_tree_as_it_was(root):
    broken = [sys.executable, "-c", "import sys; sys.exit('no changelog today')"]
    with pytest.raises(releases.ReleaseError, match="no changelog today"):
        releases.cut(root, "prims", "0.1.0", broken)
    assert '"0.0.0"' in version_of(root / "packages/prims", "prims")
    assert not (root / "releases.toml").exists()
    (root / "packages/prims/CHANGELOG.md").write_text("edited\n")
    with pytest.raises(releases.ReleaseError, match="has changes"):
        releases.cut(root, "prims", "0.1.0", ASSEMBLE)


def test_a_fragment_of_no_known_kind_is_not_lost(root):
    (root / "packages/prims/changes/+b.aded.md").write_text("More.\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "more")
    some = FRAGMENT.replace("*.md", "*.added.md")
    with pytest.raises(releases.ReleaseError, match=r"no known kind: \+b\.aded\.md"):
        releases.cut(root, "prims", "0.1.0", [sys.executable, "-c", some])
    assert (root / "packages/prims/changes/+a.added.md").exists()


def test_the_projects_own_releases_can_be_found():
    for each in releases.released(releases.ROOT):
        assert each.package in releases.PACKAGES
        assert len(each.commit) == 40


@pytest.mark.parametrize("package", releases.PACKAGES)
def test_every_package_says_whose_it_is_and_where_it_runs(package):
    said = releases.project(releases.ROOT, package)
    assert said["license"] == "BSD-3-Clause" and said["authors"] and said["description"]
    assert (releases.ROOT / "packages" / package / "LICENSE").exists()
    assert (releases.ROOT / "packages" / package / said["readme"]).exists()
    versions = {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)}
    assert versions | {"Typing :: Typed"} <= set(said["classifiers"])
    pythons = SpecifierSet(said["requires-python"])
    assert all(pythons.contains(f"3.{minor}.1") for minor in (11, 12, 13, 14))
    siblings = releases.sibling_ranges(releases.ROOT, package)
    for sibling in siblings:  # else an installer finds out halfway that there is no such wheel
        bound = SpecifierSet(releases.project(releases.ROOT, sibling)["requires-python"])
        assert all(
            bound.contains(f"3.{m}.1") or not pythons.contains(f"3.{m}.1") for m in range(30)
        )
