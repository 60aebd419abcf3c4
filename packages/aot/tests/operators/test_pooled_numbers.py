"""Pools of whole numbers: eager's kernel without derivatives takes none, that with indices does."""

import flambeau_aot as aot
import flambeau_prims
import pytest
import torch
import torch.nn.functional as F

DTYPES = [torch.uint8, torch.int8, torch.int64, torch.float32]


@pytest.mark.parametrize("indices", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lines_are_pooled_where_eager_does(dtype: torch.dtype, indices: bool) -> None:
    def pooled(x: torch.Tensor) -> object:
        return F.max_pool1d(x, 2, return_indices=indices)

    x = torch.arange(16).reshape(2, 8).to(dtype)
    call = aot.aot_function(pooled, aot.run_as_is, decompositions=flambeau_prims.decompositions())
    try:
        expected = pooled(x)
    except NotImplementedError:
        with pytest.raises(Exception, match="max_pool1d"):
            call(x)
        return
    torch.testing.assert_close(call(x), expected)
