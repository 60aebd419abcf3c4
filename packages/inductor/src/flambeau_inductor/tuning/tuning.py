"""Tuning of a GPU: the thresholds and rates by which kernels are chosen without measurement.

In: a `Machine`. Out: its `Tuning`: a file of this folder, which says of each number what measured
it or why it was chosen, or what follows from that of the measured machine. Invariant: on a measured
machine each number is the one in its file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from flambeau_inductor.tuning.machine import Machine, machine_of

VERSION = 1


@dataclass(frozen=True, slots=True)
class Tuning:
    """Of one machine. Rates are bytes or operations a second, times seconds.

    tensor_operations, cache_rate: of one multiprocessor, in half precision with the largest tiles;
    of what it reads of the level 2 cache. memory_rate, parts_rate: of all together; of the partial
    sums of tiles in parts. program_start: before a program's first product. launch: of a kernel.
    tile_bytes: of shared memory, for the tiles of a program. walked_bytes: of those, what all but
    one of the blocks of rows in turn may take, two programs beside each other.

    Templates are taken for attention of so long sequences, so many operations and heads between two
    widths; for convolutions over images of a few channels of so many operations and results a point
    (`narrow_tile` for the fewest: rows, columns, depth, warps, stages); for depthwise ones of so
    many results, whose blocks span so many times the channels that there are; for grouped products
    of so few rows a group on average (`pairs_gain`: what two programs beside each other must gain);
    for batches of so many products, no side of which is longer.

    across_bytes: that two loops must both read for one to take over the sums of the other: less is
    still in the cache. split_programs: that a GPU wants of a reduction.
    """

    machine: Machine
    tensor_operations: float
    cache_rate: float
    memory_rate: float
    parts_rate: float
    program_start: float
    launch: float
    tile_bytes: int
    attention_length: int
    attention_operations: float
    attention_widths: tuple[int, int]
    convolution_operations: float
    convolution_columns: int
    narrow_tile: tuple[int, int, int, int, int]
    depthwise_results: int
    depthwise_padding: float
    group_rows: int
    pairs_gain: float
    batch_side: int
    batch_products: int
    across_bytes: int
    split_programs: int
    walked_bytes: int

    @property
    def trusted(self) -> bool:
        """Whether it was measured, so that its choices come first in a race."""
        return self.machine.name in FILES


def read(path: Path) -> Tuning:
    """A file of numbers; it has all of them, and says of each which tool measured it, or why it was
    chosen."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["version"] != VERSION:
        raise ValueError(f"{path.name}: version {found['version']}, not {VERSION}")
    numbers: dict[str, Any] = {name: _plain(row["value"]) for name, row in found["numbers"].items()}
    machine = Machine(**{name: _plain(value) for name, value in found["machine"].items()})
    wanted = {field.name for field in fields(Tuning)} - {"machine"}
    if numbers.keys() != wanted:
        raise ValueError(f"{path.name}: {sorted(numbers.keys() ^ wanted)}")
    unsaid = [n for n, row in found["numbers"].items() if ("measured" in row) == ("chosen" in row)]
    if unsaid:
        raise ValueError(f"{path.name} does not say where {unsaid} are from")
    return Tuning(machine, **numbers)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


FILES = {"NVIDIA H200": "h200.json"}
"""What was measured, by the name that the driver gives a device."""
MEASURED = read(Path(__file__).parent / FILES["NVIDIA H200"])
"""What others are scaled from, and what kernels are made for where no device is there."""


def tuning_for(machine: Machine) -> Tuning:
    """What was measured on such machines, or what follows for one from the measured one.

    Rates keep the part of the peak that was reached there: the tensor units' by operations a clock
    and clock, the level 2 cache's by clock, the memory's by its own rate. Least operations are such
    that take as long: they follow the rate of all tensor units together. Shared memory for tiles is
    all but what was left free there; for rows in turn it is a part of it. Programs and results that
    fill a device follow its multiprocessors; bytes that are too many for its cache, the cache. What
    is a matter of shapes alone (widths, sides, padding), or of launching, is the same.
    """
    if machine.name in FILES:
        return replace(read(Path(__file__).parent / FILES[machine.name]), machine=machine)
    known, base = MEASURED, MEASURED.machine
    count = machine.multiprocessors / base.multiprocessors
    unit = machine.operations / base.operations
    memory = machine.bandwidth / base.bandwidth
    free = base.shared_bytes - known.tile_bytes
    return replace(
        known,
        machine=machine,
        tensor_operations=known.tensor_operations * unit,
        cache_rate=known.cache_rate * machine.clock / base.clock,
        memory_rate=known.memory_rate * memory,
        parts_rate=known.parts_rate * memory,
        tile_bytes=machine.shared_bytes - free,
        attention_operations=known.attention_operations * unit * count,
        convolution_operations=known.convolution_operations * unit * count,
        depthwise_results=round(known.depthwise_results * count),
        batch_products=round(known.batch_products * count),
        across_bytes=round(known.across_bytes * machine.cache_bytes / base.cache_bytes),
        split_programs=round(known.split_programs * count),
        walked_bytes=known.walked_bytes * machine.shared_bytes // base.shared_bytes,
    )


def tuning_of(devices: Iterable[torch.device]) -> Tuning:
    """Of the first GPU among devices; of the measured machine where none is there."""
    if torch.cuda.is_available():
        for device in devices:
            if device.type == "cuda":
                return tuning_for(machine_of(device.index or 0))
    return MEASURED
