"""Images sampled at computed places: adaptive and fractional pooling, grids, resizing."""

# ruff: noqa: ANN001, ANN002, ANN202
import itertools

import numpy as np

from numpy_backend.arrays import wide
from numpy_backend.library import _max_pool_backward


def _separable(x, matrices):
    """A matrix applied along each of the last dimensions."""
    for d, m in enumerate(matrices, x.ndim - len(matrices)):
        x = np.moveaxis(np.tensordot(wide(x), m, (d, 1)), -1, d)
    return x


def _windows(n, out):
    return [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]


def _averages(n, out):
    places = np.arange(n)
    rows = [((places >= a) & (places < b)) / (b - a) for a, b in _windows(n, out)]
    return np.array(rows).reshape(out, n)


def _adaptive_avg(x, output):
    return _separable(x, [_averages(n, m) for n, m in zip(x.shape[-len(output) :], output)])


def _adaptive_avg_backward(grad, x, spatial):
    sizes = zip(x.shape[-spatial:], grad.shape[-spatial:])
    return _separable(grad, [_averages(n, m).T for n, m in sizes])


def _largest(x, spatial, regions):
    """Value and position of the largest in each window; `regions(plane)` lists slices by output."""
    planes = x.reshape(-1, *x.shape[x.ndim - spatial :])
    numbers = np.arange(planes[0].size).reshape(planes.shape[1:])
    found = []
    for i, plane in enumerate(planes):
        for window in regions(i):
            part, at = plane[window].reshape(-1), numbers[window].reshape(-1)
            found.append((part[part.argmax()], at[part.argmax()]))
    return (np.array(parts) for parts in zip(*found))


def _adaptive_max(x, output):
    sizes = zip(x.shape[-len(output) :], output)
    regions = list(itertools.product(*([slice(*w) for w in _windows(n, m)] for n, m in sizes)))
    shape = (*x.shape[: -len(output)], *output)
    return (part.reshape(shape) for part in _largest(x, len(output), lambda i: regions))


def _fractional(x, kernel, output, samples):
    spatial, sizes = len(output), x.shape[-len(output) :]
    order = (1, 0) if spatial == 2 else (0, 1, 2)  # two dimensions take width first
    samples = samples.reshape(-1, spatial)

    def starts(n, k, out, sample):
        step = (n - k) / (out - 1) if out > 1 else 0
        return [int((i + sample) * step) - int(sample * step) for i in range(out - 1)] + [n - k]

    def regions(plane):
        each = zip(sizes, kernel, output, (samples[plane][d] for d in order))
        return itertools.product(
            *([slice(a, a + k) for a in starts(n, k, m, s)] for n, k, m, s in each)
        )

    shape = (*x.shape[:-spatial], *output)
    return (part.reshape(shape) for part in _largest(x, spatial, regions))


def _scatter_back(grad, x, at, spatial):
    return _max_pool_backward(grad, x, [1] * spatial, None, None, None, None, at)


def _reflected(x, n, align):
    """Coordinates folded back into the image, and the sign of the last fold."""
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if span == 0:
        return np.zeros_like(x), np.zeros_like(x)
    away = np.abs(x - low)
    turns, rest = np.floor(away / span), np.fmod(away, span)
    inside = np.where(turns % 2 == 0, rest, span - rest) + low
    return inside, np.where(turns % 2 == 0, 1.0, -1.0) * np.where(x < low, -1.0, 1.0)


def _clipped(x, n):
    return np.clip(x, 0, n - 1), ((x > 0) & (x < n - 1)).astype(float)


def _padded_place(x, n, padding, align):
    """A coordinate after padding, and its derivative."""
    if padding == 0:
        return x, np.ones_like(x)
    folded, slope = _reflected(x, n, align) if padding == 2 else (x, 1.0)
    inside, kept = _clipped(folded, n)
    return inside, slope * kept


def _keys(t):
    """Keys' cubic of parameter -3/4 and its derivative."""
    a, s = np.abs(t), np.sign(t)
    near, far = (1.25 * a - 2.25) * a * a + 1, ((-0.75 * a + 3.75) * a - 6) * a + 3
    slope = np.where(a <= 1, (3.75 * a - 4.5) * a, (-2.25 * a + 7.5) * a - 6)
    return np.where(a <= 1, near, np.where(a < 2, far, 0)), s * np.where(a < 2, slope, 0)


