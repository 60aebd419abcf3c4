"""Half precision beside a tensor of another dtype: which of both eager's kernels round first."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_prims
import pytest
import torch
from torch import fx

OTHERS = (torch.float32, torch.float64, torch.int64, torch.int8, torch.bool)
FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    name: getattr(torch, name)
    for name in (
        "add", "sub", "mul", "div", "floor_divide", "fmod", "remainder", "maximum", "fmin", "lt",
        "ne", "hypot", "copysign",
    )
} | {
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "addcmul": lambda a, b: torch.addcmul(b, a, a),
}  # fmt: skip


def made(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 3
    return drawn.to(dtype) if dtype.is_floating_point else (1 + 9.3 * drawn.abs()).to(dtype)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_tensor_of_another_dtype_is_rounded_where_eager_rounds_it(
    name: str, half: torch.dtype
) -> None:
    """Rounded to the common dtype first, but for what divides or multiplies as a number."""
    for other, shape, swapped in itertools.product(OTHERS, [(), (500,)], [False, True]):
        if name == "sub" and other is torch.bool:
            continue
        given: list[Any] = [made(half, (500,)) + 0.5, made(other, shape)]
        given = given[::-1] if swapped else given
        lowered = flambeau_prims.lower(fx.symbolic_trace(lambda a, b: FUNCTIONS[name](a, b)), given)
        wanted = FUNCTIONS[name](*given)
        got = lowered(*given)
        got = got[0] if isinstance(got, tuple) else got
        told = f"{other}, {shape}, {'second' if swapped else 'first'}"
        torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True, msg=told)
