"""Complex primitives.

In: real tensors, or complex ones. Out: complex tensors, or views of their parts.
Invariant: real and imaginary part lie next to each other in memory, so that the parts of a
complex tensor are views of it; no tensor carries a conjugation that is yet to be done.
"""

from __future__ import annotations

from functools import partial

import torch

from flambeau_prims._op import flops_per_output, primitive, require
from flambeau_prims.ops.pointwise import COMPLEX, SAME_AS_COPIED, elementwise, kept_layout
from flambeau_prims.shape_rules import TensorMeta

COMPLEX_OF = {
    torch.float16: torch.complex32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}
REAL_OF = {whole: part for part, whole in COMPLEX_OF.items()}
_PAIRS = "IEEE 754 pairs as in C11, annex G"
_pointwise = partial(primitive, tags=("pointwise", "complex"), source=_PAIRS)
_view = partial(primitive, tags=("view", "complex"), source=_PAIRS)


def require_complex(a: TensorMeta) -> None:
    """Raise unless `a` is complex."""
    require(a.dtype in COMPLEX, f"not defined on {a.dtype}, only on complex dtypes")


@_pointwise(
    "complex(Tensor re, Tensor im) -> Tensor",
    torch.complex,
    shape="that of the operands, which are equal; the complex dtype of twice the width",
    edge_cases={"nan": "a NaN or infinity in one part leaves the other part as it is"},
)
def complex_(re: TensorMeta, im: TensorMeta) -> TensorMeta:
    """`re + i im`, the two parts as they are."""
    require(re.dtype == im.dtype, f"parts of dtypes {re.dtype} and {im.dtype}")
    require(re.dtype in COMPLEX_OF, f"not defined on {re.dtype}")
    return elementwise(re, im, dtype=COMPLEX_OF[re.dtype])


@_pointwise(
    "conj(Tensor a) -> Tensor",
    torch.conj_physical,
    shape=SAME_AS_COPIED,
    edge_cases={"signed zero": "an imaginary part of 0 becomes -0"},
    flops=flops_per_output(1),
)
def conj(a: TensorMeta) -> TensorMeta:
    """`re - i im`, computed: a new tensor, not a marked view."""
    require_complex(a)
    return kept_layout(a)


def _define_part(name: str, of: str, place: int) -> None:
    @_view(
        f"{name}(Tensor(a) a) -> Tensor(a)",
        lambda a: torch.view_as_real(a.resolve_conj())[..., place],
        doc=f"The {of} parts of a complex tensor.",
        shape="that of the operand; the real dtype of half the width; strides doubled",
        edge_cases={"signed zero": "the part as it is stored, its sign and NaN payload too"},
    )
    def part(a: TensorMeta) -> TensorMeta:
        require_complex(a)
        return a.like(a.shape, [2 * s for s in a.stride], dtype=REAL_OF[a.dtype])


_define_part("real", "real", 0)
_define_part("imag", "imaginary", 1)


@_view(
    "view_as_real(Tensor(a) a) -> Tensor(a)",
    lambda a: torch.view_as_real(a.resolve_conj()),
    shape="the operand's with a dimension of size 2 behind it",
    edge_cases={"empty": "a 0-d number gives two elements"},
)
def view_as_real(a: TensorMeta) -> TensorMeta:
    """The same memory as real numbers: (re, im) along a new last dimension."""
    require_complex(a)
    return a.like((*a.shape, 2), (*(2 * s for s in a.stride), 1), dtype=REAL_OF[a.dtype])


@_view(
    "view_as_complex(Tensor(a) a) -> Tensor(a)",
    torch.view_as_complex,
    shape="the operand's without its last dimension, which must be 2 long with stride 1",
    edge_cases={"out of range": "odd strides or a last dimension that is no pair are refused"},
)
def view_as_complex(a: TensorMeta) -> TensorMeta:
    """The same memory as complex numbers: the inverse of `view_as_real`."""
    require(a.dtype in COMPLEX_OF, f"not defined on {a.dtype}")
    require(
        a.ndim > 0 and bool(a.shape[-1] == 2) and bool(a.stride[-1] == 1),
        f"the last dimension of {a.shape} (strides {a.stride}) is not a pair",
    )
    require(all(bool(s % 2 == 0) for s in a.stride[:-1]), f"strides {a.stride} are not even")
    strides = [s // 2 for s in a.stride[:-1]]
    return a.like(a.shape[:-1], strides, dtype=COMPLEX_OF[a.dtype])
