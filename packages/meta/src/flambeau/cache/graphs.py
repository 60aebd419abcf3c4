"""Disk cache of whole compiled graphs.

In: a captured graph and the inputs of this call. Out: a compiled program with neither a trace, nor
a schedule, nor a compiler run; or what a fresh compile gives, kept for the next process.
Invariant: a graph without a key, an entry that does not load and a disk that fails cost the time
of a compile and are counted with the reason; they never fail the program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flambeau_aot
import flambeau_capture
from flambeau_aot import AotError, CannotSave, Compiled
from flambeau_inductor import CannotLoad, CompiledGraph
from flambeau_inductor.cache import Key, open_store
from flambeau_inductor.kernels.loaders import loaders
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.cache.graph_key import VARIANT, graph_key, variant
from flambeau.cache.graph_text import CannotKey
from flambeau.cache.open_sizes import GraphSymbols, open_sizes
from flambeau.choices import Choices
from flambeau.packaging import bundle
from flambeau.packaging.guard_expressions import Tree, UnknownOperation

LARGE = 64 << 20
SIZES = "sizes.json"
VARIANTS = 8
"""Entries of one graph with open sizes: what holds for one size may not hold for another."""
FULL = f"{VARIANTS} entries for other sizes are there"
Recompile = Callable[[Sequence[Any]], Compiled]


@dataclass(frozen=True)
class RestoredGraph:
    """A restored program with its halves, forward first."""

    compiled: Compiled
    halves: tuple[CompiledGraph, ...]


class CacheLookup:
    """One graph in the cache: its key, or the reason why it has none or is not kept.

    fault: what went wrong with the disk.
    """

    def __init__(self, gm: fx.GraphModule, inputs: Sequence[Any], choices: Choices) -> None:
        self._gm, self._inputs, self._choices = gm, inputs, choices
        self.key: Key | None = None
        self.reason = self.fault = ""
        self._sizes: GraphSymbols | None = None
        if not choices.inductor.disk_cache:
            self.reason = "the option disk_cache is off"
            return
        self._store = open_store(choices.inductor.cache_dir)
        try:
            self._sizes = open_sizes(gm)
            self.key = graph_key(gm, inputs, choices, self._sizes, self._store.folder)
        except CannotKey as reason:
            self.reason = str(reason)
        self._before = [] if self._sizes is None else compat.facts_of(self._sizes.environment)

    def _keys(self, key: Key) -> list[Key]:
        """The keys of the entries that the graph may have: several where sizes are open."""
        if self._sizes is None:
            return [key]
        return [variant(key, number) for number in range(VARIANTS)]

    def find(self, recompile: Recompile) -> RestoredGraph | None:
        """The program from the disk; `recompile` is for what data cannot say.

        Of a graph with open sizes it is the entry whose conditions hold for those of now; they are
        assumed when this returns it.
        """
        if self.key is None:
            return None
        for key in self._keys(self.key):
            self.key, place = key, self._store.find(key)
            if place is None:
                return None  # the place that a fresh one takes
            if self._sizes is None:
                return self._restored(place, key, recompile)
            conditions = self._conditions(place, self._sizes)
            if conditions is not None and self._sizes.fit(conditions):
                found = self._restored(place, key, recompile)
                if found is not None:
                    self._sizes.assume(conditions)
                return found
        self.key, self.reason = None, FULL
        return None

    def _conditions(self, place: Path, sizes: GraphSymbols) -> list[Tree] | None:
        """What an entry takes for granted about sizes; None where that cannot be read."""
        try:
            found = json.loads((place / SIZES).read_text())
            sizes.fit(found)  # raises for what this version has no meaning for
            return list(found)
        except (OSError, TypeError, ValueError, LookupError, UnknownOperation) as error:
            self.fault = f"an entry does not load: {type(error).__name__}: {error}"
            return None

    def _restored(self, place: Path, key: Key, recompile: Recompile) -> RestoredGraph | None:
        try:
            kept = bundle.read(place)
            halves = bundle.load_halves(kept, loaders(self._choices.inductor), (self._store,))
            graphs = tuple(half for half in halves if isinstance(half, CompiledGraph))
            backward = flambeau_capture.disable(graphs[1]) if len(graphs) > 1 else None
            compiled = flambeau_aot.restore_graph(
                kept.stored, self._gm, self._inputs, graphs[0], backward, recompile
            )
        except (OSError, LookupError, TypeError, ValueError, AotError, CannotLoad) as error:
            # digests hold, so it is of another kind: it is made again in its place
            self.fault = f"an entry does not load: {type(error).__name__}: {error}"
            self._store.drop(key)
            return None
        return RestoredGraph(compiled, graphs)

    def keep(self, compiled: Compiled, halves: Sequence[CompiledGraph]) -> None:
        """Keep what was compiled just now; why not, in `reason` or `fault`."""
        if self.key is None:
            return
        if self._sizes is not None and VARIANT not in dict(self.key.parts):
            # nobody has looked for an entry that fits
            free = (each for each in self._keys(self.key) if self._store.find(each) is None)
            self.key = next(free, None)
        artifacts = [half.artifact for half in halves]
        if self.key is None:
            self.reason = FULL
        elif compiled.stored is None:
            self.reason = "a backward part compiled at its first use"
        elif not artifacts or any(artifact is None for artifact in artifacts):
            self.reason = "kernels that no other process can load"
        elif any(sum(t.nbytes for t in each.constants.values()) > LARGE for each in artifacts):
            self.reason = "constants of more than 64 MiB"
        else:
            try:
                files = bundle.Bundle(compiled.stored, tuple(artifacts)).files()
                if self._sizes is not None:
                    files[SIZES] = json.dumps(self._sizes.learnt(self._before)).encode()
            except (CannotSave, CannotKey) as error:
                self.reason = str(error)
                return
            fault = self._store.put(self.key, files)
            self.fault = self.fault or fault
