"""Shapes, copies, creation, random numbers, and reading and writing by positions."""
# ruff: noqa: ANN001, ANN002, ANN201, ANN202

import math

import numpy as np
import torch
from flambeau_prims import PRIMS

from numpy_backend.arrays import root, steps_of, strided


def _region(x, start, stop, step):
    return x[tuple(map(slice, start, stop, step))]


def diagonal(x, *where):
    out = np.diagonal(x, *where)
    out.flags.writeable = x.flags.writeable
    return out


def _replaced(view):
    """A copy of the operand in which what `view` shows is something else."""

    def scatter(x, src, *where):
        out = np.array(x)
        view(out, *where)[...] = src
        return out

    return scatter


def _scatter(combine):
    def scatter(x, dim, index, src):
        out, index = np.atleast_1d(np.array(x)), np.atleast_1d(index)
        where = list(np.indices(index.shape, sparse=True))
        where[dim] = index
        src = np.atleast_1d(src)[tuple(map(slice, index.shape))]
        combine(out, tuple(where), src)
        return out.reshape(x.shape)

    return scatter


def gather(x, dim, index):
    where = list(np.indices(index.shape, sparse=True))
    where[dim : dim + 1] = [index]
    return x[tuple(where)] if x.ndim else np.broadcast_to(x, index.shape)


def bounds_checked(index, size, error, message):
    outside = index[(index < 0) | (index >= size)]
    if outside.size:
        text = message.replace("{index}", str(outside[0])).replace("{size}", str(size))
        raise {"IndexError": IndexError, "RuntimeError": RuntimeError}[error](text)
    return index


def _places(indices):
    return tuple(slice(None) if i is None else i for i in indices)


def index_put(x, indices, values, accumulate):
    out = np.array(x)
    (np.add.at if accumulate else np.ndarray.__setitem__)(out, _places(indices), values)
    return out


