"""Leaves of convolution and its backward.

In: a batched image, weights, geometry. Out: channels-last results if image or weights are so.
Invariant: geometry lists have one entry per spatial dimension.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from flambeau_prims._op import MetaResult, require, tensor_metas
from flambeau_prims._torch_compat import is_taken_by_onednn
from flambeau_prims.ops.library.leaf import leaf
from flambeau_prims.shape_rules import (
    Size,
    Sizes,
    TensorMeta,
    channels_last_strides,
    product,
    suggests_channels_last,
)


def _in_format(like: TensorMeta, shape: Sizes, *deciding: TensorMeta) -> TensorMeta:
    """Metadata in channels-last format if one of the `deciding` tensors suggests it."""
    if len(shape) >= 4 and any(map(suggests_channels_last, deciding)):
        return like.like(shape, channels_last_strides(shape))
    return like.like(shape)


class Geometry(NamedTuple):
    """How windows lie in an image: the arguments of a convolution after its operands."""

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    transposed: bool
    output_padding: Sizes
    groups: Size


def _convolved(a: TensorMeta, w: TensorMeta, shape: Sizes, how: Geometry) -> TensorMeta:
    """Metadata of what the libraries write: channels-last if image or weights are, but for
    torch's own transposed one of volumes on a CPU and for float64 on a GPU. Of a line, which is an
    image one high, eager takes a row-major copy, so that the weights decide."""
    if a.ndim == 3:
        high = [_one_high(x) for x in (a.like(shape), w)]
        found = _convolved(high[0], high[1], high[0].shape, how)
        return _line(found)
    return a.like(shape) if _in_rows(a, w, how) else _in_format(a, shape, a, w)


def _in_rows(a: TensorMeta, w: TensorMeta, how: Geometry) -> bool:
    """Whether a kernel of torch's own writes rows: of float64 on a GPU, and of a transposed
    convolution where the libraries do not take its padding of the output. On a CPU that is so of
    volumes; oneDNN is also left out by what else it does not take, and for little to compute."""
    gpu = a.device.type == "cuda"
    if gpu and a.dtype == torch.float64:
        return True
    if not how.transposed or not (gpu or a.ndim == 5):
        return False
    if any(bool(n >= step) for n, step in zip(how.output_padding, how.stride, strict=True)):
        return True
    if gpu:
        return False
    if not torch.backends.mkldnn.enabled or not torch.backends.mkldnn.is_available():
        return True
    if bool(how.groups > 1) and bool(a.shape[1] == how.groups):
        return True
    if a.dtype != torch.float32:
        return not is_taken_by_onednn(a.dtype)
    several = (
        any(bool(n != 1) for n in (*how.stride, *how.dilation, *w.shape[-2:]))
        or bool(a.shape[0] >= 16)
        or torch.get_num_threads() > 1
    )
    much = (
        bool(how.groups > 1)
        or all(bool(n > 3) for n in w.shape[-2:])
        or bool(a.shape[0] > 1)
        or bool(product(a.shape[:4]) > 20480)
    )
    return not (several and much)


def _one_high(x: TensorMeta) -> TensorMeta:
    shape, stride = (
        (*numbers[:2], height, numbers[2])
        for numbers, height in ((x.shape, 1), (x.stride, x.shape[2] * x.stride[2]))
    )
    return x.like(shape, stride)


def _line(x: TensorMeta) -> TensorMeta:
    """An image one high as a line."""
    return x.like([*x.shape[:2], x.shape[3]], [*x.stride[:2], x.stride[3]])


def _convolution_flops(args: tuple[Any, ...], result: MetaResult) -> Size:
    a, w, transposed = args[0], args[1], args[6]
    pixels = a if transposed else tensor_metas((result,))[0]
    count: Size = 2 * w.numel() * pixels.shape[0] * product(pixels.shape[2:])
    return count


@leaf(
    "convolution(Tensor a, Tensor w, Tensor? bias, SymInt[] stride, SymInt[] padding,"
    " SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
    torch.ops.aten.convolution,
    flops=_convolution_flops,
    shape="[N, output channels, windows along each spatial dimension]; channels-last if image or"
    " weights are",
    edge_cases={
        "nan": "spreads to every window that meets it",
        "empty": "an empty batch gives an empty result",
        "note": "padding counts as 0; `output_padding` adds places at the end of a transposed one",
    },
    family="convolution",
    source="Dumoulin and Visin: A guide to convolution arithmetic, 2016",
    differentiable="by convolution_backward",
)
def convolution(
    a: TensorMeta, w: TensorMeta, bias: TensorMeta | None, *geometry: Any
) -> TensorMeta:
    """out[n, o] = bias[o] + the sum over channels c of the group and window places k of w[o, c, k]
    a[n, c, stride i + dilation k - padding], i the output place; transposed: the gradient of that
    by `a`. 1-d to 3-d."""
    how, spatial = Geometry(*geometry), a.ndim - 2
    require(spatial >= 1 and w.ndim == a.ndim, f"shapes {a.shape} and {w.shape}")
    require(a.dtype == w.dtype, f"dtypes {a.dtype} and {w.dtype} differ")
    lists = (how.stride, how.padding, how.dilation, how.output_padding)
    require(all(len(x) == spatial for x in lists), f"geometry is not {spatial}-d")
    channels, outputs = w.shape[1] * how.groups, w.shape[0]
    if how.transposed:
        channels, outputs = outputs, channels
    require(a.shape[1] == channels, f"{a.shape[1]} channels, weights for {channels}")
    if bias is not None:
        require(bias.shape == (outputs,), f"bias of shape {bias.shape}")
    shape = [a.shape[0], outputs]
    for size, width, *numbers in zip(a.shape[2:], w.shape[2:], *lists, strict=True):
        stride, padding, dilation, extra = numbers
        reach = dilation * (width - 1)
        if how.transposed:
            out = (size - 1) * stride - 2 * padding + reach + extra + 1
        else:
            out = (size + 2 * padding - reach - 1) // stride + 1
        require(out >= 0, f"the kernel does not fit into {a.shape}")
        shape.append(out)
    return _convolved(a, w, shape, how)


def _backward_flops(args: tuple[Any, ...], result: MetaResult) -> Size:
    grad, a, w, transposed, mask = args[0], args[1], args[2], args[7], args[10]
    pixels = a if transposed else grad
    each: Size = 2 * w.numel() * pixels.shape[0] * product(pixels.shape[2:])
    return each * sum(map(bool, mask[:2]))


def _backward(grad: torch.Tensor, a: torch.Tensor, w: torch.Tensor, *rest: Any) -> Any:
    if rest[-1][2] and rest[0] is None:  # ATen takes the size, the channels of grad
        rest = ([grad.shape[1]], *rest[1:])
    return torch.ops.aten.convolution_backward.default(grad, a, w, *rest)


@leaf(
    "convolution_backward(Tensor grad, Tensor a, Tensor w, SymInt[]? bias_sizes, SymInt[] stride,"
    " SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding,"
    " SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    _backward,
    flops=_backward_flops,
    shape="those of `a`, `w` and [output channels]; channels-last if image or weights are",
    edge_cases={"empty": "an empty batch gives zeros for the weights"},
    family="convolution",
    source="Dumoulin and Visin: A guide to convolution arithmetic, 2016",
)
def convolution_backward(
    grad: TensorMeta, a: TensorMeta, w: TensorMeta, bias_sizes: Sizes | None, *rest: Any
) -> tuple[TensorMeta | None, ...]:
    """Gradients of image, weights and bias; None where `output_mask` does not ask."""
    *geometry, output_mask = rest
    forward = convolution(a, w, None, *geometry)
    require(grad.shape == forward.shape, f"gradient of shape {grad.shape}")
    in_rows = a.device.type == "cpu" and _in_rows(a, w, Geometry(*geometry))
    line = a.ndim == 3
    image, weights = (_one_high(a.like(a.shape)), _one_high(w)) if line else (a, w)
    deciding = () if in_rows else (image, weights)
    made = [_in_format(x, x.shape, *deciding) for x in (image, weights)]
    made = list(map(_line, made)) if line else made
    return (
        made[0] if output_mask[0] else None,
        made[1] if output_mask[1] else None,
        grad.like((grad.shape[1],)) if output_mask[2] else None,
    )
