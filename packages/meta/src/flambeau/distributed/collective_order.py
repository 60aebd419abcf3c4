"""Agreement check: do the ranks of a group start the same collectives in the same order?

In: each graph with collectives, before its first run. Out: the graph; or, where another rank of the
group compiles other collectives in their place, a callable that raises `CollectivesDiffer` on each
rank, where the program would wait for ever.
Invariant: what is compared is the order of collectives, not the graphs that they are in: a rank
whose program breaks between two of them, to print a loss, is right, unless collectives of a graph
are merged. Nothing is compared twice: a
graph of lines that all ranks have already agreed on may be compiled by one rank alone, for another
size. A rank waits for another for `SECONDS` at most: that may run the same uncompiled.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.errors import FlambeauError, warn
from flambeau.events.stage_products import called, user_line

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


def collectives_of(gm: fx.GraphModule, whole: bool = False) -> dict[str, list[Started]]:
    """The collectives of a graph in order, by the name of their group; with `whole`, the graph that
    each is in is a part of what all ranks have to do alike."""
    found: dict[str, list[Started]] = {}
    within = f", in a graph of {_calls_of(gm)}" if whole else ""
    for node in gm.graph.nodes:
        group = compat.group_of_collective(node)
        if group is not None:
            sources = node.all_input_nodes[:1]
            dtype = getattr(sources[0].meta.get("val"), "dtype", None) if sources else None
            said = [str(each) for each in node.args if isinstance(each, str | int)]
            what = f"{node.target}({', '.join(said)}) of {dtype}{within}"
            found.setdefault(group, []).append(Started(what, user_line(node)))
    return found


def _calls_of(gm: fx.GraphModule) -> str:
    """How many calls a graph has, and a digest of their targets in order."""
    calls = [called(node.target) for node in gm.graph.nodes if node.op.startswith("call_")]
    return f"{len(calls)} calls ({hashlib.sha256(repr(calls).encode()).hexdigest()[:12]})"


@dataclass
class _Stream:
    """The collectives of one group: those of this rank, and what is known of each other rank's;
    `place`: where notes are in the store; `notes`: how many were read of each rank, or written by
    this one."""

    place: str
    rank: int
    others: dict[int, list[Started]]
    own: list[Started] = field(default_factory=list)
    notes: dict[int, int] = field(default_factory=dict)
    closed: bool = False

    @property
    def unchecked(self) -> str:
        """Where a rank that goes on alone says so, for its notes and the others' part there."""
        return f"{self.place}/unchecked"

    def read(self, store: Any, other: int, wanted: int = 0) -> bool:
        """Read the notes that a rank has left, and wait until they say so many collectives; whether
        they do in time."""
        theirs, pause = self.others[other], 1e-3
        ended = time.monotonic() + SECONDS
        while True:
            number = self.notes.get(other, 0) + 1
            key = f"{self.place}/{other}/{number}"
            if store.check([key]):
                theirs += [Started(*each) for each in json.loads(store.get(key))]
                self.notes[other] = number
            elif len(theirs) >= wanted:
                return True
            elif time.monotonic() > ended:
                return False
            else:
                time.sleep(pause)
                pause = min(2 * pause, 0.05)

    def wait(self, store: Any, new: Sequence[Started], whole: bool) -> str | None:
        """Wait until each other rank says what it starts in the place of the first new one; in
        words, that one does not and has to."""
        wanted = len(self.own) - len(new) + 1
        for other in self.others:
            if not self.closed and not self.read(store, other, wanted):
                self.closed = True
                store.set(self.unchecked, "")
                if whole:
                    return _ALONE.format(SECONDS=SECONDS, rank=other, line=new[0].line)
                warn(_UNCHECKED.format(SECONDS=SECONDS, rank=other, line=new[0].line))
        return None

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

    def compare(self, new: Mapping[str, Sequence[Started]], whole: bool = False) -> str | None:
        """Leave notes for the others of each group, and read theirs; the first difference. whole:
        no rank may go on without the others' notes."""
        with self._lock:
            store = compat.default_store()
            if store is not self._store:  # other processes than before
                self._store, self._by_group = store, {}
            pending = [
                (self._noted(store, group, started), started) for group, started in new.items()
            ]
            for stream, started in pending:
                alone = stream.wait(store, started, whole) if stream is not None else None
                if alone is not None:
                    return alone
            differences = (self._by_group[group].difference() for group in new)
            return next(filter(None, differences), None)

    def _noted(self, store: Any, group: str, new: Sequence[Started]) -> _Stream | None:
        """The group's stream, after a note on what is new; None: there is nothing to compare."""
        if group not in self._by_group:
            rank, ranks = dist.get_rank(), compat.ranks_of_group(group)
            place = f"flambeau/collectives/{group}/{'-'.join(map(str, ranks))}"
            others = {other: list[Started]() for other in ranks if other != rank}
            self._by_group[group] = _Stream(place, rank, others)
        stream = self._by_group[group]
        for other in stream.others:  # what they have started since, which this rank took part in
            stream.read(store, other)
        stream.closed = stream.closed or store.check([stream.unchecked])
        if stream.closed or not stream.others or stream.agreed().issuperset(new):
            return None
        number = stream.notes[stream.rank] = stream.notes.get(stream.rank, 0) + 1
        text = json.dumps([(each.what, each.line) for each in new])
        store.set(f"{stream.place}/{stream.rank}/{number}", text)
        stream.own += new
        return stream


_UNCHECKED = (
    "Rank {rank} compiled no collectives within {SECONDS} s of those of this rank from {line}: "
    "whether it starts the same ones is not checked."
)


_ALONE = (
    "Rank {rank} compiled no collectives within {SECONDS} s of those of this rank from {line}: "
    "with merge_collectives, sum_gradients or gather_parameters all ranks must have the same "
    "graphs, or they wait for ever."
)


_streams = _Streams()


def in_agreement(backend: Backend, whole: bool = False) -> Backend:
    """The backend; a graph whose collectives are not those of the other ranks raises when it is
    run. whole: collectives of a graph are merged, or made by capture, so that the graph must be
    that of the other ranks too. Does nothing where no process group is there."""

    def agreed(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        together = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        found = _streams.compare(collectives_of(gm, whole), whole) if together else None
        return _raising(found) if found is not None else backend(gm, example_inputs)

    return agreed


def _raising(text: str) -> Callable[..., Any]:
    def differ(*given: Any) -> Any:
        raise CollectivesDiffer(text)

    return differ
