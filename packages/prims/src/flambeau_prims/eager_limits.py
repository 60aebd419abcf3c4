"""Limits of eager's kernels: dtypes and devices that they refuse where a decomposition would not.

In: an ATen operation's name, its tensors. Out: whether eager refuses them.
Invariant: an operation that is refused is left as it is, so that eager's own kernel refuses it, in
its words. Tests hold the names to torch's own declarations (`dtypes` less `dtypesIfCUDA`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from flambeau_prims.ops.library.linalg import LAPACK
from flambeau_prims.ops.pointwise import ANY, FLOATS, INEXACT, INTS, REAL
from flambeau_prims.promotion import result_type

Kind = frozenset[torch.dtype]
_WIDE: Kind = frozenset({torch.float32, torch.float64})
_SIGNED: Kind = REAL - {torch.uint8}


def _kinds(names: str, kind: Kind) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), kind)


EVERYWHERE: Mapping[str, Kind] = {
    **_kinds(
        "gelu silu mish softplus elu selu celu hardswish hardsigmoid log_sigmoid_forward frac"
        " hardshrink softshrink leaky_relu _prelu_kernel",
        FLOATS,
    ),
    **_kinds("silu", INEXACT),
    **_kinds("_softmax _log_softmax", FLOATS),
    **_kinds("ceil floor round trunc threshold relu mvlgamma", REAL),
    **_kinds("deg2rad rad2deg isneginf isposinf sign logit", REAL | {torch.bool}),
    **_kinds("hardtanh", _SIGNED),
    **_kinds("linalg_matrix_exp", LAPACK | {torch.float16, torch.bfloat16}),
    **_kinds("special_erfcx", INTS | {torch.bool} | _WIDE),
    **_kinds(
        "linalg_cholesky_ex cholesky linalg_qr _linalg_svd _linalg_eigh linalg_eig _linalg_eigvals"
        " linalg_lu_factor_ex linalg_lu linalg_ldl_factor_ex linalg_householder_product geqrf"
        " ormqr cholesky_solve _cholesky_solve_helper cholesky_inverse linalg_solve_triangular"
        " triangular_solve linalg_lu_solve _linalg_solve_ex linalg_inv_ex _linalg_det"
        " _linalg_slogdet linalg_ldl_solve linalg_lstsq linalg_pinv",
        LAPACK,
    ),
}
_SPECIAL = (
    "zeta ndtri log_ndtr airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0"
    " modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0"
    " scaled_modified_bessel_k1 spherical_bessel_j0 chebyshev_polynomial_t chebyshev_polynomial_u"
    " chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_t"
    " shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"
    " hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p"
)
ON_CPU: Mapping[str, Kind] = {
    **_kinds("abs dot vdot addcmul trace bmm _trilinear", INTS | INEXACT),
    **_kinds(
        "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d"
        " replication_pad3d",
        INTS | INEXACT,
    ),
    **_kinds("clamp clamp_min clamp_max isin argmax argmin index_reduce", REAL),
    **_kinds("amax amin xlogy special_xlog1py", REAL | {torch.bool}),
    **_kinds("logaddexp logaddexp2 lerp", INEXACT),
    **_kinds(
        "native_group_norm native_layer_norm native_batch_norm _native_batch_norm_legit"
        " _batch_norm_with_update _adaptive_avg_pool3d glu igamma igammac nll_loss_forward"
        " nll_loss2d_forward max_unpool2d max_unpool3d",
        FLOATS,
    ),
    **_kinds(
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d"
        " _upsample_nearest_exact2d _upsample_nearest_exact3d",
        FLOATS | {torch.uint8},
    ),
    **_kinds("im2col", ANY - INTS),
    **_kinds("avg_pool3d", _WIDE | {torch.int64}),
    **_kinds("polar multi_margin_loss multilabel_margin_loss_forward", _WIDE),
    **_kinds(" ".join(f"special_{name}" for name in _SPECIAL.split()), INTS | {torch.bool} | _WIDE),
    **_kinds("nansum", REAL | {torch.bool}),
}
ON_GPU: Mapping[str, Kind] = {
    **_kinds("igamma igammac", _WIDE),
    **_kinds("angle", ANY - {torch.float16, torch.bfloat16}),
    **_kinds("addmv mv dot vdot addmm mm baddbmm bmm", INEXACT),
}


OF_OVERLOADS: Mapping[str, Kind] = _kinds("clamp_min.Tensor clamp_max.Tensor", REAL | {torch.bool})
"""On a CPU, by the name of an overload whose kernel is not that of the others."""


OF_ONE_DTYPE = frozenset({"heaviside", "lerp"})
"""Operations whose tensors are all of one dtype."""


def is_limited(name: str) -> bool:
    """Whether a formula takes more than eager's kernels, on some device."""
    return (
        name in OF_ONE_DTYPE
        or any(name in kinds for kinds in (EVERYWHERE, ON_CPU, ON_GPU))
        or bool(refused_on_cuda(name))
    )


