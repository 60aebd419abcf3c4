"""Places and counts beside distinct elements are whole numbers, whatever torch describes."""

import pytest
import torch
from flambeau_capture._torch_compat.fakes import as_made

aten = torch.ops.aten
COUNTING = {
    aten._unique.default: (),
    aten._unique2.default: (),
    aten.unique_dim.default: (0,),
    aten.unique_consecutive.default: (),
    aten.unique_dim_consecutive.default: (0,),
}


@pytest.mark.parametrize("overload", COUNTING, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64], ids=str)
def test_of_distinct_elements(overload, dtype):
    x = torch.tensor([2, 2, 0, 1]).to(dtype)
    real = overload(x, *COUNTING[overload], return_inverse=True)
    described = tuple(each.to(dtype) for each in real)
    made = as_made(overload, (x, *COUNTING[overload]), described)
    assert [each.dtype for each in made] == [each.dtype for each in real]
