"""Corrections of fake metadata that differ from the kernels' results.

In: an operator, its fake arguments and the metadata of its fake results. Out: the metadata that the
kernel's results have, or what the kernel says where it has none.
Invariant: a rule says only what was found to differ, on the device whose kernel does.
Tried on torch 2.11 and 2.13.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_aot._torch_compat import data_symbols, hint
from flambeau_aot._torch_compat.tensors import SCALES_BY_WHOLE_EXPONENTS
from flambeau_aot.inputs.memory_overlap import expanded
from flambeau_aot.joint.metadata.pointwise_layouts import by_operands, in_this_compile
from flambeau_aot.sizes import is_symbolic, same_sizes

Layout = Callable[[Sequence[Any]], Sequence[Any] | None]
Args = Sequence[Any]

_REDUCED = (torch.bfloat16, torch.float16)
_NO_REDUCTION = 0


@dataclass(frozen=True)
class KernelCorrection:
    """What a kernel's result is that its description is not; None: as described."""

    dtype: torch.dtype | None = None
    is_complex: bool = False  # described by the dtype of its parts
    shape: Sequence[Any] | None = None
    stride: Sequence[Any] | None = None
    laid: Layout | None = None  # from the shape to strides; None: as described


Corrected = Mapping[int, KernelCorrection]
Correction = Callable[[Args, torch.device], Corrected]


def _statistics(args: Args, device: torch.device) -> Corrected:
    """The CPU's normalizations keep the statistics of a reduced-precision input in the dtype of
    their parameters and running statistics; torch's description keeps them in the input's."""
    tensors = [value for value in args if isinstance(value, torch.Tensor)]
    if device.type != "cpu" or tensors[0].dtype not in _REDUCED:
        return {}
    if not any(value.dtype is torch.float32 for value in tensors[1:]):
        return {}
    return {1: KernelCorrection(dtype=torch.float32), 2: KernelCorrection(dtype=torch.float32)}


def _loss_of_one_sample(args: Args, device: torch.device) -> Corrected:
    """Margin losses of a sample without a batch are numbers, unless their target has a batch."""
    sample, target, *_ = args
    reduction = args[2] if len(args) == 3 else (args[5] if len(args) > 5 else 1)
    if sample.dim() > 1 or reduction != _NO_REDUCTION or (len(args) != 3 and target.dim()):
        return {}
    return {0: KernelCorrection(shape=(), stride=())}


