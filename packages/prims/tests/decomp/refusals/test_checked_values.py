"""Values that eager's kernels refuse, decompositions refuse in eager's words."""

import pytest
import torch
import torch.nn.functional as F
from flambeau_prims.conformance import Decomposing

VALUES = (-1.0, -0.0, 0.0, 0.5, 1.0, 1.0000001, 3.0, float("nan"), float("inf"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("value", VALUES)
def test_binary_cross_entropy_of_what_is_no_probability(value, reduction, dtype):
    x = torch.tensor([[0.25, value]], dtype=dtype)

    def loss():
        return F.binary_cross_entropy(x, torch.ones_like(x), reduction=reduction)

    try:
        expected = loss()
    except RuntimeError as error:
        with Decomposing(), pytest.raises(RuntimeError, match=str(error)):
            loss()
        assert "between 0 and 1" in str(error)
    else:
        with Decomposing():
            torch.testing.assert_close(loss(), expected)
