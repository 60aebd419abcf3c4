"""A sample of operators by default; `python -m opinfo` runs all."""

import pytest
from torch.testing._internal.common_methods_invocations import op_db

from .check import DTYPE, LAYOUTS, check, name_of

DIFFERENTIABLE = [op for op in op_db if op.supports_autograd and DTYPE in op.dtypes]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("op", DIFFERENTIABLE[::12], ids=name_of)
def test_operator(op) -> None:
    verdict = check(op, samples=1)
    assert verdict.kind != "different", verdict.words


@pytest.mark.sweep(2)
@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "as they are"])
@pytest.mark.parametrize("op", DIFFERENTIABLE[5::40], ids=name_of)
def test_operator_by_layout(op, layout) -> None:
    verdict = check(op, samples=2, layout=layout)
    assert verdict.kind != "different", verdict.words
