"""Releases of the packages: those that were made, and how the next one is.

    python tools/releases.py list
    python tools/releases.py cut <package> <version>

In: `releases.toml`, the packages' own project files, the repository's history. Out: released
versions as source folders; a new release as two commits: the version with its changelog, and the
line in `releases.toml` that names that commit.
Invariant: a released version is what its commit holds: nothing is rebuilt from anything newer. A
release that cannot be made leaves the repository as it was.
"""

from __future__ import annotations

import argparse
import datetime
import io
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("capture", "prims", "aot", "inductor", "meta")
#: the slowest tests: newer at a release than at the one before it
TEST_COSTS = Path("benchmarks") / "results" / "tests.md"
#: the one line of a package that a release edits
VERSION_LINE = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


class ReleaseError(Exception):
    """A release that cannot be made or found; the text says why and what to do."""


@dataclass(frozen=True)
class Release:
    """One released version: the commit that holds it, and the day."""

    package: str
    version: str
    commit: str
    date: str


def distribution(package: str) -> str:
    """The name under which pip knows a package."""
    return "flambeau" if package == "meta" else f"flambeau-{package}"


def project(root: Path, package: str) -> Mapping[str, object]:
    """The `[project]` table of a package."""
    path = root / "packages" / package / "pyproject.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    assert isinstance(table, dict)
    return table


def sibling_ranges(root: Path, package: str) -> dict[str, SpecifierSet]:
    """The siblings that a package declares, with the ranges it accepts."""
    declared = project(root, package).get("dependencies", [])
    assert isinstance(declared, list)
    names = {distribution(each): each for each in PACKAGES}
    wanted = [Requirement(text) for text in declared]
    return {names[each.name]: each.specifier for each in wanted if each.name in names}


def dependents(root: Path, package: str) -> list[str]:
    """The packages that declare this one as a dependency."""
    return [other for other in PACKAGES if package in sibling_ranges(root, other)]


def released(root: Path, package: str | None = None) -> list[Release]:
    """The releases of a package, or of all, oldest version first."""
    path = root / "releases.toml"
    if not path.exists():
        return []
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("release", [])
    found = [Release(**row) for row in rows]
    return sorted(
        (each for each in found if package in (None, each.package)),
        key=lambda each: (each.package, Version(each.version)),
    )


def ends(releases: Sequence[Release], wanted: SpecifierSet) -> list[Release]:
    """The lowest and the newest release within a range: two, one, or none."""
    fitting = [each for each in releases if wanted.contains(each.version, prereleases=True)]
    return fitting if len(fitting) < 2 else [fitting[0], fitting[-1]]


def extract(root: Path, release: Release, into: Path) -> Path:
    """The released package's folder as its commit holds it, written below `into`.

    Raises ReleaseError when the history does not reach back to the commit.
    """
    source = f"packages/{release.package}"
    archive = _git(root, "archive", release.commit, source)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return into / source


# --- a new release ----------------------------------------------------------------------------


def cut(root: Path, package: str, version: str, towncrier: Sequence[str]) -> Release:
    """Bump, assemble the changelog, commit, and record the commit.

    `towncrier` is the command that runs it. Raises ReleaseError for a bad version, for a working
    tree with changes, and for a package that has no fragment to announce.
    """
    _check(root, package, version)
    about = _about(root, package)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    folder = root / "packages" / package
    before = about.read_text(encoding="utf-8")
    try:
        about.write_text(VERSION_LINE.sub(f'__version__ = "{version}"', before), encoding="utf-8")
        assemble = ["build", "--yes", "--config", str(root / "towncrier.toml"), "--dir", "."]
        _run([*towncrier, *assemble, "--version", version, "--date", day], folder)
        left = sorted(each.name for each in (folder / "changes").glob("*.md"))
        if left:
            raise ReleaseError(f"left out of the changelog, of no known kind: {', '.join(left)}")
        _git(root, "add", "--all", f"packages/{package}")
        title = f"{distribution(package)} {version}"
        _git(root, "commit", "-q", "-m", title, "--", f"packages/{package}")
    except ReleaseError:
        _git(root, "reset", "-q", "--", f"packages/{package}")
        _git(root, "checkout", "--", f"packages/{package}")
        raise
    commit = _git(root, "rev-parse", "HEAD").decode().strip()
    release = Release(package, version, commit, day)
    with (root / "releases.toml").open("a", encoding="utf-8") as file:
        file.write(_row(release))
    _git(root, "add", "releases.toml")
    _git(root, "commit", "-q", "-m", f"releases: {title}", "--", "releases.toml")
    return release


def _check(root: Path, package: str, version: str) -> None:
    if package not in PACKAGES:
        raise ReleaseError(f"no package {package!r}; there are {', '.join(PACKAGES)}")
    try:
        wanted = Version(version)
    except InvalidVersion:
        raise ReleaseError(f"{version!r} is not a version such as 0.2.0") from None
    past = released(root, package)
    if past and wanted <= Version(past[-1].version):
        raise ReleaseError(f"{package} {past[-1].version} is released; {version} is not above it")
    if _git(root, "status", "--porcelain", "--untracked-files=no").strip():
        raise ReleaseError("the working tree has changes: commit them first")
    fragments = root / "packages" / package / "changes"
    if not any(fragments.glob("*.md")):
        raise ReleaseError(f"nothing to announce: no fragment in {fragments.relative_to(root)}")
    if past and not _git(root, "log", "-1", f"{past[-1].commit}..", "--", str(TEST_COSTS)):
        raise ReleaseError(
            f"{TEST_COSTS} is as at {package} {past[-1].version}: list the slowest tests as it says"
        )
    for sibling, wanted_range in sibling_ranges(root, package).items():
        if not ends(released(root, sibling), wanted_range):
            raise ReleaseError(
                f"{package} wants {distribution(sibling)}{wanted_range}, of which nothing is "
                f"released: release {sibling} first"
            )


def _about(root: Path, package: str) -> Path:
    found = sorted((root / "packages" / package / "src").glob("*/__about__.py"))
    if len(found) != 1:
        raise ReleaseError(f"no version line of {package}: {len(found)} __about__.py in its src")
    return found[0]


def _row(release: Release) -> str:
    return (
        f'\n[[release]]\npackage = "{release.package}"\nversion = "{release.version}"\n'
        f'commit = "{release.commit}"\ndate = "{release.date}"\n'
    )


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")


def _git(root: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()
        raise ReleaseError(f"git {' '.join(arguments)}: {message}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """List the releases, or make one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="every release, with its commit")
    making = commands.add_parser("cut", help="make a release: two commits")
    making.add_argument("package", choices=PACKAGES)
    making.add_argument("version")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "list":
            for each in released(ROOT):
                print(
                    f"{distribution(each.package):20} {each.version:10} {each.date} {each.commit}"
                )
            return 0
        made = cut(ROOT, chosen.package, chosen.version, [sys.executable, "-m", "towncrier"])
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{distribution(made.package)} {made.version} is {made.commit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
