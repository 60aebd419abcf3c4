"""Cache key of the environment: our own sources, compiler, flags, libraries, device.

In: the installed packages, the machine, the folder of a cache. Out: texts by name, for keys.
Invariant: two processes with equal texts may use each other's entries; no text names a path or a
time, so that an entry can be carried to another machine of the same kind. The digest of the source
files is that of the files as they are. It is noted in the folder with the files' sizes, times and
inodes, which a write changes; while these are the same, nothing is read.

File times have steps of some milliseconds: files that were written in the last seconds may be
written once more within the same step, and nothing is noted of them.

Cache keys: named parts and their digest. In: everything that decides what an entry holds, by name.
Out: a `Key`. Invariant: two keys have one digest exactly if they are of one kind and all their
parts are equal, so that a difference has the name of a part.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import metadata, util
from pathlib import Path

CPU_FACTS = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")


def surroundings() -> dict[str, str]:
    """Versions, the text of our own packages, the processor."""
    return {"versions": versions(), "code": code(), "processor": processor()}


@lru_cache(maxsize=1)
def versions() -> str:
    """Python, torch and Triton."""
    import torch  # the rest of this package does without, also in a process without it

    found = [
        f"python {platform.python_version()} {sys.implementation.cache_tag}",
        f"torch {torch.__version__} {torch.version.git_version or ''}",
    ]
    if util.find_spec("triton") is not None:
        found.append(f"triton {_version('triton')}")
    return "\n".join(found)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


@lru_cache(maxsize=1)
def processor() -> str:
    """The processor's features: `-march=native` means something else on another one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in CPU_FACTS:
            found.setdefault(name.strip(), value.strip())
        elif not line and found:
            break  # the others are like the first
    return platform.machine() + repr(sorted(found.items()))


# --- sources ------------------------------------------------------------------------------------

CODE = ("flambeau_prims", "flambeau_inductor")
SUFFIXES = (".py", ".h")
NOTE = ".sources-"
SETTLED = 2_000_000_000
"""Nanoseconds after which a file that is written again has another time."""


@lru_cache(maxsize=8)
def code(packages: tuple[str, ...] = CODE, folder: Path | None = None) -> str:
    """A digest of the source of packages. folder: one that belongs to this user alone, where it is
    noted and found."""
    before = time.time_ns()
    roots = {package: _root(package) for package in packages}
    files = {
        f"{package}/{name}": found
        for package, root in roots.items()
        for name, found in _files(root, "")
    }
    names = sorted(files)
    if folder is None:
        return _read(roots, names)
    told = "\n".join(f"{name} {' '.join(map(str, _facts(files[name])))}" for name in names)
    seen = hashlib.sha256(told.encode()).hexdigest()
    where = hashlib.sha256("\n".join(map(str, roots.values())).encode()).hexdigest()[:16]
    note = folder / f"{NOTE}{where}"
    if (noted := _noted(note, seen)) is not None:
        return noted
    found = _read(roots, names)
    if max(each.st_ctime_ns for each in files.values()) < before - SETTLED:
        _write(note, f"{seen} {found}\n")
    return found


def _facts(found: os.stat_result) -> tuple[int, ...]:
    """What another content of a file would have changed."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def _root(package: str) -> Path:
    spec = util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"there is no package {package}")
    return Path(spec.origin).parent


def _files(folder: Path | str, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every source file below a folder, with what the disk says of it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path, f"{prefix}{entry.name}/")
            elif entry.name.endswith(SUFFIXES):
                yield f"{prefix}{entry.name}", entry.stat()


def _read(roots: Mapping[str, Path], names: list[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        package, _, below = name.partition("/")
        digest.update(f"\n{name}\n".encode())
        digest.update((roots[package] / below).read_bytes())
    return digest.hexdigest()


def _noted(note: Path, seen: str) -> str | None:
    try:
        text = note.read_text()
    except (OSError, ValueError):
        return None
    found = re.fullmatch(r"([0-9a-f]{64}) ([0-9a-f]{64})\n", text)
    return found[2] if found is not None and found[1] == seen else None


def _write(note: Path, text: str) -> None:
    """Write it whole or not at all; a disk that cannot be written to costs the note."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=NOTE, dir=note.parent)
    except OSError:
        return
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(name, note)
    except OSError:
        Path(name).unlink(missing_ok=True)


FORMAT = "2"
SHOWN = 60


@dataclass(frozen=True)
class Key:
    """`kind` is a word (`kernels`, `graphs`); `parts` are sorted by name."""

    kind: str
    parts: tuple[tuple[str, str], ...]

    @cached_property
    def digest(self) -> str:
        """The name of the entry."""
        digest = hashlib.sha256()
        for text in (FORMAT, self.kind, *(text for part in self.parts for text in part)):
            data = text.encode()
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
        return digest.hexdigest()

    def text(self) -> str:
        """The key as JSON, stored with an entry's files."""
        return json.dumps({"kind": self.kind, "parts": dict(self.parts)})


def key(kind: str, **parts: str) -> Key:
    """A key of these parts."""
    return Key(kind, tuple(sorted(parts.items())))


def key_from(text: str) -> Key:
    """The key that `Key.text` gave. Raises ValueError for anything else."""
    try:
        data = json.loads(text)
        return key(str(data["kind"]), **{str(k): str(v) for k, v in data["parts"].items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a key: {text[:SHOWN]!r}") from error


def differences(one: Key, other: Key) -> list[str]:
    """Which parts differ, each with the first line in which it does."""
    if one.kind != other.kind:
        return [f"kind: {one.kind} is not {other.kind}"]
    first, second = dict(one.parts), dict(other.parts)
    found = []
    for name in sorted(first | second):
        if name not in first or name not in second:
            found.append(f"{name}: only the {'second' if name not in first else 'first'} has it")
        elif first[name] != second[name]:
            found.append(f"{name}: {_first_difference(first[name], second[name])}")
    return found


def _first_difference(one: str, other: str) -> str:
    ours, theirs = one.splitlines(), other.splitlines()
    for number, (left, right) in enumerate(zip(ours, theirs), 1):
        if left != right:
            where = f"line {number}: " if max(len(ours), len(theirs)) > 1 else ""
            return f"{where}{_around(left, right)}"
    return f"{len(ours)} lines against {len(theirs)}"


def _around(left: str, right: str) -> str:
    """Two texts from a little before where they part."""
    same = next((k for k, (a, b) in enumerate(zip(left, right)) if a != b), 0)
    start = max(0, same - SHOWN // 3) if max(len(left), len(right)) > SHOWN else 0
    return f"{left[start : start + SHOWN]!r} against {right[start : start + SHOWN]!r}"
