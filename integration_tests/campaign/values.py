"""Inputs of drawn programs: written into every script, so that it stands alone.

In: a shape, a dtype, a seed, what values, what layout. Out: a tensor.
Invariant: the same arguments make the same values on every device; `WIDE` makes them in double
precision, `NUDGE` moves each by a rounding error, which tells what a program makes of those.
"""

import torch

DEVICE = "cpu"
WIDE = False
NUDGE = 0
NUDGED = []
#: every tensor that `kept` was given in this world
WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
SPECIAL = (0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 0.5, -2.5, 3.0, 1e-3)


def _numbers(count, dtype, seed, kind):
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=g).bool()
    if dtype.is_complex:
        parts = [_numbers(count, torch.float64, seed + k, kind) for k in (0, 1)]
        return torch.complex(*parts).to(dtype)
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        if kind in ("special", "extreme"):
            table = [0, 1, 2, 3, 7, 8, 100, info.max, info.max - 1, info.min, max(info.min, -1)]
            return torch.tensor(table, dtype=dtype)[torch.randint(0, 11, (count,), generator=g)]
        low = 1 if kind == "positive" else 0 if info.min == 0 else -5
        return torch.randint(low, 10, (count,), generator=g).to(dtype)
    if kind == "whole":
        return torch.randint(-4, 5, (count,), generator=g).to(dtype)
    made = torch.randn(count, generator=g, dtype=torch.float64)
    if kind == "positive":
        made = made.abs() + 0.1
    if kind == "unit":
        made = made.sin() * 0.98
    if kind in ("special", "extreme"):
        info = torch.finfo(dtype)
        table = SPECIAL
        if kind == "extreme":
            table = (info.max, info.min, info.tiny, info.tiny / 4, 1e4, -1e4, 88.0, -104.0, 1e-7,
                     2.0**24, 0.0)  # fmt: skip
        picked = torch.tensor(table, dtype=torch.float64)[
            torch.randint(0, 11, (count,), generator=g)
        ]
        made = torch.where(torch.rand(count, generator=g) < 0.5, picked, made)
    return made.to(dtype)


def make(shape, dtype=torch.float32, seed=0, kind="normal", layout="dense"):
    """A tensor. kind: normal, positive, unit, whole, special, extreme. layout: dense, transposed,
    sliced, offset, expanded, overlapping, channels_last, flipped."""
    shape = tuple(shape)
    count = 1
    for size in shape:
        count *= size
    made = _numbers(count, dtype, seed, kind).reshape(shape)
    made = made if kind == "whole" else nudged(made, seed)
    if WIDE:
        made = made.to(WIDER.get(dtype, dtype))
    return (
        arranged(made, layout).to(DEVICE)
        if layout == "dense"
        else arranged(made.to(DEVICE), layout)
    )


def nudged(made, seed=0):
    """The tensor, each element moved by a rounding error in a world of such: equal tensors each by
    its own, for what cancels between them may be all rounding."""
    dtype = made.dtype
    if not NUDGE or not (dtype.is_floating_point or dtype.is_complex):
        return made
    NUDGED.append(seed)
    g = torch.Generator().manual_seed(1000 * NUDGE + seed + 7919 * NUDGED.count(seed))
    signs = 2 * torch.randint(0, 2, made.shape, generator=g, dtype=torch.int64) - 1
    step = signs.to(made.device).double() * torch.finfo(dtype).eps
    return (made.to(WIDER.get(dtype, dtype)) * (1 + step)).to(dtype)


def weighed(outs):
    """A sum of results, weighed by their places. Their cotangents are moved where operands are: a
    gradient depends on both."""
    weights = [
        nudged(torch.full_like(o, n + 1, requires_grad=False), n) if NUDGE else n + 1
        for n, o in enumerate(outs)
    ]
    return sum((o * weight).sum() for o, weight in zip(outs, weights))


def arranged(made, layout):
    """The same values in another layout; `expanded` and `overlapping` repeat some of them."""
    shape = tuple(made.shape)
    if layout == "transposed" and made.dim() > 1:
        order = [*range(made.dim())][::-1]
        return made.permute(order).contiguous().permute(order)
    if layout == "sliced" and made.dim():
        wide = torch.zeros((*shape[:-1], 2 * shape[-1] + 1), dtype=made.dtype, device=made.device)
        wide[..., 1::2] = made
        return wide[..., 1::2]
    if layout == "offset":
        flat = torch.zeros(made.numel() + 3, dtype=made.dtype, device=made.device)
        flat[3:] = made.reshape(-1)
        return flat[3:].view(shape)
    if layout == "expanded" and made.dim():
        return made[..., :1].clone().expand(shape) if shape[-1] else made
    if layout == "overlapping" and made.dim() == 1 and shape[0] > 1:
        return made.as_strided((shape[0] // 2 + 1,), (1,))
    if layout == "channels_last" and made.dim() == 4:
        return made.contiguous(memory_format=torch.channels_last)
    return made


def leaf(made):
    """The same as a leaf that requires grad."""
    return made.detach().requires_grad_()


def opened(made, dim=0):
    """The same, its size marked as one that varies, where it may."""
    import flambeau

    if made.shape[dim] > 1:
        flambeau.mark_dynamic(made, dim)
    return made


def marked(made, marks):
    """The same, its first dimensions marked in turn: `maybe 2 6` is open within bounds."""
    import flambeau

    theirs = torch._dynamo  # a hint to torch's compiler is one to ours
    ways = {
        "dynamic": flambeau.mark_dynamic,
        "maybe": flambeau.maybe_mark_dynamic,
        "static": flambeau.mark_static,
        "weak": theirs.maybe_mark_dynamic,
        "theirs": theirs.mark_dynamic,
        "unbacked": theirs.decorators.mark_unbacked,
    }
    for dim, mark in enumerate(marks[: made.dim()]):
        for one in mark.split(", "):
            way, *bounds = one.split()
            size, bounds = made.shape[dim], [*map(int, bounds)]
            inside = sorted([*bounds[:1], size, *bounds[1:]]) == [*bounds[:1], size, *bounds[1:]]
            if inside and (size > 1 or way not in ("theirs", "unbacked")):
                ways[way](made, dim, *bounds)
    return made


def filled(module, seed=0):
    """The module with values of ours in its parameters and floating buffers, on the device."""
    module = module.to(DEVICE)
    with torch.no_grad():
        for number, p in enumerate(module.parameters()):
            p.data = make(p.shape, p.dtype, seed + number, "unit") * 0.5
        for number, (name, b) in enumerate(module.named_buffers()):
            if b.is_floating_point():
                kind = "positive" if "var" in name else "unit"
                b.data = make(b.shape, b.dtype, seed + 100 + number, kind)
    return module
