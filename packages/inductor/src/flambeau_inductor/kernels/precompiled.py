"""Builds of units that find the header of all units precompiled: half of a small one's time.

In: a unit's text, the store of kernels. Out: its library. Invariant: the library is the same with
and without. GCC reads the precompiled header of a folder that comes before that of the header in
its search only where its version, flags and macros are those that it was made with; where it is
missing or does not fit, the header itself is read.

It is made once for a store, a toolchain and a number of lanes, while the program goes on after the
first build that lacked it. A store that ends with its process has none.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Thread

from flambeau_inductor.cache import CacheStore, key
from flambeau_inductor.codegen.cpp.toolchain import Toolchain
from flambeau_inductor.errors import CompilerFailed

LANES = re.compile(r'#define FL_W (\d+)\n#include "flambeau.h"\n')
"""How a text begins that is built sooner."""
THREAD = "flambeau-precompiled-header"


def build(toolchain: Toolchain, text: str, folder: Path, store: CacheStore) -> Path:
    """`toolchain.build`, with what is precompiled; what is not is made for the next."""
    begin = LANES.match(text)
    if begin is None or store.lease is not None or not toolchain.precompiles:
        return toolchain.build(text, folder)
    header = _header(toolchain, int(begin[1]), store)
    if header.folder is not None:
        # it fails where memory is taken that GCC maps it to
        with suppress(CompilerFailed):
            return toolchain.build(text, folder, header.folder)
    library = toolchain.build(text, folder)
    header.make()
    return library


class _PrecompiledHeader:
    """`folder` is where it is, once it is."""

    def __init__(self, toolchain: Toolchain, lanes: int, store: CacheStore) -> None:
        self.toolchain, self.lanes, self.store = toolchain, lanes, store
        self.key = key("headers", toolchain=toolchain.identity, lanes=str(lanes))
        self.folder = store.find(self.key)
        self.begun = self.folder is not None

    def make(self) -> None:
        """Begin to make it, if nobody did."""
        if not self.begun:
            self.begun = True
            with suppress(RuntimeError):  # there are no new threads while Python ends
                Thread(target=self._make, name=THREAD).start()

    def _make(self) -> None:
        # no fault of the program: the next build reads the header itself
        with suppress(CompilerFailed, OSError):
            entry = self.store.entry(
                self.key, lambda folder: self.toolchain.precompile(self.lanes, folder)
            )
            self.folder = None if entry.lease else entry.folder


@lru_cache(maxsize=16)
def _header(toolchain: Toolchain, lanes: int, store: CacheStore) -> _PrecompiledHeader:
    return _PrecompiledHeader(toolchain, lanes, store)
