"""Links between processes: what a collective costs, by the type of the devices that it joins.

In: a type of devices. Out: its `Link`. Invariant: the numbers are those of `links.json`, which says
what measured them or that nothing did. A call takes `latency + bytes / rate` seconds (Hockney, "The
communication challenge for MPP", Parallel Computing 1994).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

FILE = Path(__file__).with_name("links.json")

NUMBERS = ("latency", "rate", "copy_rate", "product_rate")
STARTS = 16
"""In a call that takes so many latencies, the latency is what merging can no longer save."""


@dataclass(frozen=True, slots=True)
class Link:
    """latency: seconds that a call takes however small it is. rate: bytes a second of one process.
    copy_rate: bytes a second that memory is copied at. product_rate: operations a second of a
    product meanwhile, of a device that has no tuning of its own; 0 where it has."""

    latency: float
    rate: float
    copy_rate: float
    product_rate: float = 0.0

    def seconds(self, size: int) -> float:
        """What a call of so many bytes takes."""
        return self.latency + size / self.rate

    @property
    def most_bytes(self) -> int:
        """Of a call that is worth being made larger."""
        return int(STARTS * self.latency * self.rate)

    def gains(self, size: int) -> bool:
        """Whether to copy so many bytes into a larger call, and out of it, takes less than a call
        of their own."""
        return 2 * size / self.copy_rate < self.latency


@lru_cache(maxsize=1)
def _links() -> dict[str, Link]:
    rows = json.loads(FILE.read_text(encoding="utf-8"))["links"]
    return {
        kind: Link(*(float(row.get(name, 0)) for name in NUMBERS)) for kind, row in rows.items()
    }


NETWORK = "network"


def link_of(kind: str) -> Link:
    """The link between devices of a type in one host, or (`NETWORK`) between hosts; of a type that
    is not known, that between processors."""
    return _links().get(kind, _links()["cpu"])