def is_refused(overload: str, x: torch.Tensor, *others: torch.Tensor) -> bool:
    """Whether eager's kernel for the device of `x`, the first tensor, does not take its dtype: of
    operands that are promoted, what they are promoted to with the `others`."""
    name = overload.partition(".")[0]
    if name in OF_ONE_DTYPE and any(each.dtype != x.dtype for each in others):
        return True
    gpu = any(each.device.type == "cuda" for each in (x, *others))
    dtype = result_type((x, *others))
    kind = (ON_GPU if gpu else ON_CPU).get(name, EVERYWHERE.get(name))
    kind = kind if gpu else OF_OVERLOADS.get(overload, kind)
    if kind is not None and dtype not in kind:
        return True
    return gpu and dtype in refused_on_cuda(name)


HALVES = frozenset({torch.float16, torch.bfloat16})
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
LONG = frozenset({torch.int64})
BYTES = frozenset({torch.uint8})

NOT_ON_CUDA: dict[str, frozenset[torch.dtype]] = {
    **dict.fromkeys(("angle", "igamma", "igammac", "histc"), HALVES),
    **dict.fromkeys(("mm", "bmm", "addmm", "addbmm", "baddbmm", "_trilinear"), INTEGERS),
    **dict.fromkeys(("mv", "addmv", "dot", "vdot"), INTEGERS),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), INTEGERS),
    **dict.fromkeys(("native_dropout_backward",), INTEGERS | {torch.bool}),
    **dict.fromkeys(("avg_pool2d", "avg_pool3d", "convolution"), LONG),
    **dict.fromkeys(("upsample_bilinear2d", "upsample_bicubic2d"), BYTES),
    "_upsample_bilinear2d_aa": BYTES,
}
"""By the name of the operator, its in-place form included."""


def refused_on_cuda(name: str) -> frozenset[torch.dtype]:
    """The dtypes of its first operand that an operator does not take on a CUDA device."""
    return NOT_ON_CUDA.get(name.rstrip("_"), frozenset())


ON_ONE_DEVICE = frozenset(
    {
        *("clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor", "masked_fill.Scalar"),
        *("gcd", "lcm", "igamma", "igammac", "nextafter", "logaddexp", "logaddexp2"),
        *("threshold_backward", "sigmoid_backward", "tanh_backward", "silu_backward"),
        *("gelu_backward", "logit_backward", "native_dropout_backward"),
    }
)
"""Operations whose arguments are all on one device, whatever their dimensions."""

ONLY_LAST = frozenset({"addcmul", "lerp.Tensor", "logical_and", "logical_or", "logical_xor"})
"""Operations that take their last operand alone from a CPU."""

NEVER = frozenset({"addcdiv", "mse_loss", "smooth_l1_loss"})
"""Operations that take none from a CPU."""

REAL_ONLY = frozenset({"logical_and", "logical_or", "logical_xor"})
"""Operations whose kernels for complex numbers take none from a CPU."""

ANYWHERE = frozenset({"where.self", "masked_fill.Tensor"})
"""Operations that move 0-d tensors themselves, any number of them."""


def on_different_devices(name: str, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether eager refuses these operands of a pointwise operation for their devices."""
    devices = {x.device for x in tensors}
    if len(devices) < 2:
        return False
    numbers = [i for i, x in enumerate(tensors) if x.ndim == 0 and x.device.type == "cpu"]
    rest = {x.device for i, x in enumerate(tensors) if i not in numbers}
    if name in ON_ONE_DEVICE | NEVER or len(rest) > 1:
        return True
    if name in REAL_ONLY and result_type(tensors).is_complex:
        return True
    if name in ANYWHERE:
        return False
    return len(numbers) > 1 or (name in ONLY_LAST and numbers != [len(tensors) - 1])
