"""Allowed differences from eager, each with its reason.

In: an operation of the database and a dtype. Out: the reason, or None.
Invariant: short, and each entry is a sentence that a user can check.
"""

from __future__ import annotations

import re

# (operation, dtype or "*"): reason
DIFFERENCES: dict[tuple[str, str], str] = {
    **{
        (name, "*"): "elements that were never written have no value to compare"
        for name in (
            "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
            "new_empty_strided",
        )
    },
    ("svd_lowrank", "complex64"): (
        "a subspace iteration from random vectors magnifies the rounding of each product"
    ),
    ("matrix_exp", "bfloat16"): (
        "eager's products overflow to NaN in bfloat16; the primitive computes them in float32"
    ),
    ("nn.functional.hardsigmoid", "float64"): (
        "eager multiplies the gradient by 1/6 rounded to float32; the division here is exact"
    ),
}  # fmt: skip


AT_LIMITS: tuple[tuple[str, str], ...] = (
    (
        r"_?(native_)?batch_norm.*|_native_batch_norm_legit|native_(layer|group)_norm"
        r"|nn\.functional\.(batch|layer|group|instance|rms)_norm",
        "statistics are added up in float32 and in another order than eager's: sums of numbers near"
        " the largest overflow, and means of infinities are NaN, at other places",
    ),
    (
        r"_softmax_backward_data|.*_safe_softmax.*",
        "an operand stands for the result of a softmax, which has no such values",
    ),
    (
        r"prod|masked\.prod",
        "eager counts zeros first: where there are two the gradient is zero whatever else there is",
    ),
    (
        r"(linalg\.)?cross|addbmm|nn\.functional\.bilinear|.*mm|.*mv|.*mul|einsum|inner|tensordot",
        "products of numbers near the largest are added in another order, or contracted",
    ),
    (
        r"fft\..*|.*stft",
        "sums overflow before they are divided, where a library divides on the way",
    ),
    (
        r"(linalg\.)?norm",
        "of one number eager has its square, which overflows; here it is the number",
    ),
    (
        r"cumprod|masked\.cumprod|index_reduce\..*|nn\.functional\.nll_loss",
        "in half precision eager rounds, and overflows, after every product and sum",
    ),
    (
        r"fmod|remainder|__rmod__|floor_divide|div\.floor_rounding",
        "of quotients that are too large for them eager's vectors of float32 have NaN",
    ),
    (
        r"linalg\..*|cholesky.*|svd.*|pinverse|lu.*|qr|geqrf|ormqr|.*lowrank|logdet|matrix_exp",
        "a library's answer to matrices of what is no number is its own",
    ),
    (
        r"nn\.functional\.(hardswish|hardtanh|hardshrink|softshrink|relu6)|logit",
        "of NaN and zeros eager's vectors take another side than the elements behind the last one",
    ),
)
"""By a pattern of names, where values are at the limits of a dtype (`database.VALUES`): the reason
for a difference."""


def difference(name: str, dtype: str, values: str = "samples") -> str | None:
    """The reason why `name` may differ at `dtype`, of such values; None if it may not."""
    if values != "samples":
        for pattern, reason in AT_LIMITS:
            if re.fullmatch(pattern, name):
                return reason
    return DIFFERENCES.get((name, dtype)) or DIFFERENCES.get((name, "*"))
