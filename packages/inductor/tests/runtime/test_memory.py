"""Tensors over given memory."""

from __future__ import annotations

import pytest
import torch
from flambeau_inductor.runtime.memory import laid_out, reuse, seen_as


def test_offsets_count_from_the_tensors_own_start():
    tensor = torch.arange(20.0)[5:]
    assert seen_as(tensor, (2, 2), (4, 1), 1).tolist() == [[6, 7], [10, 11]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_reused_memory_is_the_same(dtype: torch.dtype):
    old = torch.zeros(3, 4)
    new = reuse(old, (12,), (1,), dtype)
    assert new.dtype == dtype and new.data_ptr() == old.data_ptr()
    new.fill_(1)
    assert (old != 0).all()


def test_a_bool_can_become_bytes():
    assert reuse(torch.tensor([True, False]), (2,), (1,), torch.uint8).tolist() == [1, 0]


def test_what_fits_is_handed_on():
    value = torch.randn(3, 4)
    assert laid_out(value, (3, 4), (4, 1), torch.float32) is value


def test_other_strides_are_copied():
    value = torch.randn(4, 3).t()
    result = laid_out(value, (3, 4), (4, 1), torch.float32)
    assert result.stride() == (4, 1) and torch.equal(result, value)


def test_strides_that_address_nothing_are_only_restated():
    value = torch.randn(8)[3:].reshape(1, 5)
    result = laid_out(value, (1, 5), (77, 1), torch.float32)
    assert result.stride() == (77, 1) and result.data_ptr() == value.data_ptr()
    assert laid_out(value, (1, 5), (77, 1), torch.float32, eager=True) is value
    empty = laid_out(torch.empty(0, 3), (0, 3), (1, 1), torch.float32)
    assert empty.shape == (0, 3) and empty.stride() == (1, 1)


def test_other_metadata_is_an_error():
    with pytest.raises(RuntimeError, match="metadata"):
        laid_out(torch.randn(3), (4,), (1,), torch.float32)
    with pytest.raises(RuntimeError, match="metadata"):
        laid_out(torch.randn(3), (3,), (1,), torch.float64)
