"""Model of a machine: a GPU's or a CPU's capacities, and hardware limits by architecture.

In: what the driver, or the system, says of it. Out: `Machine`, `Processor`. Invariant: peaks and
limits; what is reached of them is tuning data.

Links between processes: what a collective costs, by the type of the devices that it joins. In: a
type of devices. Out: its `Link`. Invariant: the numbers are those of `links.json`, which says what
measured them or that nothing did. A call takes `latency + bytes / rate` seconds (Hockney, "The
communication challenge for MPP", Parallel Computing 1994).
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import torch

#: by compute capability: operations of a multiprocessor's tensor units a clock, in half precision
#: (the architectures' white papers), KiB of shared memory that a program may have, and warps that a
#: multiprocessor holds (CUDA C++ Programming Guide, specifications per compute capability)
ARCHITECTURES: dict[tuple[int, int], tuple[int, int, int]] = {
    (7, 0): (1024, 96, 64),
    (7, 5): (1024, 64, 32),
    (8, 0): (2048, 163, 64),
    (8, 6): (1024, 99, 48),
    (8, 7): (2048, 163, 48),
    (8, 9): (1024, 99, 48),
    (9, 0): (4096, 227, 64),
    (10, 0): (8192, 227, 64),
    (10, 3): (8192, 227, 64),
    (12, 0): (1024, 99, 48),
    (12, 1): (1024, 99, 48),
}

REGISTERS, MOST_REGISTERS, REGISTER_STEP = 65536, 255, 8
"""Of a multiprocessor, of a thread, and what they are given out in (every architecture)."""
THREAD_ELEMENTS = 128
"""Elements that a thread holds at once: half of its registers."""
MMA_DEPTH = 16
"""Least inner dimension of a product by the tensor units."""
TMA_RANK, TMA_ALIGNMENT, TMA_BOX = 5, 16, 256
"""Tensor descriptors: dimensions, bytes of which addresses and strides are multiples, elements of a
box along a dimension (CUDA driver API, cuTensorMapEncodeTiled)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU: `shared_bytes` of a program, cycles and bytes of memory a second."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int
    cache_bytes: int
    clock: float
    bandwidth: float

    @property
    def described(self) -> bool:
        """Whether it reads operands through tensor descriptors."""
        return describes(self.capability)

    @property
    def multiplies_half(self) -> bool:
        """Whether its tensor units take both kinds of half precision."""
        return self.capability >= (8, 0)

    @property
    def operations(self) -> float:
        """Of the tensor units of one multiprocessor a second, in half precision."""
        return self.clock * architecture(self.capability)[0]

    @property
    def most_warps(self) -> int:
        """That a multiprocessor holds."""
        return architecture(self.capability)[2]


def describes(capability: tuple[int, int]) -> bool:
    """Whether such devices read operands through tensor descriptors."""
    return capability >= (9, 0)


def launches_dependents(capability: tuple[int, int]) -> bool:
    """Whether kernels of such devices can wait for earlier ones themselves."""
    return capability >= (9, 0)


def architecture(capability: tuple[int, int]) -> tuple[int, int, int]:
    """The row of a compute capability; of one that is not known, that of the newest before it."""
    before = [known for known in ARCHITECTURES if known <= capability]
    return ARCHITECTURES[max(before, default=min(ARCHITECTURES))]


def shared_bytes_of(capability: tuple[int, int]) -> int:
    """Bytes of shared memory that a program may have on such devices."""
    return architecture(capability)[1] << 10


@cache
def machine_of(index: int) -> Machine:
    """The GPU of this index. The driver answers in milliseconds, and every pass needs it."""
    found = torch.cuda.get_device_properties(index)
    capability = found.major, found.minor
    return Machine(
        found.name,
        capability,
        found.multi_processor_count,
        shared_bytes_of(capability),
        found.L2_cache_size,
        found.clock_rate * 1e3,
        2e3 * found.memory_clock_rate * found.memory_bus_width / 8,  # two transfers a clock
    )


@dataclass(frozen=True, slots=True)
class Processor:
    """One CPU: the level 2 cache of a core and the last level's of all, 0 where it is unknown."""

    name: str
    core_cache_bytes: int
    cache_bytes: int


@lru_cache(maxsize=1)
def processor() -> Processor:
    """The CPU of this process."""
    lines = _lines(Path("/proc/cpuinfo"))
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    folders = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
    return Processor(next(named, platform.processor()), *cache_sizes(folders))


def cache_sizes(folders: Iterable[Path]) -> tuple[int, int]:
    """Bytes of the second and of the last level, of the caches that Linux describes in folders."""
    sizes: dict[int, int] = {}
    for folder in folders:
        level, size = (next(iter(_lines(folder / name)), "") for name in ("level", "size"))
        if level.isdigit() and size.endswith("K"):
            sizes[int(level)] = int(size[:-1]) << 10
    return sizes.get(2, 0), sizes[max(sizes)] if sizes else 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # another system
        return []


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
