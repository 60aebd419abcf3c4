"""Single kernels: what a fused stack should do in one pass over memory.

In: a device. Out: a `Workload` with the bytes that a perfect kernel moves.
Invariant: sizes are far larger than the caches of the device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.zoo.workload import Workload

Shape = tuple[int, int]


def _matrix(device: str, quick: bool) -> tuple[Shape, torch.dtype]:
    if device == "cuda":
        return (65536, 4096), torch.bfloat16
    return ((1024, 1024), torch.float32) if quick else ((16384, 2048), torch.float32)


def _wide(x: Tensor) -> Tensor:
    """Half precision as float32; anything wider as it is, so that a float64 copy stays one."""
    return x.float() if x.dtype.itemsize < 4 else x


def _softmax(device: str, quick: bool) -> Workload:
    shape, dtype = _matrix(device, quick)
    x = torch.randn(shape, device=device).to(dtype)
    return Workload(lambda x: torch.softmax(x, -1), (x,), moved=2 * x.nbytes)


def _layernorm_gelu(device: str, quick: bool) -> Workload:
    shape, dtype = _matrix(device, quick)
    x = torch.randn(shape, device=device).to(dtype)
    w, b = (torch.randn(shape[1], device=device).to(dtype) for _ in range(2))

    def layernorm_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b))

    return Workload(layernorm_gelu, (x, w, b), moved=2 * x.nbytes)


def _rmsnorm_swiglu(device: str, quick: bool) -> Workload:
    shape, dtype = _matrix(device, quick)
    x, gate = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
    w = torch.randn(shape[1], device=device).to(dtype)

    def rmsnorm_swiglu(x: Tensor, gate: Tensor, w: Tensor) -> Tensor:
        wide = _wide(x)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (wide * scale).to(x.dtype) * w * F.silu(gate)

    return Workload(rmsnorm_swiglu, (x, gate, w), moved=3 * x.nbytes)


def _cross_entropy(device: str, quick: bool) -> Workload:
    shape, dtype = _matrix(device, quick)
    x = torch.randn(shape, device=device).to(dtype)
    target = torch.randint(0, shape[1], (shape[0],), device=device)
    return Workload(lambda x, t: F.cross_entropy(_wide(x), t), (x, target), moved=x.nbytes)


def _rope(device: str, quick: bool) -> Workload:
    batch, heads, length, width = (8, 32, 4096, 128) if device == "cuda" else (4, 16, 1024, 128)
    if quick:
        batch, heads = 1, 4
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    q = torch.randn(batch, heads, length, width, device=device).to(dtype)
    angles = torch.randn(length, width, device=device)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def rope(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = q.shape[-1] // 2
        turned = torch.cat((-q[..., half:], q[..., :half]), -1)
        return q * cos + turned * sin

    return Workload(rope, (q, cos, sin), moved=2 * q.nbytes)


def _pointwise_chain(device: str, quick: bool) -> Workload:
    shape, dtype = _matrix(device, quick)
    x, y = (torch.randn(shape, device=device).to(dtype) for _ in range(2))

    def chain(x: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(x * 1.5 + y) * torch.tanh(x) + y.abs().sqrt()

    return Workload(chain, (x, y), moved=3 * x.nbytes)


def _cross_entropy_backward(device: str, quick: bool) -> Workload:
    shape, dtype = _matrix(device, quick)
    x = torch.randn(shape, device=device).to(dtype).requires_grad_()
    target = torch.randint(0, shape[1], (shape[0],), device=device)

    def loss(x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(_wide(x), target)

    return Workload(loss, (x, target), training=True, moved=3 * x.nbytes, leaves=(0,))


def _variance_rows(device: str, quick: bool) -> Workload:
    shape, dtype = _matrix(device, quick)
    x = torch.randn(shape, device=device).to(dtype)
    return Workload(lambda x: x.var(1), (x,), moved=x.nbytes)


def _variance_columns(device: str, quick: bool) -> Workload:
    shape, dtype = _matrix(device, quick)
    x = torch.randn(shape, device=device).to(dtype)
    return Workload(lambda x: x.var(0), (x,), moved=x.nbytes)


def _transpose_add(device: str, quick: bool) -> Workload:
    size = 16384 if device == "cuda" else (1024 if quick else 4096)
    _, dtype = _matrix(device, quick)
    x, y = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return Workload(lambda x, y: x.t() + y, (x, y), moved=3 * x.nbytes)


def _embedding_scale(device: str, quick: bool) -> Workload:
    shape, dtype = _matrix(device, quick)
    table = torch.randn(shape[0], 512, device=device).to(dtype)
    tokens = torch.randint(0, shape[0], (4 * shape[0],), device=device)
    moved = 2 * tokens.numel() * 512 * table.itemsize

    def embed(table: Tensor, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, table) * 22.627

    return Workload(embed, (table, tokens), moved=moved)


def _dropout(device: str, quick: bool) -> Workload:
    """Dropout keeps its own elements in every system: only its speed is compared."""
    shape, dtype = _matrix(device, quick)
    x, y = (torch.randn(shape, device=device).to(dtype) for _ in range(2))

    def dropout(x: Tensor, y: Tensor) -> Tensor:
        return F.dropout(x, 0.1, training=True) + y

    return Workload(dropout, (x, y), moved=3 * x.nbytes, random=True)


KERNELS: dict[str, Callable[[str, bool], Workload]] = {
    "softmax": _softmax,
    "layernorm_gelu": _layernorm_gelu,
    "rmsnorm_swiglu": _rmsnorm_swiglu,
    "cross_entropy": _cross_entropy,
    "cross_entropy_backward": _cross_entropy_backward,
    "rope": _rope,
    "pointwise_chain": _pointwise_chain,
    "variance_rows": _variance_rows,
    "variance_columns": _variance_columns,
    "transpose_add": _transpose_add,
    "embedding_scale": _embedding_scale,
    "dropout": _dropout,
}
