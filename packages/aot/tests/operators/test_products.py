"""Derivatives of `prod`, for which eager has a formula by the number of zeros."""

from __future__ import annotations

from collections.abc import Callable

import flambeau_aot as aot
import pytest
import torch

INF, NAN = float("inf"), float("nan")
ROWS = [
    [INF, 2, 3], [NAN, 2, 3], [-INF, INF, 1], [INF, 0, 3], [INF, 0, 0], [0, 0, NAN], [0, 2, 3],
    [0, 0, 3], [1, 2, 3], [INF], [0], [],
]  # fmt: skip
FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "of all": lambda x: x.prod() * 2,
    "of rows": lambda x: torch.stack([x + 1, x, x]).prod(1) * 2,
    "of columns": lambda x: torch.prod(torch.stack([x, x + 1]), dim=0, keepdim=True) * 2,
    "of all rows": lambda x: torch.stack([x + 1, x, x]).prod() * 2,
    "in double": lambda x: x.prod(0, dtype=torch.float64) * 2,
    "zeros of the dtype": lambda x: (x.double() + 1e-60).prod(dtype=torch.float32) * 2,
}


@pytest.mark.parametrize("form", FORMS)
def test_products_of_special_values_have_eagers_derivatives(form: str) -> None:
    call = aot.aot_function(FORMS[form], aot.run_as_is)

    def derivatives(run: Callable[[torch.Tensor], torch.Tensor], row: list[float]) -> list[object]:
        x = torch.tensor(row, dtype=torch.float32).requires_grad_()
        (plain,) = torch.autograd.grad(run(x).sum(), x)
        (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        second = None
        if first.requires_grad:
            (second,) = torch.autograd.grad(first.sum(), x, materialize_grads=True)
        return [plain, first, torch.zeros_like(x) if second is None else second]

    for row in ROWS:
        for own, eager in zip(derivatives(call, row), derivatives(FORMS[form], row), strict=True):
            torch.testing.assert_close(own, eager, equal_nan=True)
