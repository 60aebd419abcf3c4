"""Products, transforms, convolution, pooling and attention: what other backends call a library for.

Windows are visited one place of the kernel at a time: a strided slice of the padded image.
"""
# ruff: noqa: ANN001, ANN202

import itertools

import numpy as np

from numpy_backend.arrays import wide


def _places(kernel, stride, dilation, out):
    """For each place of the kernel, the slice of the padded image that its windows see."""
    for place in itertools.product(*map(range, kernel)):
        starts = [k * d for k, d in zip(place, dilation)]
        yield place, tuple(slice(a, a + s * (n - 1) + 1, s) if n else slice(0, 0)
                           for a, s, n in zip(starts, stride, out))  # fmt: skip


def _padded(x, padding, out, kernel, stride, dilation, value=0.0):
    """The image with a border, as large as the last window needs."""
    need = [s * (n - 1) + d * (k - 1) + 1 for n, k, s, d in zip(out, kernel, stride, dilation)]
    sizes = [max(p + n, m) for p, n, m in zip(padding, x.shape[-len(out) :], need)]
    big = np.full((*x.shape[: -len(out)], *sizes), value, wide(x).dtype)
    inner = (..., *(slice(p, p + n) for p, n in zip(padding, x.shape[-len(out) :])))
    big[inner] = x
    return big, inner


