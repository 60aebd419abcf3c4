"""Model of a machine: a GPU's or a CPU's capacities, and hardware limits by architecture.

In: what the driver, or the system, says of it. Out: `Machine`, `Processor`. Invariant: peaks and
limits; what is reached of them is tuning data.

Links between processes: what a collective costs, by the type of the devices that it joins. In: a
type of devices. Out: its `Link`. Invariant: the numbers are those of `links.json`, which says what
measured them or that nothing did. A call takes `latency + bytes / rate` seconds (Hockney, "The
communication challenge for MPP", Parallel Computing 1994).

Tuning of a device: the thresholds, tiles and rates by which kernels are chosen unmeasured. In: a
`Machine` or a `Processor`. Out: its `Tuning` or `HostTuning`: the numbers of a file of this folder,
or what follows from those for another device. Invariant: on a measured device each number is the
one in its file, which says what measured it or why it was chosen. A number of a file follows the
machine by the rule in its row: with `follows` it is proportional to these quantities of the
machine's model, with `leaves` as much of one is left over as there, without either it is the same
everywhere.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import Any, TypeVar

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


VERSION = 2
FOLDER = Path(__file__).parent
FILES = {"NVIDIA H200": "h200.json", "AMD EPYC": "epyc.json"}
"""Data of the devices that were measured, by the names that their drivers or systems give them."""

Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """Of one GPU. What each number is, its file says in its row, with where it is from."""

    machine: Machine
    tensor_operations: float
    cache_rate: float
    memory_rate: float
    parts_rate: float
    program_start: float
    launch: float
    step_latency: float
    full_tile: int
    tile_power: float
    tile_bytes: int
    product_tiles: tuple[Row, ...]
    small_tiles: tuple[Row, ...]
    short_inner: int
    vector_rows: int
    few_rows: int
    few_row_tiles: tuple[tuple[int, int, int, int, int], ...]
    few_row_bytes: tuple[int, int]
    widened_tiles: tuple[tuple[int, int, int, int, int], ...]
    widened_part: int
    packed_depth: int
    packed_warps: tuple[int, int]
    packed_turns: int
    described_tiles: tuple[Row, ...]
    short_described_tiles: tuple[Row, ...]
    window_tiles: tuple[Row, ...]
    depthwise_tiles: tuple[Row, ...]
    attention_blocks: Mapping[str, tuple[Row, ...]]
    attention_backward_blocks: Mapping[str, tuple[tuple[Row, Row], ...]]
    key_blocks: tuple[Row, Row]
    key_programs: int
    split_keys: int
    scatter_tile: tuple[int, int, int]
    attention_length: int
    attention_operations: float
    attention_widths: tuple[int, int]
    convolution_operations: float
    convolution_columns: int
    narrow_tile: tuple[int, int, int, int, int]
    depthwise_results: int
    depthwise_padding: float
    unaligned_share: float
    library_share: float
    group_rows: int
    pairs_gain: float
    batch_side: int
    batch_products: int
    across_bytes: int
    split_programs: int
    split_length: int
    split_part: int
    split_columns: int
    across_columns: int
    least_across: int
    most_across: int
    most_held: int
    thread_registers: tuple[int, float]
    spill: float
    crowding: float
    spilled_block: tuple[int, int]
    held_row: int
    held_online: tuple[int, int]
    long_online: int
    online_blocks: tuple[Row, Row]
    long_several: int
    several_blocks: tuple[Row, Row, Row]
    reread_block: tuple[int, int]
    shared_vector: tuple[int, int, int]
    walked_lengths: tuple[int, int]
    walked_stages: int
    walked_registers: float
    row_columns: tuple[int, ...]
    light_registers: tuple[int, int]
    uneven_shares: int
    pipelined_bytes: int
    pipelined_spare: int
    row_scalar_readers: int
    row_scalar_ops: int
    recompute_ops: int
    looked_up_readers: int
    order_gain: float
    added_rows_bytes: int
    added_rows_widths: tuple[int, int]
    group_norm_bytes: int
    joined_launches: int
    recorded_launches: int
    walked_bytes: int
    raced_points: int
    flush_bytes: int
    copied_bytes: int
    moving_bytes: int

    @property
    def trusted(self) -> bool:
        """Whether it was measured, so that its choices come first in a race."""
        return self.machine.name in FILES

    def _multiplies(self, dtype: torch.dtype) -> bool:
        """Whether tensor units multiply numbers of this half precision."""
        return dtype in (torch.float16, torch.bfloat16) and self.machine.multiplies_half

    def widens_few(self, rows: int, inner: int, dtype: torch.dtype) -> bool:
        """Whether a few vectors are multiplied by a matrix that is widened as it is read."""
        few = 1 < rows <= self.few_rows and inner >= 2 * self.widened_tiles[-1][2]
        return few and self._multiplies(dtype)

    def unpacks_few(self, rows: int, inner: int, dtype: torch.dtype) -> bool:
        """Whether a few vectors are multiplied by a matrix that is unpacked as it is read."""
        few = rows <= self.few_rows and inner >= self.packed_depth
        return few and self._multiplies(dtype)

    def splits_keys(self, shared: int, keys: int, width: int, dtype: torch.dtype) -> bool:
        """Whether the keys of one query, which `shared` heads have in common, are split among
        programs: two kernels of tensor units instead of sums."""
        many = keys >= 2 * self.key_blocks[-1][0] and shared * keys * width >= self.split_keys
        return many and self._multiplies(dtype)


@dataclass(frozen=True, slots=True)
class HostTuning:
    """Of one CPU."""

    machine: Processor
    flush_bytes: int
    raced_bytes: int
    onednn_operations_alone: int
    onednn_operations_raced: int
    onednn_operations: int
    onednn_least_side: int
    onednn_parts: int
    onednn_parts_side: int
    window_multiplications: int
    point_multiplications: int
    window_points: int
    gradient_multiplications: int
    concat_call_bytes: int
    concat_copy_bytes: int
    concat_pieces: int
    viewed_bytes: int
    cheap_convolutions: float
    linear_block_bytes: int
    linear_most_bytes: int
    linear_block_rows: int
    huge_page_bytes: int
    drawn_elements: int
    streamed_bytes: int
    far_bytes: int
    fetched_bytes: int
    repeated_bytes: int
    packed_share: int
    triton_seconds: float


Kind = TypeVar("Kind", Tuning, HostTuning)
MACHINES: Mapping[type, type] = {Tuning: Machine, HostTuning: Processor}


def read(path: Path, kind: type[Kind], machine: Any = None) -> Kind:
    """What a file says of the machine that was measured, or what follows for another one.

    Raises:
        ValueError: its version is another, or it lacks a number, what it is or where it is from.
    """
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["version"] != VERSION:
        raise ValueError(f"{path.name}: version {found['version']}, not {VERSION}")
    measured = MACHINES[kind](**{name: _frozen(value) for name, value in found["machine"].items()})
    rows = found["numbers"]
    wanted = {field.name for field in fields(kind)} - {"machine"}
    if rows.keys() != wanted:
        raise ValueError(f"{path.name}: {sorted(rows.keys() ^ wanted)}")
    said = ({"is", "measured"}, {"is", "chosen"})
    unsaid = [n for n, row in rows.items() if row.keys() & {"is", "measured", "chosen"} not in said]
    if unsaid:
        raise ValueError(f"{path.name} does not say what {unsaid} are, or where they are from")
    same = machine is None or machine.name == measured.name
    target = measured if machine is None or same else machine
    numbers = {name: _scaled(row, target, measured) for name, row in rows.items()}
    return kind(machine=machine or measured, **numbers)


def _scaled(row: Mapping[str, Any], machine: Any, measured: Any) -> Any:
    value = _frozen(row["value"])
    if "leaves" in row:
        return value + getattr(machine, row["leaves"]) - getattr(measured, row["leaves"])
    if "follows" not in row:
        return value
    # a quantity that the system does not say is taken to be the measured one
    pairs = [(getattr(machine, name), getattr(measured, name)) for name in row["follows"]]
    scaled = value * prod(here / there for here, there in pairs if here)
    return round(scaled) if isinstance(value, int) else scaled


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _frozen(each) for name, each in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@lru_cache(maxsize=16)
def tuning_for(machine: Machine) -> Tuning:
    return read(FOLDER / FILES.get(machine.name, FILES["NVIDIA H200"]), Tuning, machine)


@lru_cache(maxsize=16)
def host_tuning_for(machine: Processor) -> HostTuning:
    return read(FOLDER / FILES.get(machine.name, FILES["AMD EPYC"]), HostTuning, machine)


MEASURED = read(FOLDER / FILES["NVIDIA H200"], Tuning)
"""What others are scaled from, and what kernels are made for where no device is there."""


def tuning_of(devices: Iterable[torch.device]) -> Tuning:
    """Of the first GPU among devices; of the measured machine where none is there."""
    if torch.cuda.is_available():
        for device in devices:
            if device.type == "cuda":
                return tuning_for(machine_of(device.index or 0))
    return MEASURED


def host_tuning() -> HostTuning:
    """Of this process's CPU."""
    return host_tuning_for(processor())
