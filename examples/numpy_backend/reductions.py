"""Reductions, scans, sorting and counting; sums are formed in double precision."""
# ruff: noqa: ANN001, ANN202

import numpy as np

from numpy_backend.arrays import wide


def _var_mean(x, dims, *, correction):
    x, axis = wide(x), tuple(dims)
    mean = x.mean(axis, keepdims=True)
    count = np.prod([x.shape[d] for d in dims])
    squares = (np.abs(x - mean) ** 2).sum(axis)
    return squares / max(0.0, count - correction), mean.reshape(squares.shape)


def _running(ufunc):
    """The extreme so far, and the last position that has it; NaN wins."""

    def scan(x, dim):
        values = ufunc.accumulate(x, dim)
        at = np.arange(x.shape[dim]).reshape([-1 if d == dim else 1 for d in range(x.ndim)])
        new = (x == values) | (x != x)
        return values, np.maximum.accumulate(np.where(new, at, 0), dim)

    return scan


def _logcumsumexp(x, dim):
    top = x.real.max(dim, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    if x.dtype.kind == "c":
        return np.log(np.cumsum(np.exp(x - top), dim)) + top
    return np.logaddexp.accumulate(wide(x), dim)


def _order(x, dim, descending):
    """Positions in order along `dim`, equal ones as they come; NaN is the largest."""
    if not descending:
        return np.argsort(x, dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), dim, kind="stable"), dim)


def _taken(x, dim, at):
    return np.take_along_axis(x, at, dim), at


def _selected(x, dim, rank):
    """Value and position of the element at `rank(sorted row)` of each row."""
    order = np.moveaxis(_order(x, dim, False), dim, -1)
    rows = np.take_along_axis(np.moveaxis(x, dim, -1), order, -1)
    at = rank(rows)[..., None]
    return (np.take_along_axis(part, at, -1)[..., 0] for part in (rows, order))


def _median(rows):
    last = rows.shape[-1] - 1
    return np.where(rows[..., -1] != rows[..., -1], last, last // 2)


def _nanmedian(rows):
    return np.maximum((rows == rows).sum(-1) - 1, 0) // 2


def _mode(rows):
    """The last of the longest run of equal elements, the first such run."""
    counts = (rows[..., :, None] == rows[..., None, :]).sum(-1)
    best = (counts == counts.max(-1, keepdims=True)) & (np.cumsum(counts, -1) > 0)
    first = best.argmax(-1)
    return first + np.maximum(np.take_along_axis(counts, first[..., None], -1)[..., 0] - 1, 0)


def _searchsorted(edges, values, right):
    a, v = edges[..., None, :], values[..., None] if values.ndim else values[None, None]
    less = (v < a) | (a != a) & (v == v) if right else (a < v) | (v != v) & (a == a)
    return (~less if right else less).sum(-1).reshape(values.shape)


def _histc(x, bins, low, high):
    low, high = (low - 1, high + 1) if low == high else (low, high)
    inside = x[(x >= low) & (x <= high)].astype(np.float64)
    at = ((inside - low) * bins / (np.float64(high) - low)).astype(np.int64)
    return np.bincount(np.minimum(at, bins - 1), minlength=bins)


def _topk(x, k, dim, largest, sorted):
    return _taken(x, dim, np.take(_order(x, dim, largest), range(k), dim))


FUNCTIONS = {
    "sum": lambda x, dims: np.sum(wide(x), tuple(dims)),
    "prod": lambda x, dims: np.prod(wide(x), tuple(dims)),
    "amax": lambda x, dims: np.max(x, tuple(dims)),
    "amin": lambda x, dims: np.min(x, tuple(dims)),
    "any": lambda x, dims: np.any(x, tuple(dims)),
    "all": lambda x, dims: np.all(x, tuple(dims)),
    "argmax": np.argmax,
    "argmin": np.argmin,
    "var_mean": _var_mean,
    "cumsum": lambda x, dim: np.cumsum(wide(x), dim),
    "cumprod": lambda x, dim: np.cumprod(wide(x), dim),
    "cummax": _running(np.maximum),
    "cummin": _running(np.minimum),
    "logcumsumexp": _logcumsumexp,
    "sort": lambda x, dim, descending, stable: _taken(x, dim, _order(x, dim, descending)),
    "topk": _topk,
    "kthvalue": lambda x, k, dim: _selected(x, dim, lambda rows: np.full(rows.shape[:-1], k - 1)),
    "median": lambda x, dim: _selected(x, dim, _median),
    "nanmedian": lambda x, dim: _selected(x, dim, _nanmedian),
    "mode": lambda x, dim: _selected(x, dim, _mode),
    "searchsorted": _searchsorted,
    "histc": _histc,
}