def _grouped(w, groups):
    return w.reshape(groups, w.shape[0] // groups, *w.shape[1:])


def _correlate(x, w, out, stride, padding, dilation, groups):
    """out[n, o] = sum over c and places of x[n, c, window] w[o, c, place]."""
    n, (o, _, *kernel) = x.shape[0], w.shape
    big, _ = _padded(x, padding, out, kernel, stride, dilation)
    big, w = big.reshape(n, groups, -1, *big.shape[2:]), _grouped(wide(w), groups)
    result = np.zeros((n, groups, o // groups, *out), big.dtype)
    for place, seen in _places(kernel, stride, dilation, out):
        result += np.einsum("ngc...,goc->ngo...", big[(..., *seen)], w[(..., *place)])
    return result.reshape(n, o, *out)


def _spread(y, w, size, stride, padding, dilation, groups):
    """The transpose of `_correlate` in x: each output given back to the window it came from."""
    n, (o, c, *kernel) = y.shape[0], w.shape
    empty = np.zeros((n, c * groups, *size))
    big, inner = _padded(empty, padding, y.shape[2:], kernel, stride, dilation)
    parts, w = big.reshape(n, groups, c, *big.shape[2:]), _grouped(wide(w), groups)
    y = wide(y).reshape(n, groups, o // groups, *y.shape[2:])
    for place, seen in _places(kernel, stride, dilation, y.shape[3:]):
        parts[(..., *seen)] += np.einsum("ngo...,goc->ngc...", y, w[(..., *place)])
    return big[inner]


def _weights(x, y, shape, stride, padding, dilation, groups):
    """The transpose of `_correlate` in w."""
    n, (o, c, *kernel) = x.shape[0], shape
    big, _ = _padded(x, padding, y.shape[2:], kernel, stride, dilation)
    big = big.reshape(n, groups, c, *big.shape[2:])
    rows, result = wide(y).reshape(n, groups, o // groups, -1), np.zeros(shape)
    for place, seen in _places(kernel, stride, dilation, y.shape[2:]):
        columns = big[(..., *seen)].reshape(n, groups, c, -1)
        result[(..., *place)] = np.einsum("ngop,ngcp->goc", rows, columns).reshape(o, c)
    return result


def _convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    reach = [d * (k - 1) for d, k in zip(dilation, w.shape[2:])]
    geometry, sizes = (stride, padding, dilation, groups), x.shape[2:]
    if transposed:
        grown = zip(sizes, stride, padding, reach, output_padding)
        out = [(n - 1) * s - 2 * p + r + e + 1 for n, s, p, r, e in grown]
        result = _spread(x, w, out, *geometry)
    else:
        out = [(n + 2 * p - r - 1) // s + 1 for n, s, p, r in zip(sizes, stride, padding, reach)]
        result = _correlate(x, w, out, *geometry)
    return result if bias is None else result + bias.reshape(-1, *[1] * len(out))


def _convolution_backward(
    grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
):
    geometry = (stride, padding, dilation, groups)
    dx = dw = None
    if mask[0] and transposed:
        dx = _correlate(grad, w, x.shape[2:], *geometry)
    elif mask[0]:
        dx = _spread(grad, w, x.shape[2:], *geometry)
    if mask[1]:
        image, out = (grad, x) if transposed else (x, grad)
        dw = _weights(image, out, w.shape, *geometry)
    return dx, dw, wide(grad).sum((0, *range(2, grad.ndim))) if mask[2] else None


def _pooled_sizes(sizes, kernel, stride, padding, dilation, ceil_mode):
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation):
        out = (
            -(-(n + 2 * p - d * (k - 1) - 1) // s)
            if ceil_mode
            else (n + 2 * p - d * (k - 1) - 1) // s
        )
        yield out if ceil_mode and out * s >= n + p else out + 1


def _max_pool(x, kernel, stride, padding, dilation, ceil_mode):
    sizes = x.shape[-len(kernel) :]
    out = tuple(_pooled_sizes(sizes, kernel, stride, padding, dilation, ceil_mode))
    big, _ = _padded(x, padding, out, kernel, stride, dilation, -np.inf)
    numbers, _ = _padded(
        np.arange(np.prod(sizes)).reshape(sizes), padding, out, kernel, stride, dilation, -1
    )
    best = np.full((*x.shape[: -len(kernel)], *out), -np.inf)
    at = np.full(best.shape, -1)
    for _, seen in _places(kernel, stride, dilation, out):
        value, number = (
            big[(..., *seen)],
            np.broadcast_to(numbers[seen], best.shape).astype(np.int64),
        )
        better = (number >= 0) & ((value > best) | (value != value) | (at < 0))
        best, at = np.where(better, value, best), np.where(better, number, at)
    return best, at


def _max_pool_backward(grad, x, kernel, stride, padding, dilation, ceil_mode, at):
    spatial = len(kernel)
    out = np.zeros((int(np.prod(x.shape[:-spatial])), int(np.prod(x.shape[-spatial:]))))
    rows = np.arange(len(out))[:, None]
    np.add.at(out, (rows, at.reshape(len(out), -1)), wide(grad).reshape(len(out), -1))
    return out.reshape(x.shape)


def _divisors(x, kernel, stride, padding, out, count_include_pad, divisor):
    """How many elements each window's sum is divided by."""
    if divisor is not None:
        return float(divisor)
    sizes, ones = x.shape[-len(kernel) :], [1] * len(kernel)
    border = padding if count_include_pad else [0] * len(kernel)
    area = np.ones([n + 2 * p for n, p in zip(sizes, border)])
    shift = [p - b for p, b in zip(padding, border)]
    big, _ = _padded(area, shift, out, kernel, stride, ones)
    return sum(big[seen] for _, seen in _places(kernel, stride, ones, out))


def _avg_pool(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
    ones = [1] * len(kernel)
    out = tuple(_pooled_sizes(x.shape[-len(kernel) :], kernel, stride, padding, ones, ceil_mode))
    big, _ = _padded(x, padding, out, kernel, stride, ones)
    total = sum(big[(..., *seen)] for _, seen in _places(kernel, stride, ones, out))
    return total / _divisors(x, kernel, stride, padding, out, count_include_pad, divisor)


def _avg_pool_backward(grad, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
    ones, out = [1] * len(kernel), grad.shape[-len(kernel) :]
    each = wide(grad) / _divisors(x, kernel, stride, padding, out, count_include_pad, divisor)
    big, inner = _padded(np.zeros(x.shape), padding, out, kernel, stride, ones)
    for _, seen in _places(kernel, stride, ones, out):
        big[(..., *seen)] += each
    return big[inner]


def _scores(q, k, bias, is_causal, scale):
    """Softmax of the scores, and the logarithm of its denominators."""
    shared = q.shape[1] // k.shape[1]
    k = np.repeat(wide(k), shared, 1)
    scores = wide(q) @ np.swapaxes(k, -1, -2) * (scale or q.shape[-1] ** -0.5)
    if bias is not None:
        scores = scores + bias
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    lse = np.log(np.exp(scores - top).sum(-1, keepdims=True)) + top
    return np.exp(scores - lse), lse[..., 0]


def _attention(q, k, v, bias, dropout_p, is_causal, *, scale=None):
    weights, lse = _scores(q, k, bias, is_causal, scale)
    return weights @ np.repeat(wide(v), q.shape[1] // k.shape[1], 1), lse


def _attention_backward(grad, q, k, v, out, lse, bias, dropout_p, is_causal, *, scale=None):
    weights, _ = _scores(q, k, bias, is_causal, scale)
    shared, factor = q.shape[1] // k.shape[1], scale or q.shape[-1] ** -0.5
    keys, values = np.repeat(wide(k), shared, 1), np.repeat(wide(v), shared, 1)
    grad = wide(grad)
    rows = (grad * wide(out)).sum(-1, keepdims=True)
    inner = weights * (grad @ np.swapaxes(values, -1, -2) - rows) * factor

    def merged(x):
        return x.reshape(k.shape[0], k.shape[1], shared, *x.shape[2:]).sum(2)

    dk = merged(np.swapaxes(inner, -1, -2) @ wide(q))
    return inner @ keys, dk, merged(np.swapaxes(weights, -1, -2) @ grad)


def _product(a, b):
    if a.dtype.kind in "fc":
        return wide(a) @ wide(b)
    return np.einsum("...ij,...jk->...ik", a, b)


def _added(x, a, b, beta, alpha):
    product = alpha * _product(a, b)
    return product if beta == 0 else beta * wide(x) + product


def _fft_r2c(x, dims, onesided):
    if not onesided:
        return np.fft.fftn(wide(x), axes=dims)
    return np.fft.rfftn(wide(x), axes=dims)


def _fft_c2r(x, dims, last_size):
    x = wide(x)
    for dim in dims[:-1]:
        x = np.fft.ifft(x, axis=dim, norm="forward")
    return np.fft.irfft(x, last_size, dims[-1], norm="forward")


def _fft_c2c(x, dims, forward):
    if forward:
        return np.fft.fftn(wide(x), axes=dims)
    return np.fft.ifftn(wide(x), axes=dims, norm="forward")


FUNCTIONS = {
    "mm": _product,
    "bmm": _product,
    "addmm": _added,
    "baddbmm": _added,
    "int_mm": lambda a, b: a.astype(np.int32) @ b.astype(np.int32),
    "fft_c2c": _fft_c2c,
    "fft_r2c": _fft_r2c,
    "fft_c2r": _fft_c2r,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "max_pool2d_with_indices": _max_pool,
    "max_pool2d_with_indices_backward": _max_pool_backward,
    "max_pool3d_with_indices": _max_pool,
    "max_pool3d_with_indices_backward": _max_pool_backward,
    "avg_pool2d": _avg_pool,
    "avg_pool2d_backward": _avg_pool_backward,
    "avg_pool3d": _avg_pool,
    "avg_pool3d_backward": _avg_pool_backward,
    "attention": _attention,
    "attention_backward": _attention_backward,
}
