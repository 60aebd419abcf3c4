"""Alignment of matrix products: where the library is slow, and the seconds of each alternative.

In: sizes of a product. Out: seconds by the model of the machine. Invariant: what the model says of
an unmeasured product is the same for the pass that pads and for the selection of templates.

The library multiplies half precision at full speed where the three matrices are made of whole
pieces of 16 bytes: of each, the extent of the dimension that is contiguous in memory and the step
to the next row of it. The template needs that of the steps of its operands alone
(docs/decisions/0020).
"""

from __future__ import annotations

from dataclasses import replace

from flambeau_inductor.templates.gemm.tiles import GemmShape, candidates, seconds
from flambeau_inductor.tuning import Tuning

PIECE = 16
"""Bytes of the largest load of a thread, and of what a tensor descriptor counts in."""


def missing(size: int, itemsize: int) -> int:
    """How many elements a row lacks to be made of whole pieces."""
    return -size % (PIECE // itemsize)


def library_seconds(shape: GemmShape, aligned: bool, tuning: Tuning) -> float:
    """What the library takes, with rows of whole pieces or without."""
    if not aligned and min(shape.rows, shape.columns) > 1:  # vectors are not for tensor units
        rate = tuning.tensor_operations * tuning.unaligned_share
        return _tiled(shape, replace(tuning, tensor_operations=rate))
    operations = 2 * shape.rows * shape.columns * shape.inner * shape.batch
    least = operations / (tuning.tensor_operations * tuning.machine.multiprocessors)
    return max(least, tuning.library_share * _tiled(shape, tuning))


def template_seconds(shape: GemmShape, tuning: Tuning) -> float:
    """What the template takes; rows that do not end with a piece are stored by the element."""
    odd = missing(shape.columns, shape.itemsize) > 0
    stored = shape.batch * shape.rows * shape.columns * shape.itemsize if odd else 0
    return _tiled(shape, tuning) + stored / tuning.memory_rate


def copy_seconds(elements: int, itemsize: int, tuning: Tuning) -> float:
    """What a copy takes, its launch included."""
    return tuning.launch + 2 * elements * itemsize / tuning.memory_rate


def _tiled(shape: GemmShape, tuning: Tuning) -> float:
    described = tuning.machine.described
    some = candidates(shape, 2, described=described, tuning=tuning)  # of both kinds
    return min((seconds(tile, shape, tuning) for tile in some), default=tuning.program_start)
