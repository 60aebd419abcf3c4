"""Complex primitives.

In: real tensors, or complex ones. Out: complex tensors, or views of their parts.
Invariant: real and imaginary part lie next to each other in memory, so that the parts of a
complex tensor are views of it; no tensor carries a conjugation that is yet to be done.
"""

from __future__ import annotations

import torch

from flambeau_prims._op import define, flops_per_output, require
from flambeau_prims.layout import TensorMeta
from flambeau_prims.ops.pointwise import COMPLEX, elementwise

COMPLEX_OF = {
    torch.float16: torch.complex32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}
REAL_OF = {whole: part for part, whole in COMPLEX_OF.items()}
_PAIRS = "IEEE 754 pairs as in C11, annex G"


def _complex_rule(re: TensorMeta, im: TensorMeta) -> TensorMeta:
    require(re.dtype == im.dtype, f"complex: parts of dtypes {re.dtype} and {im.dtype}")
    require(re.dtype in COMPLEX_OF, f"complex: not defined on {re.dtype}")
    return elementwise("complex", re, im, dtype=COMPLEX_OF[re.dtype])


def require_complex(name: str, a: TensorMeta) -> None:
    """Raise unless `a` is complex."""
    require(a.dtype in COMPLEX, f"{name}: not defined on {a.dtype}, only on complex dtypes")


complex_ = define(
    "complex(Tensor re, Tensor im) -> Tensor",
    rule=_complex_rule,
    eager=torch.complex,
    tags=("pointwise", "complex"),
    doc="`re + i im`, the two parts as they are.",
    shape="that of the operands, which are equal; the complex dtype of twice the width",
    edge_cases={"nan": "a NaN or infinity in one part leaves the other part as it is"},
    source=_PAIRS,
)


def _conj_rule(a: TensorMeta) -> TensorMeta:
    require_complex("conj", a)
    return elementwise("conj", a)


conj = define(
    "conj(Tensor a) -> Tensor",
    rule=_conj_rule,
    eager=torch.conj_physical,
    tags=("pointwise", "complex"),
    doc="`re - i im`, computed: a new tensor, not a marked view.",
    shape="that of the operand",
    edge_cases={"signed zero": "an imaginary part of 0 becomes -0"},
    source=_PAIRS,
    flops=flops_per_output(1),
)


def _halved(name: str, a: TensorMeta) -> TensorMeta:
    require_complex(name, a)
    return a.like(a.shape, [2 * s for s in a.stride], dtype=REAL_OF[a.dtype])


real = define(
    "real(Tensor(a) a) -> Tensor(a)",
    rule=lambda a: _halved("real", a),
    eager=lambda a: torch.view_as_real(a.resolve_conj())[..., 0],
    tags=("view", "complex"),
    doc="The real parts of a complex tensor.",
    shape="that of the operand; the real dtype of half the width; strides doubled",
    edge_cases={"signed zero": "the part as it is stored, its sign and NaN payload too"},
    source=_PAIRS,
)

imag = define(
    "imag(Tensor(a) a) -> Tensor(a)",
    rule=lambda a: _halved("imag", a),
    eager=lambda a: torch.view_as_real(a.resolve_conj())[..., 1],
    tags=("view", "complex"),
    doc="The imaginary parts of a complex tensor.",
    shape="that of the operand; the real dtype of half the width; strides doubled",
    edge_cases={"signed zero": "the part as it is stored, its sign and NaN payload too"},
    source=_PAIRS,
)


def _view_as_real_rule(a: TensorMeta) -> TensorMeta:
    require_complex("view_as_real", a)
    return a.like((*a.shape, 2), (*(2 * s for s in a.stride), 1), dtype=REAL_OF[a.dtype])


view_as_real = define(
    "view_as_real(Tensor(a) a) -> Tensor(a)",
    rule=_view_as_real_rule,
    eager=lambda a: torch.view_as_real(a.resolve_conj()),
    tags=("view", "complex"),
    doc="The same memory as real numbers: (re, im) along a new last dimension.",
    shape="the operand's with a dimension of size 2 behind it",
    edge_cases={"empty": "a 0-d number gives two elements"},
    source=_PAIRS,
)


def _view_as_complex_rule(a: TensorMeta) -> TensorMeta:
    require(a.dtype in COMPLEX_OF, f"view_as_complex: not defined on {a.dtype}")
    require(
        a.ndim > 0 and bool(a.shape[-1] == 2) and bool(a.stride[-1] == 1),
        f"view_as_complex: the last dimension of {a.shape} (strides {a.stride}) is not a pair",
    )
    require(
        all(bool(s % 2 == 0) for s in a.stride[:-1]),
        f"view_as_complex: strides {a.stride} are not even",
    )
    strides = [s // 2 for s in a.stride[:-1]]
    return a.like(a.shape[:-1], strides, dtype=COMPLEX_OF[a.dtype])


view_as_complex = define(
    "view_as_complex(Tensor(a) a) -> Tensor(a)",
    rule=_view_as_complex_rule,
    eager=torch.view_as_complex,
    tags=("view", "complex"),
    doc="The same memory as complex numbers: the inverse of `view_as_real`.",
    shape="the operand's without its last dimension, which must be 2 long with stride 1",
    edge_cases={"out of range": "odd strides or a last dimension that is no pair are refused"},
    source=_PAIRS,
)
