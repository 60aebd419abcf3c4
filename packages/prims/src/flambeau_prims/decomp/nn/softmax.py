"""Decompositions of softmax, its relatives, and scaled dot-product attention.

In: scores and a dimension; the overloads that `scaled_dot_product_attention` chooses among.
Out: prims, shifted by the largest score so that nothing overflows; the attention prims.
Invariant: computed in float32 for half precision, rounded once; attention with dropout stays as it
is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import canonical, canonical_dims, keep_dims, p, spread
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition
from flambeau_prims.promotion import compute_dtype, to_float

aten = torch.ops.aten


def _along(x: Tensor, dim: int, compute: Callable[[Tensor, list[int]], Tensor]) -> Tensor:
    """`compute` on a tensor of at least one dimension, also for a 0-d one; contiguous results."""
    if x.numel() == 0:
        return p.clone(x)
    if x.ndim == 0:
        return p.reshape(compute(p.reshape(x, [1]), [0]), [])
    return e.in_format(compute(x, [canonical(dim, x.ndim)]), torch.contiguous_format)


def _shifted(x: Tensor, dims: list[int]) -> Tensor:
    return p.sub(x, spread(p.amax(x, dims), x.shape, dims))


def softmax_of(x: Tensor, dims: list[int]) -> Tensor:
    """Softmax of a float32 or float64 tensor."""
    powers = p.exp(_shifted(x, dims))
    return p.div(powers, spread(p.sum(powers, dims), x.shape, dims))


def log_softmax_of(x: Tensor, dims: list[int]) -> Tensor:
    """Logarithm of the softmax of a float32 or float64 tensor."""
    shifted = _shifted(x, dims)
    total = p.log(p.sum(p.exp(shifted), dims))
    return p.sub(shifted, spread(total, x.shape, dims))


def _result_dtype(x: Tensor, half_to_float: bool) -> torch.dtype:
    return torch.float32 if half_to_float else x.dtype


@decomposition(aten._softmax.default, keep="softmax")
def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    wide = e.widen(x)
    return e.cast(_along(wide, dim, softmax_of), _result_dtype(x, half_to_float))


@decomposition(aten._log_softmax.default, keep="log_softmax")
def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    wide = e.widen(x)
    return e.cast(_along(wide, dim, log_softmax_of), _result_dtype(x, half_to_float))


@decomposition(aten._safe_softmax.default, keep="softmax")
def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    result = dtype or x.dtype

    def compute(y: Tensor, dims: list[int]) -> Tensor:
        nothing = p.all(e.eq(y, float("-inf")), dims)  # a row in which all is masked out
        return e.where(spread(nothing, y.shape, dims), 0.0, softmax_of(y, dims))

    return e.cast(_along(e.widen(e.cast(x, result)), dim, compute), result)


def _gradient_dtype(grad: Tensor, input_dtype: torch.dtype) -> torch.dtype:
    """A gradient keeps its dtype, whatever `input_dtype` says, but where a softmax of
    halves gave floats."""
    narrowed = grad.dtype == torch.float32 and input_dtype == torch.float16
    if e.on_gpu(grad) and not narrowed and grad.dtype != input_dtype:
        raise RuntimeError(
            "expected input and grad types to match, or input to be at::Half and grad to be"
            " at::Float"
        )
    return input_dtype if narrowed else grad.dtype


@decomposition(aten._softmax_backward_data.default, keep="softmax")
def softmax_backward(grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    g, y = e.widen(grad, output)

    def compute(_: Tensor, dims: list[int]) -> Tensor:
        h, z = (p.reshape(t, [1]) if t.ndim == 0 else t for t in (g, y))
        weighted = p.mul(h, z)
        total = spread(p.sum(weighted, dims), z.shape, dims)
        if e.on_gpu(grad):
            return p.sub(weighted, p.mul(z, total))
        return p.mul(p.sub(h, total), z)  # as on a CPU: they differ at infinities

    return e.cast(_along(g, dim, compute), _gradient_dtype(grad, input_dtype))


@decomposition(aten._log_softmax_backward_data.default, keep="log_softmax")
def log_softmax_backward(
    grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype
) -> Tensor:
    g, y = e.widen(grad, output)

    def compute(_: Tensor, dims: list[int]) -> Tensor:
        h, z = (p.reshape(t, [1]) if t.ndim == 0 else t for t in (g, y))
        return p.sub(h, p.mul(p.exp(z), spread(p.sum(h, dims), z.shape, dims)))

    return e.cast(_along(g, dim, compute), _gradient_dtype(grad, input_dtype))


@decomposition(aten.logsumexp.default)
def logsumexp(x: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Any:
    if not isinstance(dim, int) and not dim and x.ndim and not keepdim:
        return NotImplemented  # eager's steps do not agree on what no dimensions are
    dims = canonical_dims(dim, x.ndim)
    dtype = to_float(x.dtype)
    wide = e.cast(x, compute_dtype(dtype))
    if e.count(x.shape, dims) == 0:
        shape = [n for d, n in enumerate(x.shape) if d not in dims]
        row = e.filled(x, shape, float("-inf"), wide.dtype)
    else:
        row = _log_of_sum(wide, dims)
    return e.cast(keep_dims(row, x.shape, dims, keepdim), dtype)


def _log_of_sum(x: Tensor, dims: list[int]) -> Tensor:
    """log(sum(exp(x))), shifted by the greatest real part, so that nothing overflows."""
    top = p.amax(p.clone(p.real(x)) if x.dtype.is_complex else x, dims)
    top = e.cast(e.where(p.isinf(top), 0.0, top), x.dtype)  # inf - inf would be NaN
    powers = p.exp(p.sub(x, spread(top, x.shape, dims)))
    return p.add(p.log(p.sum(powers, dims)), top)


@decomposition(aten._masked_softmax.default)
def masked_softmax(
    x: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None
) -> Any:
    """Softmax of what is not masked; a row of which all is masked gives NaN."""
    where = canonical(x.ndim - 1 if dim is None else dim, x.ndim)
    if mask_type not in (None, 2) and tuple(mask.shape) != tuple(x.shape):
        places = [2, 3] if mask_type == 0 else [0, 3]  # [L, L] or [B, L] of [B, H, L, L]
        if x.ndim != 4 or mask.ndim != 2:
            return NotImplemented
        mask = p.broadcast_in_dim(mask, list(x.shape), places)
    hidden = e.expand(e.cast(mask, torch.bool), x.shape)
    scores = e.where(hidden, float("-inf"), e.widen(x))
    return e.cast(_along(scores, where, softmax_of), x.dtype)


@decomposition(aten._masked_softmax_backward.default)
def masked_softmax_backward(
    grad: Tensor, output: Tensor, mask: Tensor, dim: int | None = None
) -> Any:
    where = canonical(output.ndim - 1 if dim is None else dim, output.ndim)
    hidden = e.expand(e.cast(mask, torch.bool), output.shape)
    g, y = (e.where(hidden, 0.0, t) for t in e.widen(grad, output))
    slope = p.sub(g, spread(p.sum(p.mul(g, y), [where]), y.shape, [where]))
    return e.cast(p.mul(y, slope), grad.dtype)


def _attended(a: Arguments, bias: Tensor | None) -> Any:
    """The output and the logarithms of sums."""
    return p.attention(a.query, a.key, a.value, bias, 0.0, a.is_causal, scale=a.scale)


def _attended_back(a: Arguments, grad: Tensor, bias: Tensor | None) -> Any:
    given = (grad, a.query, a.key, a.value, a.out, a.logsumexp)
    return p.attention_backward(*given, bias, 0.0, a.is_causal, scale=a.scale)


@by_name(aten._scaled_dot_product_flash_attention_for_cpu.default, keep="sdpa")
def flash_attention_for_cpu(a: Arguments) -> Any:
    if a.dropout_p != 0.0 or a.query.ndim != 4:
        return NotImplemented
    return tuple(_attended(a, a.attn_mask))


@by_name(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, keep="sdpa")
def flash_attention_for_cpu_backward(a: Arguments) -> Any:
    if a.dropout_p != 0.0 or a.query.ndim != 4:
        return NotImplemented
    return tuple(_attended_back(a, a.grad_out, a.attn_mask))


def _is_efficient(a: Arguments) -> bool:
    """Whether the attention is the primitive's: a head of keys for each of queries."""
    return bool(a.dropout_p == 0.0 and a.query.ndim == 4 and a.query.shape[1] == a.key.shape[1])


@by_name(aten._scaled_dot_product_efficient_attention.default, keep="sdpa")
def efficient_attention(a: Arguments) -> Any:
    """The last two results are the state of dropout, of which there is none."""
    if not _is_efficient(a) or not a.compute_log_sumexp:
        return NotImplemented
    state = [e.filled(a.query, [], 0, torch.int64) for _ in range(2)]
    return *_attended(a, a.attn_bias), *state


@by_name(aten._scaled_dot_product_efficient_attention_backward.default, keep="sdpa")
def efficient_attention_backward(a: Arguments) -> Any:
    mask, bias = a.grad_input_mask, a.attn_bias
    if not _is_efficient(a) or (len(mask) > 3 and mask[3] and bias is not None):
        return NotImplemented
    grads = _attended_back(a, a.grad_out_, bias)
    return *(g if asked else None for g, asked in zip(grads, mask, strict=False)), None
