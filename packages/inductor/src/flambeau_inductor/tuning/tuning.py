"""Tuning of a device: the thresholds, tiles and rates by which kernels are chosen unmeasured.

In: a `Machine` or a `Processor`. Out: its `Tuning` or `HostTuning`: the numbers of a file of this
folder, or what follows from those for another device. Invariant: on a measured device each number
is the one in its file, which says what measured it or why it was chosen.

A number of a file follows the machine by the rule in its row: with `follows` it is proportional to
these quantities of the machine's model, with `leaves` as much of one is left over as there, without
either it is the same everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import torch

from flambeau_inductor.tuning.machine import Machine, Processor, machine_of, processor

VERSION = 2
FOLDER = Path(__file__).parent
FILES = {"NVIDIA H200": "h200.json", "AMD EPYC": "epyc.json"}
"""Data of the devices that were measured, by the names that their drivers or systems give them."""

Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """Of one GPU. Rates are bytes or operations a second, times seconds.

    tensor_operations, cache_rate: of one multiprocessor, in half precision with the largest tiles;
    of what it reads of the level 2 cache. memory_rate, parts_rate: of all together; of the partial
    sums of tiles in parts. program_start: before a program's first product. launch: of a kernel.
    full_tile, tile_power: elements of a tile that keeps the tensor units busy, and the power of the
    share of that by which a smaller one does. tile_bytes: of shared memory, for the tiles of a
    program. walked_bytes: of those, what all but one of the blocks of rows in turn may take, two
    programs of a multiprocessor at a time.

    Rows of tiles are rows, columns, depth, warps, stages: product_tiles, small_tiles (of batches,
    and of inner dimensions below short_inner), and with resident programs at the end
    described_tiles, short_described_tiles, window_tiles (of convolutions, described or not).
    depthwise_tiles: points, channels, warps. scatter_tile: columns, warps, rows read at a time.
    attention_blocks by "float32" or the widest head, "biased" where that differs: queries, keys,
    warps, stages, described, queries in registers, pipelined; attention_backward_blocks: pairs of
    them, for keys and for queries.

    Templates are taken for attention of so long sequences, so many operations and heads between two
    widths; for convolutions over images of a few channels of so many operations and results a point
    (`narrow_tile` for the fewest); for depthwise ones of so many results, whose blocks span so many
    times the channels that there are; for grouped products of so few rows a group on average
    (`pairs_gain`: what two programs of a multiprocessor must gain); for batches of so many
    products, no side of which is longer.

    across_bytes to recompute_ops: the thresholds of `Limits`. order_gain: the part of the peak that
    another order of steps must save. added_rows_bytes, added_rows_widths: of memory that atomic
    additions move more than rows added in order, from which on rows are sorted; of such rows, and
    where that saves a table in float32. group_norm_bytes: of neighbouring channels that a norm by
    groups must take at once for images to be channels-last. recorded_launches: of the smallest CUDA
    graph. raced_points: of loops
    whose tilings are measured; smaller ones are bound by their launch. flush_bytes: written to
    empty the caches before a measurement.

    Of a CUDA graph: copied_bytes, inputs and results below are copied rather than expected in place
    or handed out; moving_bytes: of inputs, above which none is recorded unless requested.
    """

    machine: Machine
    tensor_operations: float
    cache_rate: float
    memory_rate: float
    parts_rate: float
    program_start: float
    launch: float
    full_tile: int
    tile_power: float
    tile_bytes: int
    product_tiles: tuple[Row, ...]
    small_tiles: tuple[Row, ...]
    short_inner: int
    described_tiles: tuple[Row, ...]
    short_described_tiles: tuple[Row, ...]
    window_tiles: tuple[Row, ...]
    depthwise_tiles: tuple[Row, ...]
    attention_blocks: Mapping[str, tuple[Row, ...]]
    attention_backward_blocks: Mapping[str, tuple[tuple[Row, Row], ...]]
    scatter_tile: tuple[int, int, int]
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
    split_length: int
    split_part: int
    split_columns: int
    across_columns: int
    least_across: int
    most_across: int
    most_held: int
    row_columns: tuple[int, ...]
    light_registers: tuple[int, int]
    uneven_shares: int
    pipelined_bytes: int
    pipelined_spare: int
    row_scalar_readers: int
    row_scalar_ops: int
    recompute_ops: int
    order_gain: float
    added_rows_bytes: int
    added_rows_widths: tuple[int, int]
    group_norm_bytes: int
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


@dataclass(frozen=True, slots=True)
class HostTuning:
    """Of one CPU.

    flush_bytes: written to empty the caches before a measurement. raced_bytes: of loops whose code
    variants are measured. onednn_operations, _alone, _raced: of the smallest product for which
    oneDNN is considered, by one thread, and that is measured by itself; onednn_least_side: its
    least rows and columns; onednn_parts, onednn_parts_side: most parts of a sum, and the least rows
    and columns of a product in parts. window_multiplications, point_multiplications, window_points:
    of the smallest convolution that oneDNN takes instead of a product of windows, of 1 x 1, and its
    points; gradient_multiplications: of the largest gradient of a weight that is a product.
    concat_call_bytes: of pieces written in place that are worth a call; concat_copy_bytes: of a
    piece that the library copies; concat_pieces: that one condition tells apart. viewed_bytes: of a
    buffer that takes over memory of another layout. cheap_convolutions: share for channels-last.
    linear_block_bytes, linear_most_bytes, linear_block_rows: of a block of a product with a large
    result, at most, and its least rows. huge_page_bytes: of tensors worth a system call that asks
    for huge pages. drawn_elements: of random numbers worth fetching the generator's state.
    packed_share: a weight of one part in so many of image and result is worth packing.
    triton_seconds: that compiling the kernels of one race may take.
    """

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
    packed_share: int
    triton_seconds: float


Kind = TypeVar("Kind", Tuning, HostTuning)
MACHINES: Mapping[type, type] = {Tuning: Machine, HostTuning: Processor}


def read(path: Path, kind: type[Kind], machine: Any = None) -> Kind:
    """What a file says of the machine that was measured, or what follows for another one.

    Raises:
        ValueError: its version is another, it lacks a number, or one says not where it is from.
    """
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["version"] != VERSION:
        raise ValueError(f"{path.name}: version {found['version']}, not {VERSION}")
    measured = MACHINES[kind](**{name: _frozen(value) for name, value in found["machine"].items()})
    rows = found["numbers"]
    wanted = {field.name for field in fields(kind)} - {"machine"}
    if rows.keys() != wanted:
        raise ValueError(f"{path.name}: {sorted(rows.keys() ^ wanted)}")
    unsaid = [name for name, row in rows.items() if ("measured" in row) == ("chosen" in row)]
    if unsaid:
        raise ValueError(f"{path.name} does not say where {unsaid} are from")
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
    """Of such a GPU."""
    return read(FOLDER / FILES.get(machine.name, FILES["NVIDIA H200"]), Tuning, machine)


@lru_cache(maxsize=16)
def host_tuning_for(machine: Processor) -> HostTuning:
    """Of such a CPU."""
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
