"""Tensor descriptors of the tensor memory accelerator.

In: where an operand lies (a `Descriptor`, plain data) and what Triton's compiler says of the blocks
that are read of it. Out: a `Tiled`, which the native part of a launch encodes with the operand's
address (`cuTensorMapEncodeTiled`) and passes by value. Invariant: a kernel whose entry does not
take its descriptors exactly as they are passed is not launched with them.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from flambeau_inductor.tuning.machine import TMA_ALIGNMENT, TMA_BOX, TMA_RANK

TYPES: Mapping[str, tuple[int, int]] = {"bf16": (9, 2), "fp16": (6, 2), "fp32": (7, 4)}
"""`CUtensorMapDataType` and bytes of an element, by Triton's name of the type."""


class Descriptor(NamedTuple):
    """Memory of the kernel's `argument`, `offset` elements in: `sizes` and `strides` in elements,
    outermost first, the last stride 1; the kernel reads `block`s of it."""

    argument: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]
    dtype: str

    @property
    def signature(self) -> str:
        """The type of the kernel's parameter."""
        return f"tensordesc<{self.dtype}[{', '.join(map(str, self.block))}]>"


class Tiled(ctypes.Structure):
    """The fields of `fl::Tiled` in `flambeau/launch.h`; the innermost dimension is first."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("rank", ctypes.c_uint),
        ("type", ctypes.c_uint),
        ("itemsize", ctypes.c_uint),
        ("swizzle", ctypes.c_uint),
        ("box", ctypes.c_uint * TMA_RANK),
        ("offset", ctypes.c_ulonglong),
        ("size", ctypes.c_ulonglong * TMA_RANK),
        ("stride", ctypes.c_ulonglong * TMA_RANK),
    )


@lru_cache(maxsize=1)
def cuda_encode() -> int:
    """The address of cuTensorMapEncodeTiled. Raises where the CUDA driver has none."""
    library = ctypes.CDLL("libcuda.so.1")
    return ctypes.cast(library.cuTensorMapEncodeTiled, ctypes.c_void_p).value or 0


def tiled(descriptor: Descriptor, meta: Mapping[str, Any]) -> Tiled:
    """The driver's form; `meta` is the compiled kernel's own record of its blocks."""
    number, itemsize = TYPES[descriptor.dtype]
    rank = len(descriptor.sizes)
    swizzle, offset = int(meta["swizzle"]), descriptor.offset * itemsize
    made = Tiled(descriptor.argument, rank, number, itemsize, swizzle, offset=offset)
    blocks = [int(n) for n in meta["block_size"]]
    for place, dim in enumerate(reversed(range(rank))):
        made.box[place] = blocks[dim]
        made.size[place] = descriptor.sizes[dim]
        made.stride[place] = descriptor.strides[dim]
    return made


def fits(descriptor: Descriptor) -> bool:
    """Whether the accelerator can read memory that lies like this, given an aligned address."""
    itemsize = TYPES[descriptor.dtype][1] if descriptor.dtype in TYPES else 0
    return (
        itemsize > 0
        and 1 <= len(descriptor.sizes) <= TMA_RANK
        and descriptor.strides[-1] == 1
        and descriptor.offset * itemsize % TMA_ALIGNMENT == 0
        and all(s > 0 and s * itemsize % TMA_ALIGNMENT == 0 for s in descriptor.strides[:-1])
        and all(s * itemsize < 2**40 for s in descriptor.strides)
        and all(0 < n < 2**31 for n in descriptor.sizes)
        and all(n <= TMA_BOX for n in descriptor.block)
    )


def as_passed(
    ptx: str, addresses: int, descriptors: Sequence[Descriptor], metas: Sequence[Any] | None
) -> bool:
    """Whether a kernel's entry takes addresses, then each descriptor with sizes and strides."""
    if metas is None or len(metas) != len(descriptors):
        return False
    same = all(
        meta is not None
        and not meta.get("fp4_padded")
        and not meta.get("is_im2col")
        and int(meta["elem_size"]) == TYPES[descriptor.dtype][1]
        and len(meta["block_size"]) == len(descriptor.sizes)
        for descriptor, meta in zip(descriptors, metas, strict=True)
    )
    found = re.search(r"\.entry\s+[\w$]+\s*\((.*?)\)", ptx, re.DOTALL)
    if not same or found is None:
        return False
    kinds = re.findall(r"\.param(?:\s+\.align\s+\d+)?\s+\.(\w+)[^\[,]*(\[\d+\])?", found.group(1))
    expected = [("u64", "")] * addresses
    for descriptor in descriptors:
        rank = len(descriptor.sizes)
        expected += [("b8", "[128]"), *[("u32", "")] * rank, *[("u64", "")] * rank]
    rest = kinds[len(expected) :]
    return kinds[: len(expected)] == expected and all(kind == ("u64", "") for kind in rest)
