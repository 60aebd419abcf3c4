"""Programs in files: many files in one, each with its digest; a kept program as a folder.

In: contents by name, facts about them; a `Stored` program and the artifacts of its halves. Out: a
zip file, files in a folder; and the same back, or `Refused`. Invariant: nothing of an archive is
handed out before the digests of all of it are found right, no name leads out of the folder it is
unpacked to, and a file appears whole or not at all. A bundle is plain data, tensors and shared
objects; reading runs none of it but the shared objects, which is why whoever reads checks first
that the folder is to be trusted.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from flambeau_aot.serialize.saved_program import Stored, stored_from
from flambeau_inductor.runtime.artifact import Artifact, from_data, load_artifact
from flambeau_inductor.runtime.kernel_part import Loader

from flambeau.errors import Refused

MANIFEST = "manifest.json"
FORMAT = 1
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    OverflowError,
    RuntimeError,  # said to be encrypted, or packed in a way that nobody knows
)
"""What reading a zip file raises whose bytes were changed."""


def write(
    path: Path, kind: str, facts: Mapping[str, Any], files: Mapping[str, bytes | Path]
) -> int:
    """Write `files` and `facts` to `path`; the size in bytes."""
    digests: dict[str, str] = {}
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    aside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as raw, zipfile.ZipFile(raw, "w") as packed:
            for member, content in files.items():
                data = content.read_bytes() if isinstance(content, Path) else content
                digests[member] = hashlib.sha256(data).hexdigest()
                packed.writestr(member, data)
            manifest = {"kind": kind, "format": FORMAT, "facts": dict(facts), "digests": digests}
            packed.writestr(MANIFEST, json.dumps(manifest, indent=1))
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return path.stat().st_size


def tensor_bytes(tensors: list[torch.Tensor]) -> bytes:
    """Tensors as the content of a file, which `torch.load` reads with `weights_only=True`."""
    written = io.BytesIO()
    torch.save([tensor.detach() for tensor in tensors], written)
    return written.getvalue()


def tensors_from(path: Path, marks: Sequence[Sequence[bool]]) -> list[torch.Tensor]:
    """The tensors in a file, of which `marks` say whether each is a parameter, and requires grad;
    none where there is no file."""
    tensors: list[torch.Tensor] = torch.load(path, weights_only=True) if path.exists() else []
    return [
        torch.nn.Parameter(tensor, wanted) if parameter else tensor.requires_grad_(wanted)
        for tensor, (parameter, wanted) in zip(tensors, marks, strict=True)
    ]


def facts_of(path: Path, kind: str) -> dict[str, Any]:
    """The facts of a file. Raises Refused."""
    with _opened(path) as packed:
        facts: dict[str, Any] = _manifest(path, packed, kind)["facts"]
    return facts


def unpack(path: Path, kind: str, folder: Path) -> dict[str, Any]:
    """Write the files into `folder`, which exists, and give the facts. Raises Refused."""
    with _opened(path) as packed:
        manifest = _manifest(path, packed, kind)
        digests = manifest["digests"]
        inside = {name for name in packed.namelist() if name != MANIFEST}
        if inside != set(digests):
            raise Refused(f"{path}: its list of files is not what the file holds")
        for name, expected in digests.items():
            if Path(name).name != name or name.startswith("."):
                raise Refused(f"{path}: {name!r} is not a plain file name")
            try:
                data = packed.read(name)
            except UNREADABLE as error:
                raise Refused(f"{path}: {name} cannot be read ({error})") from error
            if hashlib.sha256(data).hexdigest() != expected:
                raise Refused(f"{path}: {name} is not what was written (its digest differs)")
            (folder / name).write_bytes(data)
    facts: dict[str, Any] = manifest["facts"]
    return facts


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except OSError:
        raise
    except UNREADABLE as error:
        raise Refused(f"{path}: not a file of Flambeau, or cut off ({error})") from error


def _manifest(path: Path, packed: zipfile.ZipFile, kind: str) -> dict[str, Any]:
    try:
        found = json.loads(packed.read(MANIFEST))
        is_kind, is_format = found["kind"], found["format"]
        found["facts"], found["digests"] = dict(found["facts"]), dict(found["digests"])
    except (*UNREADABLE, TypeError) as error:
        raise Refused(f"{path}: not a file of Flambeau, or cut off ({error})") from error
    if is_kind != kind:
        raise Refused(f"{path}: holds a {is_kind}, not a {kind}")
    if is_format != FORMAT:
        raise Refused(f"{path}: has format {is_format}, this version reads {FORMAT}")
    result: dict[str, Any] = found
    return result


DATA = "program.json"
TENSORS = "tensors.pt"
HALVES = ("forward", "backward")


@dataclass(frozen=True)
class Bundle:
    """A program and its halves, forward first."""

    stored: Stored
    halves: tuple[Artifact, ...]

    def files(self, prefix: str = "") -> dict[str, bytes | Path]:
        """Contents and places of all files, by name. Raises CannotSave."""
        data = {
            "program": self.stored.data(),
            "halves": [half.data() for half in self.halves],
            "constants": [sorted(half.constants) for half in self.halves],
        }
        tensors = list(self.stored.constants)
        for half in self.halves:
            tensors += [half.constants[name] for name in sorted(half.constants)]
        found: dict[str, bytes | Path] = {prefix + DATA: json.dumps(data).encode()}
        if tensors:
            found[prefix + TENSORS] = tensor_bytes(tensors)
        for which, artifact in zip(HALVES, self.halves, strict=False):
            for name, path in artifact.files().items():
                found[f"{prefix}{which}-{name}"] = path
        return found


def prefix(variant: int) -> str:
    """What the names of the files of a variant begin with."""
    return f"variant{variant}-" if variant else ""


def packed(kind: str, files: Mapping[str, bytes | Path]) -> bytes:
    """What `write` writes, in memory."""
    with tempfile.TemporaryDirectory(prefix="flambeau-") as aside:
        path = Path(aside) / kind
        write(path, kind, {}, files)
        return path.read_bytes()


def unpacked(data: bytes, kind: str) -> dict[str, bytes]:
    """The files in what `packed` gave. Raises Refused where they are not those that were packed."""
    with tempfile.TemporaryDirectory(prefix="flambeau-") as aside:
        path, folder = Path(aside) / kind, Path(aside) / "files"
        path.write_bytes(data)
        folder.mkdir()
        unpack(path, kind, folder)
        return {each.name: each.read_bytes() for each in folder.iterdir()}


def read_bundle(folder: Path, prefix: str = "") -> Bundle:
    """The bundle in `folder`. Raises OSError, KeyError, TypeError or ValueError where it is not
    one, AotError where a later version wrote it."""
    data: Mapping[str, Any] = json.loads((folder / f"{prefix}{DATA}").read_text())
    path = folder / f"{prefix}{TENSORS}"
    tensors: Sequence[torch.Tensor] = ()
    if path.exists():
        tensors = torch.load(path, weights_only=True)
    names = [list(each) for each in data["constants"]]
    own = len(tensors) - sum(map(len, names))
    stored = stored_from(data["program"], tensors[:own])
    rest = iter(tensors[own:])
    halves = []
    for half, described, constants in zip(HALVES, data["halves"], names, strict=False):
        given = {name: next(rest) for name in constants}
        halves.append(from_data(described, given, folder, f"{prefix}{half}-"))
    return Bundle(stored, tuple(halves))


def load_halves(
    bundle: Bundle, loaders: Mapping[str, Loader] | None = None, keep: Sequence[object] = ()
) -> list[Callable[[list[Any]], Sequence[Any]]]:
    """The halves as callables. Raises CannotLoad."""
    return [load_artifact(half, loaders, keep) for half in bundle.halves]
