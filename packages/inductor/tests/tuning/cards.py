"""GPUs that are not here, by what their drivers say, and CPUs by what the system does."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import torch
from flambeau_inductor.tuning import Machine, Processor, machine_of

#: published figures: capability, multiprocessors, MiB of cache, MHz, MHz of the memory, its bits
CARDS = {
    "NVIDIA A100-SXM4-80GB": ((8, 0), 108, 40, 1410, 1593, 5120),
    "NVIDIA L4": ((8, 9), 58, 48, 2040, 6251, 192),
    "NVIDIA H100 80GB HBM3": ((9, 0), 132, 50, 1980, 2619, 5120),
    "NVIDIA GeForce RTX 5090": ((12, 0), 170, 96, 2407, 14001, 512),
}


#: published figures: level 2 of a core, last level; one that does not say
PROCESSORS = {
    "Intel(R) Xeon(R) Platinum 8480+": Processor(
        "Intel(R) Xeon(R) Platinum 8480+", 2 << 20, 105 << 20
    ),
    "AMD Ryzen 7 5800X3D": Processor("AMD Ryzen 7 5800X3D", 512 << 10, 96 << 20),
    "aarch64": Processor("aarch64", 0, 0),
}


#: the same of the one that was measured, as its driver gave them
MEASURED_CARD = {"NVIDIA H200": ((9, 0), 132, 60, 1980, 3201, 6016)}


def card(name: str) -> Machine:
    """A card as it would be found."""
    (major, minor), count, cache, clock, memory, bits = (CARDS | MEASURED_CARD)[name]
    found = SimpleNamespace(
        name=name, major=major, minor=minor, multi_processor_count=count,
        L2_cache_size=cache << 20, clock_rate=clock * 1000, memory_clock_rate=memory * 1000,
        memory_bus_width=bits,
    )  # fmt: skip
    with mock.patch.object(torch.cuda, "get_device_properties", lambda index: found):
        return machine_of.__wrapped__(0)
