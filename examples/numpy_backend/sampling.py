"""Images sampled at computed places; a function here bears its primitive's name."""
# ruff: noqa: ANN001, ANN002, ANN201, ANN202

import itertools

import numpy as np
from flambeau_prims import PRIMS

from numpy_backend.arrays import wide
from numpy_backend.windows import largest


def _starts(n, k, out, sample):
    step = (n - k) / (out - 1) if out > 1 else 0
    return [int((i + sample) * step) - int(sample * step) for i in range(out - 1)] + [n - k]


def fractional_max_pool(x, kernel, output, samples):
    spatial, sizes = len(output), x.shape[-len(output) :]
    order = (1, 0) if spatial == 2 else (0, 1, 2)  # two dimensions take width first
    found = []
    for plane, sample in zip(x.reshape(-1, *sizes), samples.reshape(-1, spatial)):
        each = zip(sizes, kernel, output, sample[list(order)])
        places = [np.array(_starts(*one))[:, None] + np.arange(one[1]) for one in each]
        found.append(largest(plane, places, output))
    return [np.reshape(parts, (*x.shape[:-spatial], *output)) for parts in zip(*found)]


def _padded_place(x, n, padding, align):
    """A coordinate after padding - none, the border, reflected - and its derivative."""
    if padding == 0:
        return x, np.ones_like(x)
    slope, low, span = 1.0, *((0.0, n - 1.0) if align else (-0.5, float(n)))
    if padding == 2 and span == 0:
        return np.zeros_like(x), np.zeros_like(x)
    if padding == 2:
        away = np.fmod(np.abs(x - low), 2 * span)
        slope = np.where(away < span, 1, -1) * np.where(x < low, -1, 1)
        x = np.where(away < span, away, 2 * span - away) + low
    return np.clip(x, 0, n - 1), slope * ((x > 0) & (x < n - 1))


def _cubic(t, a):
    """Keys' cubic of parameter `a`, and its derivative."""
    s, t = np.sign(t), np.abs(t)
    near, far = ((a + 2) * t - a - 3) * t * t + 1, ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    slopes = (3 * (a + 2) * t - 2 * (a + 3)) * t, (3 * a * t - 10 * a) * t + 8 * a
    inner, outer = t <= 1, t < 2
    return np.where(inner, near, outer * far), s * np.where(inner, slopes[0], outer * slopes[1])


def _taps(x, n, mode, padding, align):
    """Along one dimension: the pixels that a place reads, their weights and derivatives."""
    scale = (n - 1) / 2 if align else n / 2
    x = (wide(x) + 1) * scale - (0 if align else 0.5)
    if mode == 2:
        base = np.floor(x)
        for k in (-1, 0, 1, 2):
            weight, slope = _cubic(base + k - x, -0.75)
            yield _padded_place(base + k, n, padding, align)[0], weight, -slope * scale
        return
    x, slope = _padded_place(x, n, padding, align)
    base = np.rint(x) if mode == 1 else np.floor(x)
    yield (base, x * 0 + 1, x * 0) if mode == 1 else (base, 1 - (x - base), -slope * scale)
    if mode == 0:
        yield base + 1, x - base, slope * scale


def _corners(x, grid, *how):
    """For each pixel that places read: where it is, its weight, and the weight's gradient."""
    sizes, places = x.shape[2:], np.moveaxis(grid, -1, 0)[::-1]
    batch = np.arange(len(x)).reshape(-1, *[1] * len(sizes))
    for chosen in itertools.product(*(_taps(c, n, *how) for c, n in zip(places, sizes))):
        inside = np.all([(i >= 0) & (i < n) for (i, _, _), n in zip(chosen, sizes)], 0)
        where = [np.clip(i, 0, n - 1).astype(int) for (i, _, _), n in zip(chosen, sizes)]
        mixed = [[t[1 + (e == d)] for e, t in enumerate(chosen)] for d in range(-1, len(sizes))]
        weight, *slopes = [np.prod(parts, 0) * inside for parts in mixed]
        yield (batch, slice(None), *where), weight[..., None], np.stack(slopes[::-1], -1)


def grid_sample(x, grid, *how):
    parts = [wide(x)[where] * weight for where, weight, _ in _corners(x, grid, *how)]
    return np.moveaxis(sum(parts), -1, 1)  # channels came last


def grid_sample_backward(grad, x, grid, mode, padding, align, mask):
    grad, dx, dgrid = np.moveaxis(wide(grad), 1, -1), np.zeros(x.shape), np.zeros(grid.shape)
    for where, weight, slopes in _corners(x, grid, mode, padding, align):
        np.add.at(dx, where, grad * weight)
        dgrid += (grad * wide(x)[where]).sum(-1)[..., None] * slopes
    return dx if mask[0] else None, dgrid


FILTERS = [
    (1, lambda t: np.maximum(0, 1 - np.abs(t))),
    (2, lambda t: _cubic(t, -0.5)[0]),
    (3, lambda t: np.sinc(t) * np.sinc(t / 3)),
]


def _filter_matrix(n, out, align, scale, kind):
    reach, shape = FILTERS[kind]
    step = (n - 1) / max(out - 1, 1) * (out > 1) if align else 1 / scale if scale else n / out
    stretch, centre, places = max(step, 1.0), step * (np.arange(out)[:, None] + 0.5), np.arange(n)
    low, high = (np.trunc(centre + s * reach * stretch + 0.5) for s in (-1, 1))
    rows = shape((places - centre + 0.5) / stretch) * ((places >= low) & (places < high))
    total = rows.sum(1, keepdims=True)
    return rows / np.where(total == 0, 1, total)


def _separable(x, matrices):
    """A matrix applied along each of the last dimensions."""
    for d, m in enumerate(matrices, x.ndim - len(matrices)):
        x = np.moveaxis(np.tensordot(wide(x), m, (d, 1)), -1, d)
    return x


def _matrices(sizes, output, align, scales, kind):
    each = zip(sizes, output, scales or (None, None))
    return [_filter_matrix(n, m, align, s, kind) for n, m, s in each]


def resize_antialias(x, output, *how):
    return _separable(x, _matrices(x.shape[2:], output, *how))


def resize_antialias_backward(grad, size, *how):
    return _separable(grad, [m.T for m in _matrices(size[2:], grad.shape[2:], *how)])


FUNCTIONS = {name: f for name, f in globals().items() if name in PRIMS}
