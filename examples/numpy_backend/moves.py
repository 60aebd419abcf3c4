"""Shapes, copies, creation, random numbers, and reading and writing by positions."""
# ruff: noqa: ANN001, ANN002, ANN202

import itertools
import math

import numpy as np
import torch

from numpy_backend.arrays import begin, root, strided


def _region(start, stop, step):
    return tuple(map(slice, start, stop, step))


def _broadcast(x, shape, dims):
    new = [d for d in range(len(shape)) if d not in dims]
    return np.broadcast_to(np.expand_dims(x, new), shape)


def _replaced(view):
    """A copy of the operand in which what `view` shows is something else."""

    def scatter(x, src, *where):
        out = np.array(x)
        view(out, *where)[...] = src
        return out

    return scatter


def _diagonal(x, offset, dim1, dim2):
    out = np.diagonal(x, offset, dim1, dim2)
    out.flags.writeable = x.flags.writeable
    return out


def _as_strided_scatter(x, src, size, stride, start):
    flat, at = root(x).copy(), begin(x)
    strided(flat, size, stride, start)[...] = src
    return strided(flat, x.shape, [s // x.itemsize for s in x.strides], at)


def _pad(x, low, high, value):
    out = np.full([a + n + b for a, n, b in zip(low, x.shape, high)], value, x.dtype)
    out[tuple(slice(a, a + n) for a, n in zip(low, x.shape))] = x
    return out


def _unfold(x, dim, size, step):
    windows = np.lib.stride_tricks.sliding_window_view(x, size, dim)
    return windows[(slice(None),) * dim + (slice(None, None, step),)]


def _iota(length, start, step, *, dtype, device):
    if dtype.is_floating_point:
        return start + np.arange(length, dtype=np.float64) * step
    return int(start) + np.arange(length, dtype=np.int64) * int(step)


def _full(shape, value, *, dtype, device):
    return np.full(shape, value, None if dtype.is_complex or dtype.is_floating_point else np.int64)


def _along(x, dim, index):
    """Index arrays that name, for each element of `index`, a place in `x`."""
    where = list(np.indices(index.shape, sparse=True))
    where[dim] = index
    return tuple(where)


def _scatter(combine):
    def scatter(x, dim, index, src):
        out, src = np.array(x), src[tuple(map(slice, index.shape))]
        if index.size and x.ndim == 0:
            out, index, src = out.reshape(1), index.reshape(1), src.reshape(1)
        if index.size:
            combine(out, _along(out, dim, index), src)
        return out.reshape(x.shape)

    return scatter


def _gather(x, dim, index):
    return x[_along(x, dim, index)] if x.ndim else np.broadcast_to(x, index.shape)


def _places(indices):
    return tuple(slice(None) if i is None else i for i in indices)


def _index_put(x, indices, values, accumulate):
    out = np.array(x)
    if accumulate:
        np.add.at(out, _places(indices), values)
    else:
        out[_places(indices)] = values
    return out


def _philox(seed, first, count):
    """Philox4x32-10: blocks first .. first + count - 1, four 32-bit lanes each."""
    low = np.uint64(0xFFFFFFFF)
    block = np.arange(count, dtype=np.uint64) + np.uint64(first)
    c = [block & low, block >> np.uint64(32), np.zeros_like(block), np.zeros_like(block)]
    key = int(seed) % 2**64
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(q >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), q & low,
             (p >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p & low]  # fmt: skip
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, 1)


_BITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 32}


