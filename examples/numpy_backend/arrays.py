"""Tensors as arrays that see their whole storage, and back; half precision lives in float32."""
# ruff: noqa: ANN001, ANN201, ANN202

import numpy as np
import torch
from flambeau_prims import TensorMeta

F32 = torch.float32
HALF = {torch.float16: F32, torch.bfloat16: F32, torch.complex32: torch.complex64}


def carrier(dtype):
    """The NumPy dtype that holds values of a torch dtype."""
    return torch.empty(0, dtype=HALF.get(dtype, dtype)).numpy().dtype


def wide(x):
    """An array in double precision, for sums."""
    return x.astype(np.result_type(x, np.float64)) if x.dtype.kind in "fc" else x


def strided(flat, shape, strides, offset=0):
    """A view of a 1-d array, strides and offset in elements."""
    if 0 in shape:
        return np.empty(shape, flat.dtype)
    steps = [s * flat.itemsize for s in strides]
    return np.ndarray(shape, flat.dtype, flat, offset * flat.itemsize, steps)


def steps_of(x):
    """The strides in elements."""
    return tuple(s // x.itemsize for s in x.strides)


def root(x):
    """The memory that `x` is a view of, as a 1-d array of its dtype, and where `x` begins in it."""
    owner = base = x
    while base is not None:  # NumPy's window views put an object of their own in between
        owner = base if isinstance(base, np.ndarray) else owner
        base = getattr(base, "base", None)
    flat = owner.ravel("K").view(x.dtype)
    return flat, (x.ctypes.data - flat.ctypes.data) // x.itemsize if x.size else 0


def from_torch(tensor):
    """The array of a tensor: a view of its storage, in its strides."""
    tensor = tensor.resolve_conj().resolve_neg().detach()
    total = tensor.untyped_storage().nbytes() // tensor.itemsize
    flat = tensor.as_strided((total,), (1,), 0).to(HALF.get(tensor.dtype, tensor.dtype)).numpy()
    return strided(flat, tensor.shape, tensor.stride(), tensor.storage_offset())


def to_torch(x, dtype):
    """The tensor of an array, in its strides."""
    flat, begin = root(x)
    strides = [s if n > 1 else 1 for n, s in zip(x.shape, steps_of(x))]
    flat = torch.from_numpy(flat if flat.flags.writeable else flat.copy())
    return flat.to(dtype).as_strided(x.shape, strides, begin)


def is_symbolic(val):
    """Whether a promised size is not a number."""
    vals = val if isinstance(val, (tuple, list)) else (val,)
    return any(not isinstance(n, int) for v in vals if v is not None for n in v.shape)


def promise_of(prim, node, args, kwargs):
    """What the shape rule says for arrays, where the graph was made for sizes it did not know."""

    def meta(source, x):
        if isinstance(x, np.ndarray):
            return TensorMeta(x.shape, steps_of(x), source.meta["val"].dtype, torch.device("cpu"))
        return list(map(meta, source, x)) if isinstance(x, (list, tuple)) else x

    return prim.rule(*map(meta, node.args, args), **kwargs)


def stored(x, val):
    """A primitive's result in the dtype and strides that the graph promises, `val`."""
    if isinstance(val, (tuple, list)):
        return tuple(None if v is None else stored(p, v) for p, v in zip(x, val, strict=True))
    x = np.asarray(x)
    if val.dtype in HALF or x.dtype != carrier(val.dtype):
        x = x.astype(carrier(val.dtype), order="C")
    if val.dtype in HALF:
        x = torch.from_numpy(x).to(val.dtype).to(HALF[val.dtype]).numpy()
    if is_symbolic(val):  # as many as the elements say
        return np.array(x, order="C")
    strides = val.stride if isinstance(val, TensorMeta) else val.stride()
    if x.size and all(n == 1 or s == t for n, s, t in zip(x.shape, steps_of(x), strides)):
        return x
    out = np.empty(1 + sum((n - 1) * s for n, s in zip(x.shape, strides)) if x.size else 0, x.dtype)
    out = strided(out, x.shape, strides)
    out[...] = x
    return out
