"""Memory layout of tensor objects, discovered by probing.

In: the installed torch, nothing of its headers. Out: a `TensorLayout` of byte offsets for the
native tensor check, or None. Invariant: an offset is used only if it is the only one (or the first
of equivalent ones) that explains every sample, and if reading through all of them reproduces what
torch says of a second, larger set of tensors; whatever disagrees turns the layout off.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch

from flambeau_capture._native import TensorLayout, read_bytes
from flambeau_capture._torch_compat import dispatch_keys, implementation_address, in_plain_state

# How far the C++ implementation of a tensor and the autograd part of that are searched. They were
# at least this large (allocated size) where looked at, in torch 2.13; 2.11 and 2.14 pass the trials
# as well.
IMPL_BYTES, META_BYTES = 184, 176

# Numbers of c10::ScalarType and c10::DeviceType: part of what saved files mean, hence stable.
DTYPES: dict[torch.dtype, int] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
}
DEVICES: dict[str, int] = {"cpu": 0, "cuda": 1, "meta": 14}
NO_INDEX = 0xFF
CLASSES: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)


def encode(cls: type, dtype: torch.dtype, device: torch.device) -> tuple[int, int] | None:
    """A dtype and a device as the two bytes each that a tensor holds; None: the fields of such
    tensors are not known here."""
    if cls not in CLASSES or dtype not in DTYPES or device.type not in DEVICES:
        return None
    index = NO_INDEX if device.index is None else device.index
    return DTYPES[dtype], DEVICES[device.type] | index << 8


@cache
def tensor_layout() -> TensorLayout | None:
    """The layout of the installed torch, looked for once. None: tensors are read through torch."""
    return in_plain_state(_find_and_try)


def _find_and_try() -> TensorLayout | None:
    try:
        layout = _find()
    except _Unknown:
        return None
    return layout if all(_agrees(layout, tensor) for tensor in _trials()) else None


class _Unknown(Exception):
    """No offset, or too many, explain the samples."""


def _find() -> TensorLayout:
    samples = list(_samples())
    impl = _only(
        offset
        for offset in range(16, torch.Tensor.__basicsize__, 8)
        if all(_word(id(t), offset) == implementation_address(t) for t in samples)
    )
    pages = [(t, read_bytes(implementation_address(t), IMPL_BYTES)) for t in samples]

    def place(step: int, explains: Callable[[torch.Tensor, bytes, int], bool]) -> int:
        offsets = range(0, IMPL_BYTES - 7, step)
        return _only(at for at in offsets if all(explains(*each, at) for each in pages))

    ndim = place(8, _dims_at)
    key_set = place(8, lambda t, page, at: _pointer(page, at) == dispatch_keys(t))
    dtype = place(2, lambda t, page, at: page[at] | page[at + 1] << 8 == DTYPES[t.dtype])
    on_device = {kind: bytes((number, NO_INDEX)) for kind, number in DEVICES.items()}
    device = place(1, lambda t, page, at: page[at : at + 2] == on_device[t.device.type])
    # null for these tensors exactly where they know nothing of autograd
    meta = place(8, lambda t, page, at: (_pointer(page, at) != 0) == t.requires_grad)
    requires_grad, grad_fn = _find_in_meta(meta)
    return TensorLayout(impl, key_set, dtype, device, ndim, ndim + 8, meta, requires_grad, grad_fn)


def _samples() -> Iterable[torch.Tensor]:
    """Tensors whose sizes, strides, dtypes and devices occur nowhere else in them."""
    yield torch.empty_strided((3, 5, 7), (1009, 101, 11))
    yield torch.empty_strided((2, 4, 6, 8), (2003, 503, 53, 5), dtype=torch.int16)
    yield torch.empty_strided((13,), (17,), dtype=torch.bool)
    yield torch.empty((), dtype=torch.complex128)
    yield torch.empty((1, 1, 1, 1, 1), dtype=torch.uint8)
    yield torch.empty((2, 0, 3), dtype=torch.int64)
    yield torch.empty((4, 9), dtype=torch.float64, requires_grad=True)
    yield torch.empty((4, 9), dtype=torch.float16, requires_grad=True) * 2
    yield torch.nn.Parameter(torch.empty(5, 2, dtype=torch.bfloat16))
    for dtype in DTYPES:
        yield torch.empty((2, 3), dtype=dtype)
        yield torch.empty((2, 3), dtype=dtype, device="meta")
    with torch.inference_mode():
        inference = torch.empty(3, 3, dtype=torch.float64)
    yield inference


def _trials() -> Iterable[torch.Tensor]:
    """Other tensors, to try the layout on: views, many dimensions, all states of autograd."""
    yield from _samples()
    base = torch.empty(2, 3, 4, 5, requires_grad=True)
    yield from (base, base[0], base.permute(3, 1, 0, 2), base.detach(), base.data, base * 2)
    yield from (base * 2).unbind(1)
    with_grad = torch.empty(3, requires_grad=True)
    (with_grad * 2).sum().backward()
    with_grad.register_hook(lambda grad: grad)
    yield with_grad
    yield (with_grad * 2).detach_()
    yield torch.empty(3, dtype=torch.float64).requires_grad_().split(1)[2]
    in_place = torch.empty(3, 3)
    yield in_place
    in_place.mul_(torch.empty(3, 3, requires_grad=True))
    yield in_place
    yield in_place.requires_grad_(True)
    flag = torch.empty(7)
    for state in (True, False, True):
        yield flag.requires_grad_(state)
    for ndim in range(12):
        yield torch.empty([2] * ndim)
        yield torch.empty(list(range(1, ndim + 1)), device="meta").transpose(0, -1)
    yield torch.empty(2, 3, dtype=torch.complex64).conj()
    yield torch.empty(1).expand(5, 6)
    yield torch.empty(6, 6).as_strided((2, 2), (3, 7), 4)
    yield torch.empty(2, 8, 4, 4).to(memory_format=torch.channels_last)
    yield torch.nn.Parameter(torch.empty(3, 2, dtype=torch.float16), requires_grad=False)


def _agrees(layout: TensorLayout, tensor: torch.Tensor) -> bool:
    fields = encode(type(tensor), tensor.dtype, tensor.device)
    return fields is not None and layout.read(tensor) == {
        "key_set": dispatch_keys(tensor),
        "dtype": fields[0],
        "device": fields[1],
        "sizes": tuple(tensor.shape),
        "strides": tuple(tensor.stride()),
        "requires_grad": tensor.requires_grad,
    }


def _dims_at(tensor: torch.Tensor, page: bytes, offset: int) -> bool:
    """The number of dimensions, five places for sizes, five for strides."""
    if offset + 88 > len(page):
        return False
    ndim, *dims = struct.unpack_from("<11q", page, offset)
    rank = tensor.dim()
    if ndim != rank:
        return False
    return tuple(dims[:rank]) == tuple(tensor.shape) and (
        tuple(dims[5 : 5 + rank]) == tuple(tensor.stride())
    )


def _find_in_meta(meta: int) -> tuple[int, int]:
    """Offsets of the flag and of the pointer to the graph, in the autograd part."""

    def page(tensor: torch.Tensor) -> bytes:
        return read_bytes(_word(implementation_address(tensor), meta), META_BYTES)

    leaf = torch.empty(3, requires_grad=True)
    flags = [page(leaf.requires_grad_(state)) for state in (True, False, True, False, True)]
    inner = leaf * 2
    leaves = [page(leaf), page(torch.empty(2, requires_grad=True)), flags[1]]
    inners = [page(inner), page(inner.sum()), page(inner[0])]
    flag = _only(
        offset
        for offset in range(META_BYTES)
        if [one[offset] for one in flags] == [1, 0, 1, 0, 1]
        and all(one[offset] == 0 for one in inners)
    )
    for offset in range(8, META_BYTES, 8):
        null = all(_pointer(one, offset) == 0 for one in leaves)
        if null and all(_pointer(one, offset) > 0xFFFF for one in inners):
            return flag, offset
    raise _Unknown


def _pointer(page: bytes, offset: int) -> int:
    value: int = struct.unpack_from("<Q", page, offset)[0]
    return value


def _word(address: int, offset: int) -> int:
    return _pointer(read_bytes(address + offset, 8), 0)


def _only(offsets: Iterable[int]) -> int:
    found: list[Any] = list(offsets)
    if len(found) != 1:
        raise _Unknown
    return int(found[0])
