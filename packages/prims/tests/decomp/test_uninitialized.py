"""What `empty` and its like hold where torch is asked for deterministic algorithms."""

from __future__ import annotations

from collections.abc import Iterator

import flambeau_prims
import pytest
import torch
from torch.utils import deterministic

aten = torch.ops.aten
DTYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)
CALLS = {
    aten.empty.memory_format: [([2, 3],), ([],), ([0],)],
    aten.empty_like.default: [(torch.ones(2, 3),), (torch.ones(3, 2).t(),), (torch.ones(()),)],
    aten.new_empty.default: [(torch.ones(2), [3, 2])],
    aten.empty_strided.default: [([2, 3], [3, 1]), ([2, 3], [1, 2]), ([2, 3], [7, 2])],
    aten.new_empty_strided.default: [
        (torch.ones(2), [2, 2], [1, 2]),
        *((torch.ones(2), size, step) for size in ([0, 5], [5, 0]) for step in ([11, 2], [1, 5])),
    ],
    aten.empty_permuted.default: [([2, 3], [1, 0])],
}


@pytest.fixture
def asked() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    deterministic.fill_uninitialized_memory = True


def test_every_such_operator_is_here() -> None:
    table = flambeau_prims.decompositions()
    made = {op for op in table if "empty" in op.name().split("::")[1].split(".")[0]}
    assert made == set(CALLS)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", CALLS, ids=str)
def test_it_is_filled_as_in_eager(
    asked: None, op: torch._ops.OpOverload, dtype: torch.dtype
) -> None:
    for args in CALLS[op]:
        given = flambeau_prims.decompositions()[op](*args, dtype=dtype)
        expected = op(*args, dtype=dtype)
        assert (given.dtype, given.stride()) == (expected.dtype, expected.stride())
        torch.testing.assert_close(given, expected, equal_nan=True, rtol=0, atol=0)
        deterministic.fill_uninitialized_memory = False
        assert not flambeau_prims.decompositions()[op](*args, dtype=dtype).any()
        deterministic.fill_uninitialized_memory = True
