"""What a GPU is made of.

In: the properties that its driver gives. Out: `Machine`. Invariant: peaks; what is reached of
them is for `Tuning` to say.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

#: by compute capability: operations of a multiprocessor's tensor units a clock, in half precision
#: (the architectures' white papers), and KiB of shared memory that a program may have (CUDA C++
#: Programming Guide, technical specifications per compute capability)
ARCHITECTURES: dict[tuple[int, int], tuple[int, int]] = {
    (7, 0): (1024, 96),
    (7, 5): (1024, 64),
    (8, 0): (2048, 163),
    (8, 6): (1024, 99),
    (8, 7): (2048, 163),
    (8, 9): (1024, 99),
    (9, 0): (4096, 227),
    (10, 0): (8192, 227),
    (10, 3): (8192, 227),
    (12, 0): (1024, 99),
    (12, 1): (1024, 99),
}


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
        return self.capability >= (9, 0)

    @property
    def operations(self) -> float:
        """Of the tensor units of one multiprocessor a second, in half precision."""
        return self.clock * architecture(self.capability)[0]


def architecture(capability: tuple[int, int]) -> tuple[int, int]:
    """The row of a compute capability; of one that is not known, that of the newest before it."""
    before = [known for known in ARCHITECTURES if known <= capability]
    return ARCHITECTURES[max(before, default=min(ARCHITECTURES))]


def shared_bytes_of(capability: tuple[int, int]) -> int:
    """Bytes of shared memory that a program may have on such devices."""
    return architecture(capability)[1] << 10


def machine_of(index: int) -> Machine:
    """The GPU of this index."""
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
