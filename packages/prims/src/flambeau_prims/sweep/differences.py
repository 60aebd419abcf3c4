"""Where results are allowed to differ from eager, and why.

In: an operation of the database and a dtype. Out: the reason, or None.
Invariant: short, and each entry is a sentence that a user can check.
"""

from __future__ import annotations

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


def difference(name: str, dtype: str) -> str | None:
    """The reason why `name` may differ at `dtype`; None if it may not."""
    return DIFFERENCES.get((name, dtype)) or DIFFERENCES.get((name, "*"))
