"""Bundle: the folder layout of a kept compiled program.

In: a `Stored` program and the artifacts of its halves. Out: files; and the same back. Invariant:
plain data, tensors and shared objects; reading runs none of it but the shared objects, which is
why whoever reads checks first that the folder is to be trusted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from flambeau_aot.serialize.saved_program import Stored, stored_from
from flambeau_inductor.runtime.artifact import Artifact, Loader, from_data, load_artifact

from flambeau.packaging.archive import tensor_bytes

DATA = "program.json"
TENSORS = "tensors.pt"
HALVES = ("forward", "backward")


@dataclass(frozen=True)
class Bundle:
    """A program and its halves, forward first."""

    stored: Stored
    halves: tuple[Artifact, ...]

    def files(self) -> dict[str, bytes | Path]:
        """Contents and places of all files, by name. Raises CannotSave."""
        data = {
            "program": self.stored.data(),
            "halves": [half.data() for half in self.halves],
            "constants": [sorted(half.constants) for half in self.halves],
        }
        tensors = list(self.stored.constants)
        for half in self.halves:
            tensors += [half.constants[name] for name in sorted(half.constants)]
        found: dict[str, bytes | Path] = {DATA: json.dumps(data).encode()}
        if tensors:
            found[TENSORS] = tensor_bytes(tensors)
        for which, artifact in zip(HALVES, self.halves, strict=False):
            for name, path in artifact.files().items():
                found[f"{which}-{name}"] = path
        return found


def read(folder: Path) -> Bundle:
    """The bundle in `folder`. Raises OSError, KeyError, TypeError or ValueError where it is not
    one, AotError where a later version wrote it."""
    data: Mapping[str, Any] = json.loads((folder / DATA).read_text())
    path = folder / TENSORS
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
        halves.append(from_data(described, given, folder, f"{half}-"))
    return Bundle(stored, tuple(halves))


def load_halves(
    bundle: Bundle, loaders: Mapping[str, Loader] | None = None, keep: Sequence[object] = ()
) -> list[Callable[[list[Any]], Sequence[Any]]]:
    """The halves as callables. Raises CannotLoad."""
    return [load_artifact(half, loaders, keep) for half in bundle.halves]
