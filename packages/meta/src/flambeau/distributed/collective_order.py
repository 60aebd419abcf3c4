"""Agreement check: do the ranks of a group start the same collectives in the same order?

In: each graph with collectives, before its first run. Out: the graph; or, where another rank of the
group compiles other collectives in their place, a callable that raises `CollectivesDiffer` on each
rank, where the program would wait for ever.
Invariant: what is compared is the order of collectives, not the graphs that they are in: a rank
whose program breaks between two of them, to print a loss, is right. Nothing is compared twice: a
graph of lines that all ranks have already agreed on may be compiled by one rank alone, for another
size. A rank waits for another for `SECONDS` at most: that may run the same uncompiled.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.errors import FlambeauError, warn
from flambeau.events.stage_products import user_line

if TYPE_CHECKING:
    from flambeau.backends.request import Backend  # its package has this among its layers

SECONDS = 30.0


class CollectivesDiffer(FlambeauError):
    """Ranks of one group would start different collectives, and wait for each other for ever."""

    is_a_finding = True  # capture lets it reach the program


@dataclass(frozen=True)
class Started:
    """A collective of a captured graph: what all ranks have to do alike, and the user's line."""

    what: str
    line: str


def collectives_of(gm: fx.GraphModule) -> dict[str, list[Started]]:
    """The collectives of a graph in order, by the name of their group."""
    found: dict[str, list[Started]] = {}
    for node in gm.graph.nodes:
        group = compat.group_of_collective(node)
        if group is not None:
            sources = node.all_input_nodes[:1]
            dtype = getattr(sources[0].meta.get("val"), "dtype", None) if sources else None
            said = [str(each) for each in node.args if isinstance(each, str | int)]
            what = f"{node.target}({', '.join(said)}) of {dtype}"
            found.setdefault(group, []).append(Started(what, user_line(node)))
    return found


@dataclass
class _Stream:
    """The collectives of one group: those of this rank, and what is known of each other rank's;
    `notes`: how many were read of each rank, or written by this one."""

    rank: int
    own: list[Started] = field(default_factory=list)
    others: dict[int, list[Started]] = field(default_factory=dict)
    notes: dict[int, int] = field(default_factory=dict)
    closed: bool = False

    def agreed(self) -> set[Started]:
        """Those that every rank is known to start, by the lines of this rank."""
        return set(self.own[: min(map(len, self.others.values()), default=0)])

    def difference(self) -> str | None:
        """The first difference, in words; none is looked for once another rank went on alone."""
        if self.closed:
            return None
        for other, theirs in self.others.items():
            for place, (mine, its) in enumerate(zip(self.own, theirs, strict=False)):
                if mine.what != its.what:
                    return (
                        f"collective {place} differs between ranks, which would wait for each "
                        f"other:\nrank {self.rank} starts {mine.what} at {mine.line}\n"
                        f"rank {other} starts {its.what} at {its.line}"
                    )
        return None


class _Streams:
    """The collectives of this process, by group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._store: Any = None
        self._by_group: dict[str, _Stream] = {}

    def compare(self, group: str, new: Sequence[Started]) -> str | None:
        """Leave a note for the others of the group, and read theirs; the first difference."""
        store = compat.default_store()
        with self._lock:
            if store is not self._store:  # other processes than before
                self._store, self._by_group = store, {}
            rank, ranks = dist.get_rank(), compat.ranks_of_group(group)
            stream = self._by_group.setdefault(group, _Stream(rank))
            place = f"flambeau/collectives/{group}/{'-'.join(map(str, ranks))}"
            others = [other for other in ranks if other != rank]
            for other in others:  # what they have started since, which this rank took part in
                _read(store, place, stream, other)
            stream.closed = stream.closed or store.check([f"{place}/unchecked"])
            if stream.closed or not others or stream.agreed().issuperset(new):
                return stream.difference()
            number = stream.notes[rank] = stream.notes.get(rank, 0) + 1
            store.set(f"{place}/{rank}/{number}", json.dumps([(s.what, s.line) for s in new]))
            first, stream.own = len(stream.own), [*stream.own, *new]
            for other in others:
                if not _read(store, place, stream, other, first + 1):
                    stream.closed = True
                    store.set(f"{place}/unchecked", "")  # the others' notes miss collectives, too
                    warn(_UNCHECKED.format(SECONDS=SECONDS, rank=other, line=new[0].line))
            return stream.difference()


def _read(store: Any, place: str, stream: _Stream, other: int, wanted: int = 0) -> bool:
    """Read the notes that a rank has left, and wait until they say so many collectives; whether
    they do in time."""
    theirs = stream.others.setdefault(other, [])
    ended, pause = time.monotonic() + SECONDS, 1e-3
    while True:
        number = stream.notes.get(other, 0) + 1
        key = f"{place}/{other}/{number}"
        if store.check([key]):
            theirs += [Started(*each) for each in json.loads(store.get(key))]
            stream.notes[other] = number
        elif len(theirs) >= wanted:
            return True
        elif time.monotonic() > ended:
            return False
        else:
            time.sleep(pause)
            pause = min(2 * pause, 0.05)


_UNCHECKED = (
    "Rank {rank} compiled no collectives within {SECONDS} s of those of this rank from {line}: "
    "whether it starts the same ones is not checked."
)


_streams = _Streams()


def in_agreement(backend: Backend) -> Backend:
    """The backend; a graph whose collectives are not those of the other ranks raises when it is
    run. Does nothing where no process group is there."""

    def agreed(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        together = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        for group, started in (collectives_of(gm) if together else {}).items():
            found = _streams.compare(group, started)
            if found is not None:
                return _raising(found)
        return backend(gm, example_inputs)

    return agreed


def _raising(text: str) -> Callable[..., Any]:
    def differ(*given: Any) -> Any:
        raise CollectivesDiffer(text)

    return differ
