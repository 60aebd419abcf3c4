"""Dtypes that eager's kernels take, where a decomposition would take more.

In: an ATen operation's name, its tensors. Out: whether eager refuses that.
Invariant: an operation on any other dtype is left as it is, so that eager's own kernel refuses it,
in its words.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from flambeau_prims.cuda_dtypes import refused_on_cuda
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
        " hardshrink softshrink leaky_relu",
        FLOATS,
    ),
    **_kinds("silu", INEXACT),
    **_kinds("_softmax _log_softmax", FLOATS),
    **_kinds("ceil floor round trunc threshold relu", REAL),
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
ON_CPU: Mapping[str, Kind] = {
    **_kinds("abs", INTS | INEXACT),
    **_kinds("nansum", REAL | {torch.bool}),
}
ON_GPU: Mapping[str, Kind] = {
    **_kinds("igamma igammac", _WIDE),
    **_kinds("angle", ANY - {torch.float16, torch.bfloat16}),
    **_kinds("addmv mv dot vdot addmm mm baddbmm bmm", INEXACT),
}


def is_limited(name: str) -> bool:
    """Whether a formula takes more than eager's kernels, on some device."""
    return any(name in kinds for kinds in (EVERYWHERE, ON_CPU, ON_GPU)) or bool(
        refused_on_cuda(name)
    )


def is_refused(name: str, x: torch.Tensor, *others: torch.Tensor) -> bool:
    """Whether eager's kernel for the device of `x`, the first tensor, does not take its dtype: of
    operands that are promoted, what they are promoted to with the `others`."""
    gpu = any(each.device.type == "cuda" for each in (x, *others))
    dtype = result_type((x, *others))
    kind = (ON_GPU if gpu else ON_CPU).get(name, EVERYWHERE.get(name))
    if kind is not None and dtype not in kind:
        return True
    return gpu and dtype in refused_on_cuda(name)
