"""Half precision beside a tensor of another dtype: which of both eager's kernels round first."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_prims
import pytest
import torch
from flambeau_prims.decomp import emit
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


@pytest.mark.sweep(2)
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


QUOTIENTS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.bool)
DIVISORS = (1e-3, 0.1, 7, -1.1, 300.7, 1e38, 1e-40, 0.0, -0.0, True, 3e-5)


@pytest.mark.parametrize("dtype", QUOTIENTS, ids=str)
@pytest.mark.parametrize("given", ["number", torch.float64, torch.float32, torch.float16], ids=str)
def test_a_gpu_multiplies_by_a_reciprocal_in_double_precision(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, given: Any
) -> None:
    """Of a number, or of a 0-d tensor of a CPU's, which eager's kernel takes for one; rounded to
    what is computed in, as is the product."""
    monkeypatch.setattr(emit, "on_gpu", lambda *operands: True)
    div = flambeau_prims.decompositions()[torch.ops.aten.div.Tensor]
    x = made(dtype, (500,))
    for divisor in DIVISORS:
        by = divisor if given == "number" else torch.tensor(float(divisor), dtype=given)
        result = torch.div(x, by).dtype
        compute = torch.float64 if result == torch.float64 else torch.float32
        inverse = (1.0 / torch.as_tensor(by, dtype=torch.float64)).to(compute)
        wanted = (x.to(result).to(compute) * inverse).to(result)
        told = f"by {divisor}"
        torch.testing.assert_close(div(x, by), wanted, rtol=0, atol=0, equal_nan=True, msg=told)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_a_gpu_multiplies_complex_numbers_by_a_reciprocal(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Of zero it is no number, nor is any quotient."""
    monkeypatch.setattr(emit, "on_gpu", lambda *operands: True)
    div = flambeau_prims.decompositions()[torch.ops.aten.div.Tensor]
    x = torch.complex(made(torch.float64, (500,)), made(torch.float64, (500,)) + 1).to(dtype)
    for divisor in (1e-3, 7, -1.1, True, torch.tensor(7), torch.tensor(0.1), torch.tensor(1e-3)):
        torch.testing.assert_close(div(x, divisor), x / divisor)
    for divisor in (0, 0.0, -0.0, False, torch.tensor(0), torch.tensor(False), torch.tensor(0.0)):
        assert torch.view_as_real(div(x, divisor)).isnan().all()
