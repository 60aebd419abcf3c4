"""Windows of signals and their spectra, as programs of functions that take open sizes.

In, out: what torch's functions of the same name take and give. Invariant: element by element the
arithmetic is that of torch's own, in its order.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat

_PAIRS = 2


def _cosines(n: Any, periodic: bool, dtype: Any, device: Any, scale: float) -> Any:
    """The places of a window, scaled to an angle; their number is that of a full period."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    full = n + 1 if periodic else n
    return torch.arange(full, dtype=dtype, device=device) * (scale / (full - 1))


def hann_window(
    window_length: Any, periodic: bool = True, *, dtype: Any = None, device: Any = None
) -> Any:
    return hamming_window(window_length, periodic, 0.5, 0.5, dtype=dtype, device=device)


def hamming_window(
    window_length: Any,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Any:
    if window_length < _PAIRS:
        return torch.ones(window_length, dtype=dtype, device=device)
    angles = _cosines(window_length, periodic, dtype, device, math.pi * 2)
    return (angles.cos() * -beta + alpha)[:window_length]


def blackman_window(
    window_length: Any, periodic: bool = True, *, dtype: Any = None, device: Any = None
) -> Any:
    if window_length < _PAIRS:
        return torch.ones(window_length, dtype=dtype, device=device)
    angles = _cosines(window_length, periodic, dtype, device, math.pi)
    return ((angles * 4).cos() * 0.08 - (angles * 2).cos() * 0.5 + 0.42)[:window_length]


def bartlett_window(
    window_length: Any, periodic: bool = True, *, dtype: Any = None, device: Any = None
) -> Any:
    if window_length < _PAIRS:
        return torch.ones(window_length, dtype=dtype, device=device)
    up = _cosines(window_length, periodic, dtype, device, 2.0)
    rising = torch.arange(up.shape[0], device=device) < (up.shape[0] - 1) // 2 + 1
    return torch.where(rising, up, up * -1 + 2)[:window_length]


def kaiser_window(
    window_length: Any,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Any:
    if window_length < _PAIRS:
        return torch.ones(window_length, dtype=dtype, device=device)
    places = _cosines(window_length, periodic, dtype, device, 2.0) - 1
    heights = torch.i0(beta * (1 - places * places).clamp_min(0).sqrt())
    highest = torch.i0(torch.scalar_tensor(beta, dtype=places.dtype, device=device))
    return (heights / highest)[:window_length]


def fftfreq(n: Any, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    place = torch.arange(n, dtype=dtype, device=device)
    return torch.where(place < (n + 1) // 2, place, place - n) * (1.0 / (n * d))


def rfftfreq(n: Any, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    return torch.arange(n // 2 + 1, dtype=dtype, device=device) * (1.0 / (n * d))


def unfold(input: Any, dimension: int, size: Any, step: Any) -> Any:
    """A view in which windows of the dimension are a last one."""
    dim = dimension % max(input.dim(), 1)
    shape, strides = [*input.shape, size], [*input.stride(), input.stride()[dim]]
    torch._check(size <= shape[dim], lambda: "maximum size for tensor is smaller than the windows")
    torch._check(step > 0, lambda: "step must be positive")
    shape[dim], strides[dim] = (shape[dim] - size) // step + 1, strides[dim] * step
    return input.as_strided(shape, strides)


def stft(
    input: Any,
    n_fft: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    *,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: Any = None,
    return_complex: bool,
) -> Any:
    """The transform of each frame, frequency by frequency."""
    length = n_fft if win_length is None else win_length
    if center:
        row = input.reshape(1, -1, input.shape[-1])
        row = torch.nn.functional.pad(row, [n_fft // 2, n_fft // 2], pad_mode)
        input = row.reshape([*input.shape[:-1], row.shape[-1]])
    frames = unfold(input, -1, n_fft, n_fft // 4 if hop_length is None else hop_length)
    if window is None and length != n_fft:
        window = torch.ones(length, dtype=input.dtype, device=input.device)
    if window is not None:
        before = (n_fft - length) // 2
        frames = frames * torch.nn.functional.pad(window, (before, n_fft - length - before))
    half = not (frames.is_complex()) if onesided is None else onesided
    transform = torch.fft.rfft if half else torch.fft.fft
    found = transform(frames, norm="ortho" if normalized else "backward").transpose(-1, -2)
    return found if return_complex else torch.view_as_real(found)


def istft(
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    """The frames of the transform, added where they overlap, over the windows' own sum."""
    hop = n_fft // 4 if hop_length is None else hop_length
    wide = n_fft if win_length is None else win_length
    count, begin = input.shape[-1], n_fft // 2 if center else 0
    total = n_fft + hop * (count - 1)
    if begin + length > total:
        return NotImplemented  # torch warns, and fills up with zeros
    real = torch.zeros((), dtype=input.dtype).real.dtype
    if window is None:
        window = torch.ones(wide, dtype=real, device=input.device)
    before = (n_fft - wide) // 2
    window = torch.nn.functional.pad(window, (before, n_fft - wide - before))
    frames, norm = input.transpose(-1, -2), "ortho" if normalized else "backward"
    if return_complex:
        frames = torch.fft.ifft(frames, norm=norm)
    else:
        half = input.shape[-2] != n_fft if onesided is None else onesided
        frames = frames if half else frames[..., : n_fft // 2 + 1]
        frames = torch.fft.irfft(frames, n_fft, norm=norm)

    def overlapping(each: Any) -> Any:
        sizes = [*each.shape[:-2], total]
        added = torch.ops.aten.unfold_backward(each, sizes, len(sizes) - 1, n_fft, hop)
        return added[..., begin : begin + length]

    covered = overlapping((window * window).expand(count, n_fft))
    compat.CHECK_ALL(covered.abs() > 1e-11, lambda: "window overlap add min: 1")
    return overlapping(frames * window) / covered