def _taps(x, n, mode, padding, align):
    """Along one dimension: the pixels that a place reads, their weights and derivatives."""
    x = wide(x)
    scale = (n - 1) / 2 if align else n / 2
    x = (x + 1) * scale if align else (x + 1) * scale - 0.5
    if mode == 2:
        base = np.floor(x)
        for k in (-1, 0, 1, 2):
            weight, slope = _keys(base + k - x)
            yield _padded_place(base + k, n, padding, align)[0], weight, -slope * scale
        return
    x, slope = _padded_place(x, n, padding, align)
    if mode == 1:
        yield np.rint(x), np.ones_like(x), np.zeros_like(x)
        return
    base = np.floor(x)
    yield base, 1 - (x - base), -slope * scale
    yield base + 1, x - base, slope * scale


def _corners(x, grid, mode, padding, align):
    """For each pixel that places read: where it is, its weight, and the weight's gradient."""
    sizes, spatial = x.shape[2:], x.ndim - 2
    taps = [
        list(_taps(grid[..., spatial - 1 - d], n, mode, padding, align))
        for d, n in enumerate(sizes)
    ]
    batch = np.arange(len(x)).reshape(-1, *[1] * spatial)
    for chosen in itertools.product(*taps):
        inside = np.all([(i >= 0) & (i < n) for (i, _, _), n in zip(chosen, sizes)], 0)
        where = [np.clip(i, 0, n - 1).astype(int) for (i, _, _), n in zip(chosen, sizes)]
        weights = [w for _, w, _ in chosen]
        slopes = [
            np.prod([s if e == d else w for e, (_, w, s) in enumerate(chosen)], 0) * inside
            for d in range(spatial)
        ]
        yield (batch, slice(None), *where), np.prod(weights, 0) * inside, slopes[::-1]


def _grid_sample(x, grid, *modes):
    total = 0.0
    for where, weight, _ in _corners(x, grid, *modes):
        total = total + wide(x)[where] * weight[..., None]  # channels come last here
    return np.moveaxis(total, -1, 1)


def _grid_sample_backward(grad, x, grid, mode, padding, align, mask):
    grad = np.moveaxis(wide(grad), 1, -1)
    dx, dgrid = np.zeros(x.shape), np.zeros(grid.shape)
    for where, weight, slopes in _corners(x, grid, mode, padding, align):
        np.add.at(dx, where, grad * weight[..., None])
        part = (grad * wide(x)[where]).sum(-1)
        dgrid += np.stack([part * s for s in slopes], -1)
    return dx if mask[0] else None, dgrid


def _lanczos(t):
    return np.where(np.abs(t) < 3, np.sinc(t) * np.sinc(t / 3), 0)


def _cubic(t):
    a = np.abs(t)
    near, far = (1.5 * a - 2.5) * a * a + 1, ((-0.5 * a + 2.5) * a - 4) * a + 2
    return np.where(a < 1, near, np.where(a < 2, far, 0))


_FILTERS = [(1, lambda t: np.maximum(0, 1 - np.abs(t))), (2, _cubic), (3, _lanczos)]


def _filter_matrix(n, out, align, scale, kind):
    reach, shape = _FILTERS[kind]
    if align:
        step = (n - 1) / (out - 1) if out > 1 else 0.0
    else:
        step = 1 / scale if scale else n / out
    stretch, rows = max(step, 1.0), np.zeros((out, n))
    for i in range(out):
        centre = step * (i + 0.5)
        low = max(int(centre - reach * stretch + 0.5), 0)
        high = min(int(centre + reach * stretch + 0.5), n)
        weights = shape((np.arange(low, high) - centre + 0.5) / stretch)
        rows[i, low:high] = weights / weights.sum() if weights.sum() else weights
    return rows


def _matrices(sizes, output, align, scales, kind):
    each = zip(sizes, output, scales or (None, None))
    return [_filter_matrix(n, m, align, s, kind) for n, m, s in each]


def _resize_backward(grad, size, align, scales, kind):
    return _separable(grad, [m.T for m in _matrices(size[2:], grad.shape[2:], align, scales, kind)])


FUNCTIONS = {
    "adaptive_avg_pool": _adaptive_avg,
    "adaptive_avg_pool_backward": _adaptive_avg_backward,
    "adaptive_max_pool": _adaptive_max,
    "adaptive_max_pool_backward": _scatter_back,
    "fractional_max_pool": _fractional,
    "fractional_max_pool_backward": lambda g, x, k, out, at: _scatter_back(g, x, at, len(k)),
    "grid_sample": _grid_sample,
    "grid_sample_backward": _grid_sample_backward,
    "resize_antialias": lambda x, out, *how: _separable(x, _matrices(x.shape[2:], out, *how)),
    "resize_antialias_backward": _resize_backward,
}
