"""Tensors as arrays and back, without losing strides or storage.

In: tensors. Out: arrays that see the whole storage through `.base`, so that `as_strided` works.
Invariant: NumPy has no bfloat16, and sums float16 carelessly: both are carried as float32 arrays
whose values are rounded to the dtype after every primitive.
"""
# ruff: noqa: ANN001, ANN201, ANN202

import numpy as np
import torch
from flambeau_prims import TensorMeta

HALF = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
}


def carrier(dtype):
    """The NumPy dtype that holds values of a torch dtype."""
    return torch.empty(0, dtype=HALF.get(dtype, dtype)).numpy().dtype


def strided(flat, shape, strides, offset=0):
    """A view of a 1-d array, strides and offset in elements."""
    if 0 in shape:
        return np.empty(shape, flat.dtype)
    steps, start = [s * flat.itemsize for s in strides], offset * flat.itemsize
    return np.ndarray(shape, flat.dtype, flat, start, steps)


def from_torch(tensor):
    """The array of a tensor: a view of its storage, in its strides."""
    tensor = tensor.resolve_conj().resolve_neg().detach()
    total = tensor.untyped_storage().nbytes() // tensor.itemsize
    flat = tensor.as_strided((total,), (1,), 0)
    flat = flat.to(HALF.get(tensor.dtype, tensor.dtype)).numpy()
    return strided(flat, tensor.shape, tensor.stride(), tensor.storage_offset())


def to_torch(x, dtype):
    """The tensor of an array, in its strides."""
    flat = root(x)
    strides = [s // x.itemsize if n > 1 else 1 for n, s in zip(x.shape, x.strides)]
    if not flat.flags.writeable:
        flat = flat.copy()
    return torch.from_numpy(flat).to(dtype).as_strided(x.shape, strides, begin(x))


def root(x):
    """The memory that `x` is a view of, as a 1-d array of its dtype."""
    owner = base = x
    while base is not None:  # NumPy's window views put an object of their own in between
        owner = base if isinstance(base, np.ndarray) else owner
        base = getattr(base, "base", None)
    return owner.ravel("K").view(x.dtype)


def begin(x):
    """Where in that memory `x` begins, in elements."""
    return (x.ctypes.data - root(x).ctypes.data) // x.itemsize if x.size else 0


def rounded(x, dtype):
    """Values rounded to a half-precision dtype, in its carrier."""
    if dtype in (torch.float16, torch.complex32):
        halves = x.reshape(-1).view(np.float32).astype(np.float16).astype(np.float32)
        return halves.view(x.dtype).reshape(x.shape)
    if dtype != torch.bfloat16:
        return x
    bits = x.view(np.uint32)
    even = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, even.view(np.float32))


def is_symbolic(val):
    """Whether a promised size is not a number."""
    vals = val if isinstance(val, (tuple, list)) else (val,)
    return any(not isinstance(n, int) for v in vals if v is not None for n in v.shape)


def promise_of(prim, node, args, kwargs):
    """What the shape rule says for arrays, where the graph was made for sizes it did not know."""

    def meta(source, x):
        if isinstance(x, np.ndarray):
            strides = tuple(s // x.itemsize for s in x.strides)
            return TensorMeta(x.shape, strides, source.meta["val"].dtype, torch.device("cpu"))
        return list(map(meta, source, x)) if isinstance(x, (list, tuple)) else x

    return prim.rule(*map(meta, node.args, args), **kwargs)


def stored(x, val):
    """A primitive's result in the dtype and strides that the graph promises, `val`."""
    if isinstance(val, (tuple, list)):
        return tuple(None if v is None else stored(p, v) for p, v in zip(x, val, strict=True))
    x = np.asarray(x)
    if val.dtype in HALF or x.dtype != carrier(val.dtype):
        x = rounded(x.astype(carrier(val.dtype), order="C"), val.dtype)
    if is_symbolic(val):  # as many as the elements say
        return np.array(x, order="C")
    strides = val.stride if isinstance(val, TensorMeta) else val.stride()
    same = all(n == 1 or s == t * x.itemsize for n, s, t in zip(x.shape, x.strides, strides))
    if same or not x.size:
        return x if x.size else strided(x.reshape(-1), x.shape, strides)
    reach = 1 + sum((n - 1) * s for n, s in zip(x.shape, strides))
    out = strided(np.empty(reach, x.dtype), x.shape, strides)
    out[...] = x
    return out


def wide(x):
    """An array in double precision, for sums."""
    return x.astype(np.result_type(x, np.float64)) if x.dtype.kind in "fc" else x
