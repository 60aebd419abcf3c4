"""A sample of operators by default; `python -m opinfo` runs all."""

import pytest
from torch.testing._internal.common_methods_invocations import op_db

from .check import DTYPE, check

DIFFERENTIABLE = [op for op in op_db if op.supports_autograd and DTYPE in op.dtypes]


@pytest.mark.parametrize(
    "op", DIFFERENTIABLE[::12], ids=lambda op: f"{op.name}.{op.variant_test_name}".rstrip(".")
)
def test_operator(op) -> None:
    verdict = check(op, samples=1)
    assert verdict.kind != "different", verdict.words