def _uniform(shape, seed, offset, *, dtype, device):
    total, keep = math.prod(shape), _BITS[dtype]
    lanes = _philox(seed, offset, -(-total // 4)).reshape(-1)[:total]
    return ((lanes >> np.uint64(32 - keep)) * 2.0**-keep).reshape(shape)


def _normal(shape, seed, offset, *, dtype, device):
    total, keep = math.prod(shape), 32 if dtype == torch.float64 else 24
    pairs = _philox(seed, offset, -(-total // 4)).reshape(-1, 2, 2) >> np.uint64(32 - keep)
    radius = np.sqrt(-2 * np.log((pairs[..., 0] + 1.0) * 2.0**-keep))
    angle = pairs[..., 1] * (2.0**-keep * 2 * np.pi)
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    return both.reshape(-1)[:total].reshape(shape)


def _bits(shape, seed, offset, *, dtype, device):
    total = math.prod(shape)
    if dtype == torch.int32:
        return _philox(seed, offset, -(-total // 4)).reshape(-1)[:total].reshape(shape)
    pairs = _philox(seed, offset, -(-total // 2)).reshape(-1, 2)[:total]
    return (pairs[:, 0] | (pairs[:, 1] << np.uint64(32))).view(np.int64).reshape(shape)


def _assert_true(condition, message):
    if not condition:
        raise RuntimeError(message)
    return ()


def _unique_runs(x, axis=None):
    x = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    rows = x.reshape(len(x), x.size // max(1, len(x)))
    starts = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(1))[: len(x)])
    lengths = np.diff(np.append(starts, len(x)))
    return x[starts], np.repeat(np.arange(len(starts)), lengths), lengths


def _unique_dim(x, dim, consecutive):
    if consecutive:
        values, where, counts = _unique_runs(x, dim)
        return np.moveaxis(values, 0, dim), where, counts
    return np.unique(x, return_inverse=True, return_counts=True, axis=dim, equal_nan=False)


def _unique(x):
    values, at, counts = np.unique(x, return_inverse=True, return_counts=True, equal_nan=False)
    return values, at.reshape(x.shape), counts


def _permutation(pivots, n):
    rows = np.tile(np.arange(n), (*pivots.shape[:-1], 1))
    for batch in itertools.product(*map(range, pivots.shape[:-1])):
        for i, j in enumerate(pivots[batch] - 1):
            rows[batch][[i, j]] = rows[batch][[j, i]]
    return rows


FUNCTIONS = {
    "broadcast_in_dim": _broadcast,
    "reshape": np.reshape,
    "permute": np.transpose,
    "slice": lambda x, *part: x[_region(*part)],
    "slice_scatter": _replaced(lambda x, *part: x[_region(*part)]),
    "cat": np.concatenate,
    "pad": _pad,
    "flip": lambda x, dims: np.flip(x, tuple(dims)),
    "clone": lambda x, *, order=None: np.array(x),
    "device_put": lambda x, *, device: np.array(x),
    "copy_": None,  # in `run`, which has the caller's tensors
    "as_strided": lambda x, size, stride, start: strided(root(x), size, stride, start),
    "restride": lambda x, size, stride: strided(root(x), size, stride, begin(x)),
    "as_strided_scatter": _as_strided_scatter,
    "diagonal": _diagonal,
    "diagonal_scatter": _replaced(_diagonal),
    "unfold": _unfold,
    "full": _full,
    "iota": _iota,
    "seed": lambda *, device: torch.randint(
        2**63 - 1, ()
    ).numpy(),  # torch's generator is its state
    "philox_uniform": _uniform,
    "philox_normal": _normal,
    "philox_bits": _bits,
    "assert_true": _assert_true,
    "gather": _gather,
    "index_select": lambda x, dim, index: np.take(x, index, dim),
    "index": lambda x, indices: x[_places(indices)],
    "index_put": _index_put,
    "scatter": _scatter(lambda x, where, src: x.__setitem__(where, src)),
    "scatter_add": _scatter(np.add.at),
    "scatter_prod": _scatter(np.multiply.at),
    "scatter_amax": _scatter(np.maximum.at),
    "scatter_amin": _scatter(np.minimum.at),
    "nonzero": np.argwhere,
    "masked_select": lambda x, mask: x[mask],
    "unique": _unique,
    "unique_consecutive": lambda x: (lambda v, w, c: (v, w.reshape(x.shape), c))(*_unique_runs(x)),
    "unique_dim": _unique_dim,
    "bincount": lambda x, weights, least: np.bincount(x, weights, least),
    "repeat_interleave": lambda repeats: np.repeat(np.arange(len(repeats)), repeats),
    "pivots_to_permutation": _permutation,
}
