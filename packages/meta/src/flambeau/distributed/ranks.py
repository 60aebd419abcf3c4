"""Agreement check: do the ranks of a process group compile the same graphs?

In: each graph that a rank compiles, in order. Out: nothing, or a warning that names the first
difference and the rank.
Invariant: no rank waits for another: each leaves a note in the group's store and reads those that
are there already, so that the last to arrive sees them all.
"""

from __future__ import annotations

import json
import threading
import warnings
from dataclasses import dataclass

import torch.distributed as dist
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.errors import FlambeauWarning
from flambeau.events.stage_products import called


class RanksDisagree(FlambeauWarning):
    """Two ranks compile different graphs: branches on a rank's own data, or another program."""


@dataclass(frozen=True)
class Note:
    """What a rank says of the graph that it compiles: calls in order, and where they end."""

    calls: tuple[str, ...]
    line: str

    @classmethod
    def of(cls, gm: fx.GraphModule) -> Note:
        """The note on a captured graph; sizes are left out, for a last batch may be smaller."""
        nodes = [node for node in gm.graph.nodes if node.op.startswith("call_")]
        calls, line = [], ""
        for node in nodes:
            own = getattr(node.target, "__module__", None)
            module = "" if isinstance(node.target, str) else f"{own}."
            calls.append(f"{module}{called(node.target)}")
            line = str(node.meta.get("stack_trace") or "").strip()
        return cls(tuple(calls), line)


class _Group:
    """The notes of this process in its process group, by the order in which they were made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._store: object = None
        self._open: dict[int, tuple[Note, set[int]]] = {}
        self._made = 0

    def compare(self, note: Note) -> list[str]:
        """Leave a note; what other ranks noted otherwise, one sentence each."""
        store = compat.default_store()
        rank, ranks = dist.get_rank(), range(dist.get_world_size())
        with self._lock:
            if store is not self._store:  # another group than before: counted from its start
                self._store, self._open, self._made = store, {}, 0
            number, self._made = self._made, self._made + 1
            self._open[number] = (note, {other for other in ranks if other != rank})
            pending = [(n, own, others) for n, (own, others) in self._open.items() if others]
            text = json.dumps([note.calls, note.line])
            store.set(f"flambeau/graph/{number}/{rank}", text)
            found = []
            for n, own, others in pending:
                for other in sorted(others):
                    key = f"flambeau/graph/{n}/{other}"
                    if store.check([key]):
                        others.discard(other)
                        calls, line = json.loads(store.get(key))
                        theirs = Note(tuple(calls), line)
                        if theirs.calls != own.calls:
                            found.append(_difference(n, rank, own, other, theirs))
            return found


def _difference(number: int, rank: int, own: Note, other: int, theirs: Note) -> str:
    pairs = enumerate(zip(own.calls, theirs.calls, strict=False))
    place = next((i for i, (a, b) in pairs if a != b), min(len(own.calls), len(theirs.calls)))
    mine = own.calls[place] if place < len(own.calls) else "nothing more"
    others = theirs.calls[place] if place < len(theirs.calls) else "nothing more"
    return (
        f"graph {number} differs between ranks: call {place} is {mine} on rank {rank} and {others} "
        f"on rank {other}. Rank {rank} ends at\n  {own.line}\nrank {other} at\n  {theirs.line}"
    )


_group = _Group()


def compare_ranks(gm: fx.GraphModule) -> list[str]:
    """Compare a captured graph with those that the other ranks compiled at the same turn.

    Returns the differences, each also given as a RanksDisagree warning; each rank goes on with its
    own graph, which is right by itself. Does nothing where no process group is there.
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return []
    found = _group.compare(Note.of(gm))
    for text in found:
        warnings.warn(text, RanksDisagree, stacklevel=3)
    return found
