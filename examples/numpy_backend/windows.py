"""Convolution and pooling: one helper names the elements that windows see, one scatters back."""
# ruff: noqa: ANN001, ANN002, ANN201, ANN202

import numpy as np
from flambeau_prims import PRIMS

from numpy_backend.arrays import wide


def _grid(parts, combine):
    """One array of (outputs, places) from one of (output, place) for each dimension."""
    whole = np.array([[combine.identity]])
    for part in parts:
        pairs = combine(whole[:, None, :, None], np.asarray(part)[None, :, None, :])
        whole = pairs.reshape(len(whole) * len(part), -1)
    return whole


def _elements(sizes, places):
    """Flat positions that windows see, and whether each is inside the image."""
    steps = [int(np.prod(sizes[d + 1 :])) for d in range(len(sizes))]
    inside = _grid([(p >= 0) & (p < n) for p, n in zip(places, sizes)], np.logical_and)
    at = [np.clip(p, 0, max(n - 1, 0)) * s for p, n, s in zip(places, sizes, steps)]
    return _grid(at, np.add), inside.astype(bool)


def _regular(out, kernel, stride, padding, dilation):
    each = zip(out, kernel, stride, padding, dilation)
    return [np.arange(o)[:, None] * s - p + np.arange(k) * d for o, k, s, p, d in each]


def _planes(x, spatial):
    return wide(x).reshape(int(np.prod(x.shape[: x.ndim - spatial])), -1)


def _columns(x, at, inside, spatial, outside=0.0):
    return np.where(inside, _planes(x, spatial)[:, at], outside)


def _back(columns, at, inside, x_shape, spatial):
    """The transpose of `_columns`: each element of a window added where it came from."""
    lead = int(np.prod(x_shape[: len(x_shape) - spatial]))
    out = np.zeros((lead, int(np.prod(x_shape[len(x_shape) - spatial :]))), columns.dtype)
    columns = np.broadcast_to(columns.reshape(lead, len(at), -1), (lead, *at.shape))
    np.add.at(out, (np.arange(lead)[:, None], at[inside]), columns[:, inside])
    return out.reshape(x_shape)