def contiguous(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Row-major strides."""
    strides: list[Any] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * (1 if isinstance(size, int) and size == 0 else size)
    return tuple(reversed(strides))


def _channels_last(shape: Sequence[Any]) -> tuple[Any, ...]:
    *spatial, inner = contiguous([shape[0], *shape[2:], shape[1]])
    return (spatial[0], inner, *spatial[1:])


def _suggested(model: torch.Tensor) -> Layout:
    """The layout of the memory format that a kernel finds suggested by a tensor's strides. Of open
    ones the values in this compile decide: strides are guarded as products of sizes, so that their
    order is the same in every call."""
    opened = filter(is_symbolic, (*model.shape, *model.stride()))
    if model.dim() not in (4, 5) or data_symbols(opened):
        return contiguous
    sizes, steps = tuple(map(hint, model.shape)), tuple(map(hint, model.stride()))
    dims = [0, *range(2, model.dim()), 1]
    least = 0
    if steps[1] == 0 or 0 in sizes:
        return contiguous
    for dim in reversed(dims):
        size, step = sizes[dim], steps[dim]
        if step < least or (dim == 0 and least == steps[1]):
            return contiguous
        least = step * size if size > 1 else step
    return _channels_last


def _in_rows(*places: int, only: str = "") -> Correction:
    """Results that a kernel writes row-major, whatever the layout of its arguments, on one kind of
    device where one is given; those that the last argument's mask leaves out are none."""

    def correct(args: Args, device: torch.device) -> Corrected:
        mask = args[-1] if isinstance(args[-1], (list, tuple)) and len(places) > 1 else None
        return {
            place: KernelCorrection(laid=contiguous)
            for place in places
            if (mask is None or mask[place]) and device.type == (only or device.type)
        }

    return correct


def _in_format_of(place: int, *, only: str = "") -> Correction:
    """The first result in the memory format of an argument; on one kind of device where one is
    given."""

    def correct(args: Args, device: torch.device) -> Corrected:
        wanted = len(args[-1]) != 3 or args[-1][0] if isinstance(args[-1], (list, tuple)) else True
        if not wanted or (only and device.type != only):
            return {}
        return {0: KernelCorrection(laid=_suggested(args[place]))}

    return correct


def _as_made(make: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> Layout | None:
    """The layout that a function of meta tensors gives its result; of open sizes products, in the
    order that they have in this compile, or as an operand that it is laid out as. None where data
    decide."""
    numbers = [n for x in tensors for n in (*x.shape, *x.stride())]
    if data_symbols(filter(is_symbolic, numbers)):
        return None
    known = [in_this_compile(x) for x in tensors]
    made = make(*known)

    def lay(shape: Sequence[Any]) -> Sequence[Any]:
        if not any(map(is_symbolic, numbers)):
            return made.stride()
        for x, bare in zip(tensors, known, strict=True):
            if (bare.shape, bare.stride()) == (made.shape, made.stride()):
                return x.stride()
        order = sorted(range(made.dim()), key=lambda d: (made.stride(d), made.size(d)))
        steps = contiguous([shape[d] for d in reversed(order)])
        return [steps[-1 - order.index(d)] for d in range(made.dim())]

    return lay


def _by_operands(*places: int, results: Sequence[int] = (0,)) -> Correction:
    """Results laid out by the operands in this order, as torch's iterator over elements does."""

    def correct(args: Args, device: torch.device) -> Corrected:
        tensors = [args[place] for place in places if isinstance(args[place], torch.Tensor)]
        if len(tensors) < 2:
            return {}
        made = _as_made(torch.add if len(tensors) == 2 else torch.addcmul, *tensors)
        laid = None if made is None else lambda x: by_operands(tensors, x) or made(x)
        return {place: KernelCorrection(laid=laid) for place in results}

    return correct


def _like(place: int, *, results: Sequence[int] = (0,)) -> Correction:
    """Results that a kernel makes like an argument: dense ones lie as that does, whatever the
    steps along dimensions of one element or of a tensor without any."""

    def correct(args: Args, device: torch.device) -> Corrected:
        laid = _as_made(torch.clone, args[place])
        return {result: KernelCorrection(laid=laid) for result in results}

    return correct


def _prelu(args: Args, device: torch.device) -> Corrected:
    """Made like the first argument, and resized by both where slopes have other dimensions."""
    like, resized = _like(0)(args, device)[0].laid, _by_operands(0, 1)(args, device)[0].laid

    def lay(shape: Sequence[Any]) -> Sequence[Any] | None:
        laid = like if same_sizes(shape, args[0].shape) else resized
        return None if laid is None else laid(shape)

    return {0: KernelCorrection(laid=lay)}


def _empty_in_rows(*places: int) -> Correction:
    """Results that are row-major where they have no elements."""
    told = KernelCorrection(laid=lambda shape: contiguous(shape) if 0 in shape else None)
    return lambda args, device: dict.fromkeys(places, told)


def _as_negated(args: Args, device: torch.device) -> Corrected:
    """Laid out by the one operand, as torch's iterator over elements does."""
    return {0: KernelCorrection(laid=_as_made(torch.neg, args[0]))}


def _angle(args: Args, device: torch.device) -> Corrected:
    """That of complex numbers is row-major."""
    return _in_rows(0)(args, device) if args[0].is_complex() else {}


def _isinf(args: Args, device: torch.device) -> Corrected:
    """A comparison of the modulus; that of whole numbers is made like them."""
    x = args[0]
    if x.is_complex() or not x.is_floating_point():
        return {} if x.is_complex() else _like(0)(args, device)
    return {0: KernelCorrection(laid=_as_made(lambda x: torch.eq(x.abs(), 1), x))}


def _huber_loss(args: Args, device: torch.device) -> Corrected:
    """Of the first argument's dtype; without reduction made like it."""
    kept = len(args) > 2 and args[2] == _NO_REDUCTION
    laid = _as_made(torch.clone, args[0]) if kept else None
    return {0: KernelCorrection(dtype=args[0].dtype, laid=laid)}


def _modulus(args: Args, device: torch.device) -> Corrected:
    """That of complex numbers is made like them."""
    return _like(0)(args, device) if args[0].is_complex() else {}


def _rotated(args: Args, device: torch.device) -> Corrected:
    """A copy, whose dimensions a turn of a quarter exchanges."""
    defaults: Args = (1, (0, 1))
    x, times, dims = (*args, *defaults[len(args) - 1 :])

    def made(x: torch.Tensor) -> torch.Tensor:
        copy = x.clone() if times % 4 else x.clone(memory_format=torch.contiguous_format)
        return copy.transpose(*dims) if times % 2 else copy

    return {0: KernelCorrection(laid=_as_made(made, x))}


def _noisy_slope(args: Args, device: torch.device) -> Corrected:
    """In training a product with the noise, else the derivative of a leaky one."""
    lower, upper, training = args[3:6]
    return _by_operands(*((2, 0) if training and upper - lower > 1e-6 else (1, 0)))(args, device)


def _vector_with_product(args: Args, device: torch.device) -> Corrected:
    """Without elements in the matrix the vector, whatever its shape."""
    x, matrix = args[:2]
    if not same_sizes((matrix.numel(),), (0,)):
        return {}
    return {0: KernelCorrection(shape=tuple(x.shape), laid=contiguous)}


def _shuffled(args: Args, device: torch.device) -> Corrected:
    """On a CPU in the format of images; without elements the argument as it lies."""
    if device.type == "cpu" and same_sizes((args[0].numel(),), (0,)):
        return {0: KernelCorrection(stride=args[0].stride())}
    return _in_format_of(0, only="cpu")(args, device)


def _distance_slope(args: Args, device: torch.device) -> Corrected:
    """Row-major; without elements like the points."""
    if any(same_sizes((x.numel(),), (0,)) for x in args[:3]):
        return _like(1)(args, device)
    return {0: KernelCorrection(laid=contiguous)}


def _in_blocks(args: Args, device: torch.device) -> Corrected:
    """The dtype that the matrices promote to, numbers aside where others have dimensions."""
    with_dims, without = ([x.dtype for x in args[0] if bool(x.dim()) == b] for b in (True, False))
    parts = [
        torch.empty((1,) * dims, dtype=functools.reduce(torch.promote_types, dtypes), device="meta")
        for dims, dtypes in enumerate((without, with_dims))
        if dtypes
    ]
    return {0: KernelCorrection(dtype=torch.result_type(parts[0], parts[-1]))}


def _batch_norm(args: Args, device: torch.device) -> Corrected:
    """Its statistics; and the result in the format of the batch, on a CPU."""
    told = dict(_statistics(args, device))
    if device.type == "cpu" and not args[0].is_contiguous():
        told[0] = KernelCorrection(laid=_suggested(args[0]))
    return told


def _dropout_slope(args: Args, device: torch.device) -> Corrected:
    """A product on a CPU; on a GPU in the format of the cotangent."""
    correct = _by_operands(0, 1) if device.type == "cpu" else _in_format_of(0)
    return correct(args, device)


def _scattered(args: Args, device: torch.device) -> Corrected:
    """Laid out as the base; one that repeats its elements is copied without."""

    def made(base: torch.Tensor) -> torch.Tensor:
        return base.clone() if expanded(base.shape, base.stride()) else base

    return {0: KernelCorrection(laid=_as_made(made, args[0]))}


def _ldexp(args: Args, device: torch.device) -> Corrected:
    """The dtype that the operands promote to, with no float32 between for half precision; laid out
    as a product of the first and the power of two, which is row-major where the first is of float32
    or whole, else as the exponents; of a float and whole exponents as the first, by newer torch."""
    x, exponents = args
    common = torch.result_type(x, exponents)
    inexact = exponents.is_floating_point() or exponents.is_complex()
    scaled = SCALES_BY_WHOLE_EXPONENTS and x.is_floating_point() and not inexact
    converted = scaled or (device.type == "cpu" and x.dtype != common)
    by_number = x.dtype == torch.float32 or not (x.is_floating_point() or x.is_complex())

    def made(first: torch.Tensor, power: torch.Tensor) -> torch.Tensor:
        first = first.clone() if converted else first
        if scaled and first.shape == torch.broadcast_shapes(first.shape, power.shape):
            return first
        if not scaled:
            power = torch.empty(power.shape, device="meta") if by_number else power.clone()
        return torch.mul(first, power)

    dtype = common if common in _REDUCED else None
    return {0: KernelCorrection(dtype=dtype, laid=_as_made(made, x, exponents))}


def _counted(args: Args, device: torch.device) -> Corrected:
    """Places and counts, which 2.11 describes in the dtype of the elements."""
    return {place: KernelCorrection(dtype=torch.int64) for place in (1, 2)}


def _spaced(args: Args, device: torch.device) -> Corrected:
    """Complex where a bound is a complex tensor."""
    is_complex = any(isinstance(x, torch.Tensor) and x.is_complex() for x in args[:2])
    return {0: KernelCorrection(is_complex=is_complex)}


def _power(args: Args, device: torch.device) -> Corrected:
    """Row-major where the base is a number; of two booleans a boolean."""
    if not isinstance(args[0], torch.Tensor):
        return {0: KernelCorrection(laid=contiguous)}
    booleans = args[0].dtype == torch.bool and isinstance(args[1], bool)
    return {0: KernelCorrection(dtype=torch.bool)} if booleans else {}


def _of_first(*, only: str = "", laid: Layout | None = None) -> Correction:
    """The dtype of the first argument: losses have that of what is judged, whatever the target's;
    the CPU's derivatives of softmax that of the cotangent, whatever the call says."""

    def correct(args: Args, device: torch.device) -> Corrected:
        same = device.type == only or not only
        return {0: KernelCorrection(dtype=args[0].dtype if same else None, laid=laid)}

    return correct


def _outer_product(args: Args, device: torch.device) -> Corrected:
    """What the dtypes promote to, numbers of dimensions aside."""
    dtypes = (each.dtype for each in args[:3])
    return {0: KernelCorrection(dtype=functools.reduce(torch.promote_types, dtypes))}


def _summed_over_none(args: Args, device: torch.device) -> Corrected:
    """No dimensions are all of them to the kernel."""
    x, dims, keepdim = (*args, None, False)[:3] if len(args) < 3 else args[:3]
    if dims is None or len(dims) or not x.dim():
        return {}
    shape = (1,) * x.dim() if keepdim else ()
    return {0: KernelCorrection(shape=shape, laid=contiguous)}


def _masked_index_of_nothing(args: Args, device: torch.device) -> Corrected:
    """Of a tensor without elements, the dimensions that no index is given for are empty."""
    x, _, indices, *_ = args
    rest = x.dim() - len(indices)
    if any(index is None for index in indices) or not same_sizes((x.numel(),), (0,)):
        return {}
    shape = (*torch.broadcast_shapes(*[index.shape for index in indices]), *[0] * rest)
    return {0: KernelCorrection(shape=shape, laid=contiguous)}


def _batch_norm_slope(args: Args, device: torch.device) -> Corrected:
    """In the format of the batch; on CUDA row-major where the statistics are the running ones."""
    if device.type == "cuda" and not args[7]:
        return {0: KernelCorrection(laid=contiguous)}
    return _in_format_of(1)(args, device)


_ROWS = (
    "mse_loss_backward smooth_l1_loss_backward huber_loss_backward glu_backward tril triu"
    " _log_softmax"
)
_REDUCTIONS = "sum mean amin amax prod var std col2im"
_OPERANDS = (
    "hardswish_backward hardtanh_backward logit_backward xlogy"
    " special_xlog1py copysign div floor_divide heaviside logaddexp logaddexp2"
    " logical_and logical_or logical_xor complex polar softplus_backward"
)
_LIKE_FIRST = (
    "ones_like zeros_like full_like empty_like fill flip nan_to_num hardtanh deg2rad rad2deg"
    " _conj_physical log_sigmoid_backward index_put"
    " _unsafe_masked_index_put_accumulate"
)
_LIKE_SECOND = "binary_cross_entropy_backward nll_loss2d_backward"

_KEEP_STATISTICS = (
    "_native_batch_norm_legit _native_batch_norm_legit_functional"
    " _native_batch_norm_legit_no_training native_layer_norm native_group_norm"
)

CORRECTIONS: dict[str, Correction] = {
    **{f"aten::{name}": _in_rows(0) for name in _ROWS.split()},
    **{f"aten::{name}": _by_operands(0, 1) for name in _OPERANDS.split()},
    **{f"aten::{name}": _like(0) for name in _LIKE_FIRST.split()},
    **{f"aten::{name}": _like(1) for name in _LIKE_SECOND.split()},
    **{f"aten::{name}": _like(0, results=(0, 1)) for name in ("sort", "frexp")},
    **{f"aten::{name}_scatter": _scattered for name in ("slice", "select", "diagonal")},
    "aten::_reshape_alias": lambda args, device: {0: KernelCorrection(stride=args[2])},
    "aten::elu_backward": _by_operands(0, 5),
    "aten::rsub": _by_operands(1, 0),
    "aten::hardswish": _as_negated,
    "aten::isinf": _isinf,
    "aten::angle": _angle,
    "aten::leaky_relu_backward": _by_operands(1, 0),
    "aten::threshold_backward": _by_operands(1, 0),
    "aten::native_layer_norm_backward": _in_rows(0, 1, 2),
    "aten::_fused_rms_norm_backward": _in_rows(0, 1),
    "aten::native_batch_norm_backward": _batch_norm_slope,
    "aten::batch_norm_backward": _in_format_of(1),
    "aten::native_group_norm_backward": _in_format_of(1, only="cpu"),
    "aten::_cdist_backward": _distance_slope,
    "aten::replication_pad2d_backward": _in_format_of(1, only="cpu"),
    "aten::channel_shuffle": _shuffled,
    "aten::pixel_unshuffle": _shuffled,
    "aten::max_unpool2d": _in_format_of(0, only="cpu"),
    "aten::upsample_bilinear2d": _in_format_of(0),
    "aten::upsample_bicubic2d": _in_format_of(0),
    "aten::upsample_trilinear3d": _in_format_of(0),
    "aten::log_sigmoid_forward": _in_rows(0, 1, only="cpu"),
    "aten::native_dropout_backward": _dropout_slope,
    "aten::pow": _power,
    "aten::addr": _outer_product,
    "aten::huber_loss": _huber_loss,
    **{f"aten::{name}": _empty_in_rows(0) for name in _REDUCTIONS.split()},
    **{f"aten::{name}": _empty_in_rows(0, 1) for name in ("aminmax", "var_mean", "std_mean")},
    "aten::linalg_vector_norm": _in_rows(0),
    "aten::abs": _modulus,
    "aten::_prelu_kernel": _prelu,
    "aten::rot90": _rotated,
    "aten::masked_fill": _in_rows(0),
    "aten::rrelu_with_noise_backward": _noisy_slope,
    "aten::_prelu_kernel_backward": _by_operands(1, 2, 0, results=(0, 1)),
    "aten::addmv": _vector_with_product,
    "aten::block_diag": _in_blocks,
    "aten::nansum": _summed_over_none,
    "aten::_unsafe_masked_index": _masked_index_of_nothing,
    "aten::soft_margin_loss": _of_first(),
    "aten::ldexp": _ldexp,
    "aten::linspace": _spaced,
    "aten::logspace": _spaced,
    "aten::native_batch_norm": _batch_norm,
    **{f"aten::{name}": _statistics for name in _KEEP_STATISTICS.split()},
    **{f"aten::{name}": _counted for name in ("_unique2", "unique_dim", "unique_consecutive")},
    "aten::unique_dim_consecutive": _counted,
    "aten::_softmax_backward_data": _of_first(only="cpu"),
    "aten::_log_softmax_backward_data": _of_first(only="cpu", laid=contiguous),
    "aten::multi_margin_loss": _loss_of_one_sample,
    "aten::multilabel_margin_loss_forward": _loss_of_one_sample,
}
"""By the operator's name: from its arguments, what differs of each result."""


def _slope_of_images(args: Args) -> str:
    """The gradient is laid out as the second argument, where that is dense."""
    numbers = [*args[1].shape, *args[1].stride()]
    if not all(isinstance(n, int) for n in numbers):
        return ""
    bare = torch.empty_strided(args[1].shape, args[1].stride(), device="meta")
    return "" if torch.empty_like(bare).is_contiguous() else "grad_input must be contiguous"


REFUSED: dict[str, Callable[[Args], str]] = {"aten::nll_loss2d_backward": _slope_of_images}
"""By the operator's name: from its arguments, what its kernels say where they refuse a layout that
their description takes; else nothing."""
