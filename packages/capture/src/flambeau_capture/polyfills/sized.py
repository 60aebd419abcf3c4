"""Polyfills of functions that take sizes as plain numbers, by functions that take open ones.

In, out: what torch's functions of the same name take and give. Invariant: element by element the
arithmetic is that of torch's own, in its order.
"""

from __future__ import annotations

import itertools
import math
import types
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.graph.functions import NotInGeneral
from flambeau_capture.polyfills.spectral import (
    bartlett_window,
    blackman_window,
    fftfreq,
    hamming_window,
    hann_window,
    istft,
    kaiser_window,
    rfftfreq,
    stft,
    unfold,
)


def _scalar(number: Any, dtype: Any, device: Any) -> Any:
    if isinstance(number, torch.Tensor):
        return number.detach().to(dtype=dtype, device=device)
    return torch.scalar_tensor(number, dtype=dtype, device=device)


def linspace(start: Any, end: Any, steps: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """From both ends to the middle."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    first, final = (_scalar(bound, dtype, device) for bound in (start, end))
    last = max(steps - 1, 1)
    step = (final - first) / torch.scalar_tensor(last, dtype=dtype, device=device)
    place = torch.arange(steps, device=device)
    up, down = first + step * place, final - step * (last - place)
    return torch.where(place < max(steps // 2, 1), up, down)


def logspace(
    start: Any, end: Any, steps: Any, base: Any = 10.0, *, dtype: Any = None, device: Any = None
) -> Any:
    exponents = linspace(start, end, steps, dtype=dtype, device=device)
    return torch.pow(base, exponents.double()).to(exponents.dtype)


def one_hot(input: Any, num_classes: Any) -> Any:
    if input.device.type == "cpu":  # elsewhere torch's own does not look
        compat.CHECK_ALL(input >= 0, lambda: "Class values must be non-negative.")
        compat.CHECK_ALL(
            input < num_classes, lambda: "Class values must be smaller than num_classes."
        )
    every = torch.arange(num_classes, device=input.device)
    return (input.unsqueeze(-1) == every).to(torch.int64)


def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    powers = torch.linalg.vander(x, N=x.shape[-1] if N is None else N)
    return powers if increasing else powers.flip(1)


def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    n = output_size[0] if isinstance(output_size, list | tuple) else output_size
    return torch.nn.functional.adaptive_avg_pool2d(input.unsqueeze(-2), (1, n)).squeeze(-2)


def trapezoid(y: Any, *, dx: Any = 1, dim: int = -1) -> Any:
    return (y.sum(dim) - (y.select(dim, 0) + y.select(dim, -1)) * 0.5) * dx


def diagonal(input: Any, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The main one of what begins there."""
    if offset >= 0:
        rest = input.narrow(dim2, offset, max(input.shape[dim2] - offset, 0))
    else:
        rest = input.narrow(dim1, -offset, max(input.shape[dim1] + offset, 0))
    return rest.diagonal(0, dim1, dim2)


def diag_embed(input: Any, offset: Any = 0) -> Any:
    """Below, or right of, as many zeros as the diagonal is away."""
    square, away = input.diag_embed(), abs(offset)
    pads = (away, 0, 0, away) if offset >= 0 else (0, away, away, 0)
    return torch.nn.functional.pad(square, pads)


def diag(input: Any, diagonal: Any = 0) -> Any:
    if input.dim() == 1:
        return diag_embed(input, diagonal)
    return _diagonal(input, diagonal).clone()


_diagonal = diagonal


def diagflat(input: Any, offset: Any = 0) -> Any:
    return diag_embed(input.reshape(-1), offset)


def _within(stop: Any, most: Any) -> Any:
    """The sum of the numbers below `stop`, of which none counts as less than 0 or more than
    `most`."""
    few = min(max(stop - 1, 0), most)
    return few * (few + 1) // 2 + most * max(stop - 1 - most, 0)


def _indices(counts: Any, begins: Any, total: Any, dtype: Any) -> Any:
    """The rows and columns of places of a matrix: in each row so many, from that column on."""
    ends = counts.cumsum(0)
    place = torch.arange(total, device=counts.device)
    rows = torch.searchsorted(ends, place, right=True)
    columns = place - (ends - counts)[rows] + begins[rows]
    return torch.stack([rows, columns]).to(dtype)


def tril_indices(
    row: Any, col: Any, offset: Any = 0, *, dtype: Any = torch.int64, device: Any = None
) -> Any:
    counts = (torch.arange(row, device=device) + (offset + 1)).clamp(0, col)
    total = _within(row + offset + 1, col) - _within(offset + 1, col)
    return _indices(counts, torch.zeros_like(counts), total, dtype)


def triu_indices(
    row: Any, col: Any, offset: Any = 0, *, dtype: Any = torch.int64, device: Any = None
) -> Any:
    begins = (torch.arange(row, device=device) + offset).clamp(0, col)
    total = row * col - (_within(row + offset, col) - _within(offset, col))
    return _indices(col - begins, begins, total, dtype)


def sparse_product(places: Any, values: Any, rows: Any, columns: Any, dense: Any) -> Any:
    """Of a sparse matrix of so many rows and columns, and a dense matrix or vector."""
    torch._check(dense.shape[0] == columns, lambda: "sizes of matrices do not match")
    weights = values if dense.dim() == 1 else values.unsqueeze(1)
    found = dense.new_zeros([rows, *dense.shape[1:]])
    return found.index_add(0, places[0], weights * dense.index_select(0, places[1]))


def im2col(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """Windows of pictures as columns."""
    pairs = [
        tuple(one) if isinstance(one, list | tuple) else (one, one)
        for one in (kernel_size, dilation, padding, stride)
    ]
    (rows, columns), (apart, aside), (above, before), steps = pairs
    for padding in (above, before):
        torch._check(padding >= 0, lambda: "padding should be non-negative")
    picture = input if input.dim() == 4 else input.unsqueeze(0)
    picture = torch.nn.functional.pad(picture, (before, before, above, above))
    windows = unfold(picture, 2, (rows - 1) * apart + 1, steps[0])
    windows = unfold(windows, 3, (columns - 1) * aside + 1, steps[1])
    windows = windows[..., ::apart, ::aside].permute(0, 1, 4, 5, 2, 3)
    count, channels, *_, high, wide = windows.shape
    windows = windows.clone(memory_format=torch.contiguous_format)
    found = windows.reshape(count, channels * rows * columns, high * wide)
    return found if input.dim() == 4 else found.squeeze(0)


def _check_divisible(size: Any, by: Any, name: str) -> None:
    torch._check(size % by == 0, lambda: f"{name} expects a size that its factor divides")


def pixel_shuffle(input: Any, upscale_factor: Any) -> Any:
    factor, (*before, channels, high, wide) = upscale_factor, input.shape
    _check_divisible(channels, factor * factor, "pixel_shuffle")
    fewer = channels // (factor * factor)
    parts = input.reshape(*before, fewer, factor, factor, high, wide)
    n = len(before)
    placed = parts.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    placed = placed.clone(memory_format=torch.contiguous_format)
    return placed.reshape(*before, fewer, high * factor, wide * factor)


def pixel_unshuffle(input: Any, downscale_factor: Any) -> Any:
    factor, (*before, channels, high, wide) = downscale_factor, input.shape
    _check_divisible(high, factor, "pixel_unshuffle")
    _check_divisible(wide, factor, "pixel_unshuffle")
    few, narrow = high // factor, wide // factor
    parts = input.reshape(*before, channels, few, factor, narrow, factor)
    n = len(before)
    placed = parts.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    placed = placed.clone(memory_format=torch.contiguous_format)
    return placed.reshape(*before, channels * factor * factor, few, narrow)


def kron(input: Any, other: Any) -> Any:
    """Each element by all of the other, block by block."""
    dims = max(input.dim(), other.dim())
    sizes = [[1] * (dims - x.dim()) + [*x.shape] for x in (input, other)]
    one = input.reshape([n for size in sizes[0] for n in (size, 1)])
    two = other.reshape([n for size in sizes[1] for n in (1, size)])
    return (one * two).reshape([a * b for a, b in zip(*sizes)])


def adaptive_max_pool(input: Any, output_size: Any) -> tuple[Any, Any]:
    """The largest of each window, and where it is: the first of equal ones, the last that is no
    number. Windows are as long as the longest, filled up with the last position of each."""
    dims = len(output_size)
    keys, where = [], torch.zeros((), dtype=torch.int64, device=input.device)
    for dim, count in enumerate(output_size):
        size, by = input.shape[dim - dims], count or 1
        window = torch.arange(count, device=input.device)[:, None]
        begin, end = window * size // by, ((window + 1) * size + by - 1) // by
        most = torch.arange(size // by + 2, device=input.device)
        shape = [1] * (2 * dims)
        shape[dim], shape[dims + dim] = count, size // by + 2
        keys.append(torch.minimum(begin + most, end - 1).reshape(shape))
        where = where * size + keys[-1]
    windows, where = input[(..., *keys)].flatten(-dims), where.flatten(-dims)
    no_number = windows.isnan()
    last = (no_number * torch.arange(windows.shape[-1], device=input.device)).argmax(-1)
    which = torch.where(no_number.any(-1), last, windows.argmax(-1)).unsqueeze(-1)
    index = where.expand(*windows.shape).gather(-1, which)
    return windows.gather(-1, which).squeeze(-1), index.squeeze(-1)


def pool(input: Any, window: Any, stride: Any, padding: Any, dilation: Any, largest: bool) -> Any:
    """The largest of each window, the first of equal ones, or the mean. padding: None for none."""
    dims = len(window)
    for each, wide in zip(padding or (), window):
        torch._check(each * 2 <= wide, lambda: "pad should be at most half of the kernel size")
    filled = float("-inf") if largest else 0.0
    pads = [each for side in reversed(padding or ()) for each in (side, side)]
    found = torch.nn.functional.pad(input, pads, value=filled) if pads else input
    first, count = input.dim() - dims, 1
    shape, strides = [*found.shape], [*found.stride()]
    for place, (wide, step, apart) in enumerate(zip(window, stride, dilation), first):
        reach = (wide - 1) * apart + 1
        torch._check(reach <= shape[place], lambda: "the output of the pool is too small")
        torch._check(step > 0, lambda: "stride must be greater than zero")
        shape, strides = [*shape, wide], [*strides, strides[place] * apart]
        shape[place], strides[place] = (shape[place] - reach) // step + 1, strides[place] * step
        count = count * wide
    rows = found.as_strided(shape, strides).clone(memory_format=torch.contiguous_format)
    rows = rows.reshape(*shape[: first + dims], count)
    return rows.max(-1)[0] if largest else rows.sum(-1) / count


def group_norm(
    input: Any, num_groups: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    count, channels, *sides = input.shape
    _check_divisible(channels, num_groups, "group_norm")
    wide = channels // num_groups
    for side in sides:
        wide = wide * side
    rows = input.reshape(count, num_groups, wide)
    var, mean = torch.var_mean(rows, dim=2, correction=0, keepdim=True)
    found = ((rows - mean) * (var + eps).rsqrt()).reshape(input.shape)
    by_channel = (1, channels, *[1] * len(sides))
    if weight is not None:
        found = found * weight.reshape(by_channel)
    return found if bias is None else found + bias.reshape(by_channel)


def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    given = [each for each in (fweights, aweights) if each is not None]
    count, weighed = rows.shape[1], rows
    if given:
        weights = math.prod(given[1:], start=given[0])
        count, weighed = weights.sum(), rows * weights
    mean = weighed.sum(1) / count
    degrees = count - correction
    if aweights is not None and correction:
        degrees = count - correction * (weights * aweights).sum() / count
    for least in [each >= 0 for each in given] + [degrees > 0, count > 0] * bool(given):
        compat.CHECK_ALL_WITH(NotInGeneral, least, lambda: "weights that torch refuses or warns of")
    centred = rows - mean.unsqueeze(1)
    other = centred * weights if given else centred
    return (centred.mm(other.t().conj()) / degrees).squeeze()


def corrcoef(input: Any) -> Any:
    found = cov(input)
    if found.dim() == 0:
        return found / found
    deviation = found.diagonal().sqrt()
    return (found / deviation[:, None] / deviation).clip(-1, 1)


def _by_its_code(name: str) -> Any:
    """A function of torch's in Python, of which each call is captured on its own."""
    fn = getattr(torch.nn.functional, name)
    own = types.FunctionType(fn.__code__, fn.__globals__, name, fn.__defaults__)
    own.__module__ = __name__
    return own


def take_along_dim(input: Any, indices: Any, dim: Any = None) -> Any:
    if indices.dtype != torch.int64 or (dim is not None and input.dim() != indices.dim()):
        return NotImplemented
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    sides = []
    for one, other in zip((input, indices), (indices, input), strict=True):
        sizes = [n if m == 1 else m for n, m in zip(one.shape, other.shape, strict=True)]
        sizes[dim] = one.shape[dim]
        sides.append(one.expand(sizes))
    return sides[0].gather(dim, sides[1])


def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Any:
    if r < 1 or input.dim() != 1:
        return NotImplemented
    n, total = input.shape[0], 1
    for place in range(r):
        total = total * (n + place if with_replacement else n - place) // (place + 1)
    every = torch.arange(n, device=input.device)
    grids = torch.meshgrid([every] * r, indexing="ij")
    chosen = torch.ones([n] * r, dtype=torch.bool, device=input.device)
    for one, other in itertools.pairwise(grids):
        chosen = chosen & (one <= other if with_replacement else one < other)
    # a GPU lists positions by dimension, and what is taken at them lies as they do
    return input[torch.nonzero_static(chosen, size=total).contiguous()]


def native_channel_shuffle(input: Any, groups: int) -> Any:
    return torch.channel_shuffle(input, groups)


def gradient(input: Any, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:
    """Differences to both sides; at the ends to one, of as many elements as the order says. Where
    spacing has coordinates, by the parabola through three points: weights of each, at the first, at
    the middle and at the last of them."""
    dims = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    steps = [spacing] * len(dims) if isinstance(spacing, int | float) else spacing
    plain = all(isinstance(each, int | float) for each in steps)
    placed = not plain and all(isinstance(each, torch.Tensor) and each.dim() == 1 for each in steps)
    if edge_order not in (1, 2) or not (plain or placed) or len(steps) != len(dims):
        return NotImplemented
    found = []
    for each, step in zip(dims, steps):
        last = input.shape[each]
        torch._check(last > edge_order, lambda: "torch.gradient expected more elements")
        sides = [input.narrow(each, at, 1) for at in range(edge_order + 1)]
        final = [input.narrow(each, last - at, 1) for at in range(edge_order + 1, 0, -1)]
        before, after = step, step
        if plain:
            middle = (input.narrow(each, 2, last - 2) - input.narrow(each, 0, last - 2)) / step / 2
        else:
            torch._check(step.shape[0] == last, lambda: "torch.gradient expected a coordinate each")
            apart = step.narrow(0, 1, last - 1) - step.narrow(0, 0, last - 1)
            low, high = apart.narrow(0, 0, last - 2), apart.narrow(0, 1, last - 2)
            both = low + high
            weights = [-high / (low * both), (high - low) / (low * high), low / (high * both)]
            shape = [-1 if at == each % input.dim() else 1 for at in range(input.dim())]
            first, second, third = (
                weight.reshape(shape) * input.narrow(each, at, last - 2)
                for at, weight in enumerate(weights)
            )
            middle = first + second + third
            before, after = apart[0], apart[-1]
        if edge_order == 1:
            ends = [(sides[1] - sides[0]) / before, (final[1] - final[0]) / after]
        elif plain:
            ends = [
                (sides[0] * -1.5 + sides[1] * 2 - sides[2] * 0.5) / step,
                (final[0] * 0.5 - final[1] * 2 + final[2] * 1.5) / step,
            ]
        else:
            ends = [
                _through(sides, before, apart[1], -1),
                _through(final[::-1], after, apart[-2], 1),
            ]
        found.append(torch.cat([ends[0], middle, ends[1]], each))
    return tuple(found)


def _through(points: Any, near: Any, far: Any, sign: int) -> Any:
    """The slope of a parabola at the first of three points; sign: 1 where they come from below."""
    both = near + far
    weights = [
        sign * (2.0 * near + far) / (near * both), -sign * both / (near * far),
        sign * near / (far * both),
    ]  # fmt: skip
    first, second, third = (weight * point for weight, point in zip(weights, points))
    return third + second + first if sign > 0 else first + second + third


def multi_dot(tensors: Any) -> Any:
    """By the order of products that multiplies least; of three equal ones, the first two first."""
    first, *middle, last = tensors
    if len(middle) < 1 or not all(each.dim() == 2 for each in middle):
        return NotImplemented
    given = [
        first.unsqueeze(0) if first.dim() == 1 else first,
        *middle,
        last.unsqueeze(1) if last.dim() == 1 else last,
    ]
    sizes = [*(each.shape[0] for each in given), given[-1].shape[1]]
    costs: dict[tuple[int, int], Any] = {(at, at): 0 for at in range(len(given))}
    best: dict[tuple[int, int], int] = {}
    for length in range(1, len(given)):
        for i in range(len(given) - length):
            j = i + length
            for k in range(j - 1, i - 1, -1) if len(given) == 3 else range(i, j):
                cost = costs[i, k] + costs[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                if (i, j) not in costs or cost < costs[i, j]:
                    costs[i, j], best[i, j] = cost, k

    def product(i: int, j: int) -> Any:
        return given[i] if i == j else product(i, best[i, j]).mm(product(best[i, j] + 1, j))

    found = product(0, len(given) - 1)
    found = found.squeeze(-1) if last.dim() == 1 else found
    return found.squeeze(0) if first.dim() == 1 else found


def chain_matmul(*matrices: Any) -> Any:
    return multi_dot(matrices) if all(each.dim() == 2 for each in matrices) else NotImplemented


def bincount(input: Any, weights: Any = None, minlength: Any = 0) -> Any:
    """With one more number, which is counted, and taken off again."""
    if minlength < 1:
        return NotImplemented
    if input.numel() == 0:  # whose weights torch does not look at
        return torch.zeros(minlength, dtype=torch.int64, device=input.device)
    last = torch.full([1], minlength - 1, dtype=input.dtype, device=input.device)
    numbers = torch.cat([input, last])
    if weights is not None:
        return torch.bincount(numbers, torch.cat([weights, weights.new_zeros(1)]))
    counts = torch.bincount(numbers)
    return counts - (torch.arange(counts.shape[0], device=input.device) == last).to(counts.dtype)


def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Row by row, as torch's own kernel for what takes no gradients."""
    if (input.requires_grad and torch.is_grad_enabled()) or not input.dtype.is_floating_point:
        return NotImplemented
    if not input.is_contiguous() or any(size == 1 for size in input.shape):
        return NotImplemented  # it may lie otherwise
    given = (kernel_size, stride, padding, dilation, ceil_mode)
    return torch.max_pool1d_with_indices(input, *given)[0]


#: by the name of an operator: such a function, and the arguments that torch takes as plain numbers;
#: none: torch reads data
FORMS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "hann_window": (hann_window, ("window_length",)),
    "hamming_window": (hamming_window, ("window_length",)),
    "blackman_window": (blackman_window, ("window_length",)),
    "bartlett_window": (bartlett_window, ("window_length",)),
    "kaiser_window": (kaiser_window, ("window_length",)),
    "linspace": (linspace, ("steps",)),
    "logspace": (logspace, ("steps",)),
    "fft_fftfreq": (fftfreq, ("n", "d")),
    "fft_rfftfreq": (rfftfreq, ("n", "d")),
    "one_hot": (one_hot, ("num_classes",)),
    "vander": (vander, ("x", "N")),
    "kron": (kron, ("input", "other")),
    "adaptive_avg_pool1d": (adaptive_avg_pool1d, ("output_size",)),
    "trapezoid": (trapezoid, ("dx",)),
    "trapz": (trapezoid, ("dx",)),
    "unfold": (unfold, ("size", "step")),
    "stft": (stft, ("n_fft", "hop_length")),
    "diagonal": (diagonal, ("offset",)),
    "diag_embed": (diag_embed, ("offset",)),
    "diag": (diag, ("diagonal",)),
    "diagflat": (diagflat, ("offset",)),
    "tril_indices": (tril_indices, ("row", "col", "offset")),
    "triu_indices": (triu_indices, ("row", "col", "offset")),
    "istft": (istft, ("length",)),
    **{
        name: (_by_its_code(name), plain)
        for name, plain in {
            **dict.fromkeys([f"lp_pool{dims}d" for dims in (1, 2, 3)], ("kernel_size", "stride")),
            "local_response_norm": ("size",),
            "gaussian_nll_loss": (),
        }.items()
    },
    "take_along_dim": (take_along_dim, ("input", "indices")),
    "combinations": (combinations, ()),
    "gradient": (gradient, ("input",)),
    "multi_dot": (multi_dot, ("tensors",)),
    "linalg_multi_dot": (multi_dot, ("tensors",)),
    "chain_matmul": (chain_matmul, ("matrices",)),
    "bincount": (bincount, ("minlength",)),
    "max_pool1d": (max_pool1d, ("input",)),
    "native_channel_shuffle": (native_channel_shuffle, ("input",)),
}
