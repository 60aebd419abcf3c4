"""Compile once: of the ranks that lack a graph one compiles it, and the others take what it made.

In: the digest of a graph's key, the store of the process group, the cache folder of a rank. Out:
for each rank its turn: to compile, to fetch what another compiled, or to look into its folder
again. Invariant: nobody waits for longer than `SECONDS`, nor for a rank that says that it kept
nothing: who gets nothing compiles. One rank of those that share a folder fetches. What is fetched
is checked by whoever unpacks it; the store is the job's own, and is trusted as its program is.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from flambeau import _torch_compat as compat

VARIABLE = "FLAMBEAU_COMPILE_ONCE"
"""1: ranks of one process group compile each graph once."""
SECONDS = 60.0
_PART = 4 << 20  # a store takes no value of more than 8 MiB


class Turn:
    """This rank's part in the compiling of one graph. first: it compiles."""

    def __init__(self, store: Any, digest: str, place: str) -> None:
        self._store, self._graph = store, f"flambeau/once/{digest}"
        self._here = f"{self._graph}/{hashlib.sha256(place.encode()).hexdigest()[:16]}"
        self._first_here = store.add(self._here, 1) == 1
        self.first = self._first_here and store.add(f"{self._graph}/all", 1) == 1

    def wait(self) -> bytes | None:
        """What the rank that compiles has published; None: it is to be looked for in the folder, or
        there is nothing."""
        if self.first or not self._said(self._graph if self._first_here else self._here):
            return None
        if not self._first_here:
            return None
        count = json.loads(self._store.get(f"{self._graph}/said"))
        found = [self._store.get(f"{self._graph}/part{at}") for at in range(count)]
        return b"".join(found) or None

    def _said(self, key: str) -> bool:
        pause, ended = 1e-3, time.monotonic() + SECONDS
        while not self._store.check([f"{key}/said"]):
            if time.monotonic() > ended:
                return False
            time.sleep(pause)
            pause = min(1.5 * pause, 0.5)
        return True

    def end(self, made: bytes = b"") -> None:
        """Say that this rank is done, once the folder has what it found or made."""
        if self.first:
            parts = [made[at : at + _PART] for at in range(0, len(made), _PART)]
            for at, part in enumerate(parts):
                self._store.set(f"{self._graph}/part{at}", part)
            self._store.set(f"{self._graph}/said", json.dumps(len(parts)))
        if self._first_here:
            self._store.set(f"{self._here}/said", "1")


def turn(digest: str, folder: Path) -> Turn | None:
    """The turn of this rank; None where ranks compile by themselves."""
    if os.environ.get(VARIABLE, "").strip() != "1":
        return None
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return None
    return Turn(compat.default_store(), digest, f"{socket.gethostname()}:{folder}")
