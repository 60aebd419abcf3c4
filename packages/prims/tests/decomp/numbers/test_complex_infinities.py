"""Complex numbers with infinite parts, or parts that are no number: which part of a result is none
is eager's, whose kernels multiply by one where the others do not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import flambeau_prims
import pytest
import torch
from flambeau_prims.decomp import emit
from torch import Tensor, fx

PARTS = (0.5, torch.inf, -torch.inf, torch.nan, 0.0)
NUMBERS = [complex(a, b) for a, b in product(PARTS, repeat=2)]
PAIRS = torch.tensor(list(product(NUMBERS, repeat=2)))

OF: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "alpha": lambda a, b: torch.add(a, b, alpha=2),
    "sub": lambda a, b: torch.sub(a, b, alpha=1.5),
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
    "addcmul value": lambda a, b: torch.addcmul(a, b, b, value=2),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b),
    "addcdiv value": lambda a, b: torch.addcdiv(b, a, b, value=2),
    "logaddexp": lambda a, b: torch.logaddexp(a, b),
    "silu": lambda a, b: torch.nn.functional.silu(a * 90 + b),
    "sigmoid": lambda a, b: torch.sigmoid(a * 90 + b),
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("name", OF)
def test_parts_are_those_of_eager(name: str, dtype: torch.dtype) -> None:
    a, b = PAIRS.to(dtype).unbind(1)
    low = flambeau_prims.lower(fx.symbolic_trace(OF[name]), [a, b])
    given, expected = (torch.view_as_real(made) for made in (low(a, b), OF[name](a, b)))
    torch.testing.assert_close(given, expected, equal_nan=True)


KEPT: dict[Any, Callable[[Tensor], Any]] = {
    torch.ops.aten.silu.default: lambda x: (x,),
    torch.ops.aten.addcmul.default: lambda x: (x, x, x),
    torch.ops.aten.addcdiv.default: lambda x: (x, x, x),
}


@pytest.mark.parametrize("overload", KEPT, ids=str)
def test_kernels_for_a_gpu_with_rules_of_their_own_stay(
    overload: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eager has rules of two kinds for infinite complex numbers, each in some of its kernels."""
    decompose = flambeau_prims.decompositions()[overload]
    monkeypatch.setattr(emit, "on_gpu", lambda *some: True)
    assert decompose(*KEPT[overload](PAIRS[:, 0])) is NotImplemented
    real = decompose(*KEPT[overload](PAIRS[:, 0].real))
    torch.testing.assert_close(real, overload(*KEPT[overload](PAIRS[:, 0].real)), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["sum", "nansum", "prod", "mean"])
def test_elements_are_rounded_to_the_dtype_that_is_asked_for(name: str, dtype: torch.dtype) -> None:
    if name == "prod" and dtype != torch.float32:
        pytest.skip("eager rounds every product")
    x = 1 + torch.arange(40.0, dtype=torch.float64) / 3001

    def program(x: Tensor) -> Tensor:
        return getattr(torch, name)(x, dtype=dtype)

    low = flambeau_prims.lower(fx.symbolic_trace(program), [x])
    torch.testing.assert_close(low(x), program(x), rtol=torch.finfo(dtype).eps, atol=0)
