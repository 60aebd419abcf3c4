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
from flambeau_inductor.cache import CacheStore, Key, open_store
from flambeau_inductor.kernels.loaders import loaders
from torch import fx

from flambeau.cache.graph_key import VARIANT, graph_key, variant
from flambeau.cache.graph_text import CannotKey
from flambeau.cache.open_sizes import GraphSymbols, Inexpressible, ShapeAssumptions, open_sizes
from flambeau.choices import Choices
from flambeau.packaging import bundle
from flambeau.packaging.guard_expressions import Tree, UnknownOperation

LARGE = 64 << 20
SIZES = "sizes.json"
VARIANTS = 8
"""Entries of one graph with open sizes: what holds for one size may not hold for another."""
Recompile = Callable[[Sequence[Any]], Compiled]


@dataclass(frozen=True)
class RestoredGraph:
    """A restored program with its halves, forward first."""

    compiled: Compiled
    halves: tuple[CompiledGraph, ...]


class GraphCache:
    """The graphs of one backend. It remembers nothing but where they are."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def lookup(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> CacheLookup:
        """The state of one graph in the cache."""
        if not self._choices.inductor.disk_cache:
            return CacheLookup(self._choices, None, None, "the option disk_cache is off")
        store = open_store(self._choices.inductor.cache_dir)
        try:
            sizes = open_sizes(gm)
            key = graph_key(gm, inputs, self._choices, sizes, store.folder)
        except CannotKey as reason:
            return CacheLookup(self._choices, None, None, str(reason))
        before = None if sizes is None else sizes.state()
        return CacheLookup(self._choices, key, store, "", sizes=sizes, before=before)


@dataclass
class CacheLookup:
    """One graph: its key, or why it has none.

    sizes: those that it leaves open, and `before`, what was assumed about them before the compile.
    """

    choices: Choices
    key: Key | None
    store: CacheStore | None
    reason: str
    fault: str = ""
    sizes: GraphSymbols | None = None
    before: ShapeAssumptions | None = None

    def find(
        self, gm: fx.GraphModule, inputs: Sequence[Any], recompile: Recompile
    ) -> RestoredGraph | None:
        """The program from the disk; `recompile` is for what data cannot say.

        Of a graph with open sizes it is the entry whose conditions hold for those of now; they are
        assumed when this returns it.
        """
        if self.key is None or self.store is None:
            return None
        if self.sizes is None:
            place = self.store.find(self.key)
            return None if place is None else self._restored(place, gm, inputs, recompile)
        for number in range(VARIANTS):
            self.key = variant(self.key, number)
            place = self.store.find(self.key)
            if place is None:
                return None  # the place that a fresh one takes
            conditions = self._conditions(place)
            if conditions is not None and self.sizes.fit(conditions):
                found = self._restored(place, gm, inputs, recompile)
                if found is not None:
                    self.sizes.assume(conditions)
                return found
        self.reason = f"{VARIANTS} entries for other sizes are there"
        self.key = None
        return None

    def _take_variant(self, store: CacheStore) -> None:
        """Take the first entry that is free, where nobody has looked for one that fits."""
        assert self.key is not None
        if VARIANT not in dict(self.key.parts):
            keys = [variant(self.key, number) for number in range(VARIANTS)]
            self.key = next((each for each in keys if store.find(each) is None), None)
            self.reason = "" if self.key else f"{VARIANTS} entries for other sizes are there"

    def _conditions(self, place: Path) -> list[Tree] | None:
        """What an entry takes for granted about sizes; None where that cannot be read."""
        assert self.sizes is not None
        try:
            found = json.loads((place / SIZES).read_text())
            self.sizes.fit(found)  # raises for what this version has no meaning for
            return list(found)
        except (OSError, TypeError, ValueError, LookupError, UnknownOperation) as error:
            self.fault = f"an entry does not load: {type(error).__name__}: {error}"
            return None

    def _restored(
        self, place: Path, gm: fx.GraphModule, inputs: Sequence[Any], recompile: Recompile
    ) -> RestoredGraph | None:
        assert self.key is not None and self.store is not None
        try:
            kept = bundle.read(place)
            halves = bundle.load_halves(kept, loaders(self.choices.inductor), (self.store,))
            graphs = tuple(half for half in halves if isinstance(half, CompiledGraph))
            backward = flambeau_capture.disable(graphs[1]) if len(graphs) > 1 else None
            compiled = flambeau_aot.restore_graph(
                kept.stored, gm, inputs, graphs[0], backward, recompile
            )
        except (OSError, LookupError, TypeError, ValueError, AotError, CannotLoad) as error:
            # digests hold, so it is of another kind: it is made again in its place
            self.fault = f"an entry does not load: {type(error).__name__}: {error}"
            self.store.drop(self.key)
            return None
        return RestoredGraph(compiled, graphs)

    def keep(self, compiled: Compiled, halves: Sequence[CompiledGraph]) -> None:
        """Keep what was compiled just now; why not, in `reason` or `fault`."""
        if self.sizes is not None and self.key is not None and self.store is not None:
            self._take_variant(self.store)
        if self.key is None or self.store is None:
            return
        artifacts = [half.artifact for half in halves]
        if compiled.stored is None:
            self.reason = "a backward part compiled at its first use"
        elif not artifacts or any(artifact is None for artifact in artifacts):
            self.reason = "kernels that no other process can load"
        elif any(_large(artifact) for artifact in artifacts):
            self.reason = "constants of more than 64 MiB"
        else:
            try:
                files = bundle.Bundle(compiled.stored, tuple(artifacts)).files()
                if self.sizes is not None and self.before is not None:
                    files[SIZES] = json.dumps(self.sizes.learnt(self.before)).encode()
            except (CannotSave, Inexpressible) as error:
                self.reason = str(error)
                return
            fault = self.store.put(self.key, files)
            self.fault = self.fault or fault


def _large(artifact: Any) -> bool:
    sizes = [int(t.numel()) * int(t.element_size()) for t in artifact.constants.values()]
    return sum(sizes) > LARGE
