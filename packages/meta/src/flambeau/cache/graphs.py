"""Whole compiled graphs on the disk: a graph that was compiled before is not compiled again.

In: a captured graph and the inputs of this call. Out: a compiled program with neither a trace, nor
a schedule, nor a compiler run; or what a fresh compile gives, kept for the next process.
Invariant: a graph without a key, an entry that does not load and a disk that fails cost the time
of a compile and are counted with the reason; they never fail the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flambeau_aot
import flambeau_capture
from flambeau_aot import AotError, CannotSave, Compiled
from flambeau_inductor import CannotLoad, CompiledGraph
from flambeau_inductor.cache import Key, Store, open_store
from flambeau_inductor.kernels import loaders
from torch import fx

from flambeau import bundle
from flambeau.cache.graph_key import graph_key
from flambeau.cache.graph_text import CannotKey
from flambeau.choices import Choices

LARGE = 64 << 20
Recompile = Callable[[Sequence[Any]], Compiled]


@dataclass(frozen=True)
class Found:
    """A restored program with its halves, forward first."""

    compiled: Compiled
    halves: tuple[CompiledGraph, ...]


class GraphCache:
    """The graphs of one backend. It remembers nothing but where they are."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def lookup(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Lookup:
        """The state of one graph in the cache."""
        if not self._choices.inductor.disk_cache:
            return Lookup(self._choices, None, None, "the option disk_cache is off")
        try:
            key = graph_key(gm, inputs, self._choices)
        except CannotKey as reason:
            return Lookup(self._choices, None, None, str(reason))
        return Lookup(self._choices, key, open_store(self._choices.inductor.cache_dir), "")


@dataclass
class Lookup:
    """One graph: its key, or why it has none."""

    choices: Choices
    key: Key | None
    store: Store | None
    reason: str
    fault: str = ""

    def find(self, gm: fx.GraphModule, inputs: Sequence[Any], recompile: Recompile) -> Found | None:
        """The program from the disk; `recompile` is for what data cannot say."""
        if self.key is None or self.store is None:
            return None
        place = self.store.find(self.key)
        if place is None:
            return None
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
        return Found(compiled, graphs)

    def keep(self, compiled: Compiled, halves: Sequence[CompiledGraph]) -> None:
        """Keep what was compiled just now; why not, in `reason` or `fault`."""
        if self.key is None or self.store is None:
            return
        artifacts = [half.artifact for half in halves]
        if compiled.stored is None:
            self.reason = "sizes that are left open, or a backward part compiled at its first use"
        elif not artifacts or any(artifact is None for artifact in artifacts):
            self.reason = "kernels that no other process can load"
        elif any(_large(artifact) for artifact in artifacts):
            self.reason = "constants of more than 64 MiB"
        else:
            try:
                files = bundle.Bundle(compiled.stored, tuple(artifacts)).files()
            except CannotSave as error:
                self.reason = str(error)
                return
            fault = self.store.put(self.key, files)
            self.fault = self.fault or fault


def _large(artifact: Any) -> bool:
    sizes = [int(t.numel()) * int(t.element_size()) for t in artifact.constants.values()]
    return sum(sizes) > LARGE