def _conv_parts(x_shape, y_shape, w, stride, padding, dilation, groups):
    """Elements of the windows, the shape of the columns, and the weight group by group."""
    at, inside = _elements(
        x_shape[2:], _regular(y_shape[2:], w.shape[2:], stride, padding, dilation)
    )
    shape = (x_shape[0], groups, x_shape[1] // groups, *at.shape)
    return at, inside, shape, wide(w).reshape(groups, -1, shape[2], at.shape[1])


def _correlate(x, w, y_shape, *geometry):
    at, inside, shape, w = _conv_parts(x.shape, y_shape, w, *geometry)
    columns = _columns(x, at, inside, x.ndim - 2).reshape(shape)
    return np.einsum("ngcpk,gock->ngop", columns, w, optimize=True).reshape(y_shape)


def _spread(y, w, x_shape, *geometry):
    at, inside, shape, w = _conv_parts(x_shape, y.shape, w, *geometry)
    y = wide(y).reshape(shape[0], shape[1], -1, len(at))
    columns = np.einsum("ngop,gock->ngcpk", y, w, optimize=True)
    return _back(columns, at, inside, x_shape, len(x_shape) - 2)


def _weight_gradient(x, y, w, *geometry):
    at, inside, shape, _ = _conv_parts(x.shape, y.shape, w, *geometry)
    columns, y = _columns(x, at, inside, x.ndim - 2), wide(y).reshape(*shape[:2], -1, len(at))
    return np.einsum("ngcpk,ngop->gock", columns.reshape(shape), y).reshape(w.shape)


def convolution(x, w, bias, stride, padding, dilation, transposed, extra, groups):
    each = zip(x.shape[2:], w.shape[2:], stride, padding, dilation, extra)
    if transposed:
        out = [(n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in each]
        y_shape, compute = (len(x), w.shape[1] * groups, *out), _spread
    else:
        out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d, _ in each]
        y_shape, compute = (len(x), len(w), *out), _correlate
    result = compute(x, w, y_shape, stride, padding, dilation, groups)
    return result if bias is None else result + bias.reshape(-1, *[1] * len(out))


def convolution_backward(
    grad, x, w, bias, stride, padding, dilation, transposed, extra, groups, mask
):
    geometry = (stride, padding, dilation, groups)
    image, out = (grad, x) if transposed else (x, grad)
    dx = (_correlate if transposed else _spread)(grad, w, x.shape, *geometry) if mask[0] else None
    dw = _weight_gradient(image, out, w, *geometry) if mask[1] else None
    return dx, dw, wide(grad).sum((0, *range(2, grad.ndim))) if mask[2] else None


def _pooled(sizes, kernel, stride, padding, dilation, ceil_mode):
    """The windows of a pooling, and the sizes of its result."""
    out = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation):
        room = n + 2 * p - d * (k - 1) - 1
        count = -(-room // s) if ceil_mode else room // s
        out.append(count if ceil_mode and count * s >= n + p else count + 1)
    return _regular(out, kernel, stride, padding, dilation), out


def largest(x, places, out):
    """Value and position of the largest in each window: the first of equals, the last NaN."""
    at, inside = _elements(x.shape[-len(out) :], places)
    columns = _columns(x, at, inside, len(out), -np.inf)
    nan, low = np.isnan(columns), columns.max(-1) == -np.inf
    best = np.where(nan.any(-1), nan.shape[-1] - 1 - nan[..., ::-1].argmax(-1), columns.argmax(-1))
    best = np.where(low, inside.argmax(-1), best)[..., None]  # never a place of the border
    shape, numbers = (*x.shape[: -len(out)], *out), np.broadcast_to(at, columns.shape)
    return (np.take_along_axis(part, best, -1).reshape(shape) for part in (columns, numbers))


def _max_pool(x, *how):
    return largest(x, *_pooled(x.shape[-len(how[0]) :], *how))


def _scatter_back(grad, x, spatial, at):
    out = np.zeros_like(_planes(x, spatial))
    at = at.reshape(len(out), -1)
    np.add.at(out, (np.arange(len(out))[:, None], at), _planes(grad, spatial))
    return out.reshape(x.shape)


def _averaged(sizes, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
    places, out = _pooled(sizes, kernel, stride, padding, [1] * len(kernel), ceil_mode)
    at, inside = _elements(sizes, places)
    counted = [(p >= -b) & (p < n + b) for p, n, b in zip(places, sizes, padding)]
    counted = _grid(counted, np.logical_and) if count_include_pad else inside
    return at, inside, divisor or counted.sum(-1), out


def _avg_pool(x, kernel, *how):
    at, inside, count, out = _averaged(x.shape[-len(kernel) :], kernel, *how)
    columns = _columns(x, at, inside, len(kernel)).sum(-1) / count
    return columns.reshape(*x.shape[: -len(kernel)], *out)


def _avg_pool_backward(grad, x, kernel, *how):
    at, inside, count, _ = _averaged(x.shape[-len(kernel) :], kernel, *how)
    return _back(_planes(grad, len(kernel)) / count, at, inside, x.shape, len(kernel))


def _adaptive(n, out):
    """Windows that together cover all, padded to the longest with places outside."""
    low, high = np.arange(out) * n // out, -(-(np.arange(out) + 1) * n // out)
    places = low[:, None] + np.arange(max(high - low, default=0))
    return np.where(places < high[:, None], places, -1)


def _adaptive_places(x, out):
    return [_adaptive(n, m) for n, m in zip(x.shape[-len(out) :], out)]


def adaptive_avg_pool(x, out):
    at, inside = _elements(x.shape[-len(out) :], _adaptive_places(x, out))
    columns = _columns(x, at, inside, len(out)).sum(-1) / inside.sum(-1)
    return columns.reshape(*x.shape[: -len(out)], *out)


def adaptive_avg_pool_backward(grad, x, spatial):
    places = _adaptive_places(x, grad.shape[-spatial:])
    at, inside = _elements(x.shape[-spatial:], places)
    return _back(_planes(grad, spatial) / inside.sum(-1), at, inside, x.shape, spatial)


FUNCTIONS = {
    **{name: f for name, f in globals().items() if name in PRIMS},
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), _max_pool),
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"),
        lambda grad, x, kernel, s, p, d, ceil, at: _scatter_back(grad, x, len(kernel), at),
    ),
    **dict.fromkeys(("avg_pool2d", "avg_pool3d"), _avg_pool),
    **dict.fromkeys(("avg_pool2d_backward", "avg_pool3d_backward"), _avg_pool_backward),
    "adaptive_max_pool": lambda x, out: largest(x, _adaptive_places(x, out), out),
    "adaptive_max_pool_backward": lambda g, x, at, spatial: _scatter_back(g, x, spatial, at),
    "fractional_max_pool_backward": lambda g, x, k, out, at: _scatter_back(g, x, len(k), at),
}