def _lanes(shape, seed, first, keep=32):
    """Philox4x32-10: four lanes a block, the upper `keep` bits of each."""
    low, half, count = np.uint64(0xFFFFFFFF), np.uint64(32), -(-math.prod(shape) // 4)
    block, key = np.arange(count, dtype=np.uint64) + np.uint64(first), int(seed) % 2**64
    c = [block & low, block >> half, np.zeros_like(block), np.zeros_like(block)]
    for i in range(10):
        k0, k1 = ((key & 0xFFFFFFFF) + i * 0x9E3779B9), ((key >> 32) + i * 0xBB67AE85)
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        left, right = (q >> half) ^ c[1], (p >> half) ^ c[3]
        c = [left ^ np.uint64(k0 % 2**32), q & low, right ^ np.uint64(k1 % 2**32), p & low]
    return np.stack(c, 1).reshape(-1) >> np.uint64(32 - keep)


def philox_uniform(shape, seed, offset, *, dtype, device):
    keep = min(32, torch.finfo(dtype).bits * 2, 1 - int(math.log2(torch.finfo(dtype).eps)))
    return (_lanes(shape, seed, offset, keep)[: math.prod(shape)] * 2.0**-keep).reshape(shape)


def philox_normal(shape, seed, offset, *, dtype, device):
    keep = 32 if dtype == torch.float64 else 24
    radius, angle = _lanes(shape, seed, offset, keep).reshape(-1, 2).T * 2.0**-keep
    point = np.sqrt(-2 * np.log(radius + 2.0**-keep)) * np.exp(2j * np.pi * angle)
    return point.view(np.float64)[: math.prod(shape)].reshape(shape)


def philox_bits(shape, seed, offset, *, dtype, device):
    if dtype == torch.int32:
        return _lanes(shape, seed, offset)[: math.prod(shape)].reshape(shape)
    low, high = _lanes((*shape, 2), seed, offset)[: 2 * math.prod(shape)].reshape(-1, 2).T
    return (low | (high << np.uint64(32))).view(np.int64).reshape(shape)


def assert_true(condition, message):
    if not condition:
        raise RuntimeError(message)
    return ()


def check_factorization(info, name, is_matrix):
    failed = np.flatnonzero(info)
    if failed.size:
        where = "" if is_matrix else f"(Batch element {failed[0]}): "
        raise torch.linalg.LinAlgError(f"{name}: {where}{info.reshape(-1)[failed[0]]}")
    return ()


def _unique_runs(x, axis=None):
    x = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    rows = x.reshape(len(x), x.size // max(1, len(x)))
    new = np.append(True, (rows[1:] != rows[:-1]).any(1))[: len(x)]
    starts = np.flatnonzero(new)
    values = x[starts] if axis is None else np.moveaxis(x[starts], 0, axis)
    return values, np.cumsum(new) - 1, np.diff(np.append(starts, len(x)))


def _unique(x, axis=None, consecutive=False):
    if consecutive:
        values, at, counts = _unique_runs(x, axis)
    else:
        how = {"return_inverse": True, "return_counts": True, "equal_nan": False}
        values, at, counts = np.unique(x, axis=axis, **how)
    return values, at.reshape(x.shape) if axis is None else at, counts


def pivots_to_permutation(pivots, n):
    rows = np.tile(np.arange(n), (*pivots.shape[:-1], 1))
    for row, own in zip(rows.reshape(-1, max(n, 1)), pivots.reshape(-1, max(pivots.shape[-1], 1))):
        for i, j in enumerate(own - 1):
            row[[i, j]] = row[[j, i]]
    return rows


def broadcast_in_dim(x, shape, dims):
    new = [d for d in range(len(shape)) if d not in dims]
    return np.broadcast_to(np.expand_dims(x, new), shape)


def full(shape, value, *, dtype, device):
    return np.full(shape, value, None if dtype.is_complex or dtype.is_floating_point else np.int64)


def pad(x, low, high, value):
    out = np.full([a + n + b for a, n, b in zip(low, x.shape, high)], value, x.dtype)
    out[tuple(slice(a, a + n) for a, n in zip(low, x.shape))] = x
    return out


def unfold(x, dim, size, step):
    windows = np.lib.stride_tricks.sliding_window_view(x, size, dim)
    return windows[(slice(None),) * dim + (slice(None, None, step),)]


def as_strided_scatter(x, src, size, stride, start):
    flat, begin = root(x)
    flat = flat.copy()
    strided(flat, size, stride, start)[...] = src
    return strided(flat, x.shape, steps_of(x), begin)


def iota(length, start, step, *, dtype, device):
    kind = float if dtype.is_floating_point else int
    return kind(start) + np.arange(length, dtype=kind) * kind(step)


FUNCTIONS = {
    **{name: f for name, f in globals().items() if name in PRIMS},
    "reshape": lambda x, shape, *, stride=None: np.reshape(x, shape),
    "permute": np.transpose,
    "slice": _region,
    "slice_scatter": _replaced(_region),
    "cat": np.concatenate,
    "flip": lambda x, dims: np.flip(x, tuple(dims)),
    "clone": lambda x, *, order=None: np.array(x),
    "device_put": lambda x, *, device: np.array(x),
    "copy_": None,  # in `run`, which has the caller's tensors
    "as_strided": lambda x, size, stride, start: strided(root(x)[0], size, stride, start),
    "restride": lambda x, size, stride: strided(root(x)[0], size, stride, root(x)[1]),
    "diagonal_scatter": _replaced(diagonal),
    "seed": lambda *, device: torch.randint(2**63 - 1, ()).numpy(),  # torch's generator's state
    "index_select": lambda x, dim, index: np.take(x, index, dim),
    "index": lambda x, indices: x[_places(indices)],
    "scatter": _scatter(np.ndarray.__setitem__),
    "scatter_add": _scatter(np.add.at),
    "scatter_prod": _scatter(np.multiply.at),
    "scatter_amax": _scatter(np.maximum.at),
    "scatter_amin": _scatter(np.minimum.at),
    "nonzero": np.argwhere,
    "masked_select": lambda x, mask: x[mask],
    "unique": _unique,
    "unique_consecutive": lambda x: _unique(x, None, True),
    "unique_dim": _unique,
    "bincount": np.bincount,
    "repeat_interleave": lambda repeats: np.repeat(np.arange(len(repeats)), repeats),
}
