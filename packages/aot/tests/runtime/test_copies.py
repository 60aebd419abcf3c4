"""Updates of many inputs."""

from typing import Any

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.runtime.epilogue import copies, grouped
from flambeau_aot.runtime_plan import InputUpdate


def test_updates_are_grouped_by_dtype() -> None:
    dtypes = [torch.float32, torch.int64, torch.float32, torch.float64, torch.int64]
    primals = [torch.zeros(2, dtype=dtype) for dtype in dtypes]
    outputs = [torch.full((2,), place + 1, dtype=dtype) for place, dtype in enumerate(dtypes)]
    updates = [InputUpdate(place, place, False) for place in range(5)]
    assert grouped(updates, primals, outputs) == [[(0, 0), (2, 2)], [(1, 1), (4, 4)], [(3, 3)]]
    copy = copies(updates)
    for _ in range(2):
        copy(primals, outputs)
        assert [int(p[0]) for p in primals] == [1, 2, 3, 4, 5]
        outputs = [value * 1 for value in outputs]


def test_running_statistics_are_copied_in_two_calls(monkeypatch: Any) -> None:
    called: list[int] = []
    original = torch._foreach_copy_

    def counted(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> Any:
        called.append(len(targets))
        return original(targets, sources)

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    layers = [torch.nn.BatchNorm1d(4) for _ in range(5)]
    module = torch.nn.Sequential(*layers)
    compiled = aot.aot_module(module, aot.run_as_is)
    compiled(torch.randn(8, 4))
    compiled(torch.randn(8, 4))
    assert called == [5, 10] * 2
    assert [int(layer.num_batches_tracked) for layer in layers] == [2] * 5


@pytest.mark.parametrize("whole", [True, False], ids=["an argument", "a view of one"])
@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32],
    ids=str,
)
def test_bytes_that_are_no_bool_are_written(dtype: torch.dtype, whole: bool) -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        return x.view(dtype).mul_(3).add_(7)

    def bools() -> torch.Tensor:
        return torch.arange(16).remainder(3) == 1

    base, other = bools(), bools()
    expected = written(base if whole else base[8:])
    given = aot.aot_function(written, aot.run_as_is)(other if whole else other[8:])
    assert torch.equal(given.view(torch.uint8), expected.view(torch.uint8))
    assert torch.equal(other.view(torch.uint8), base.view(torch.uint8))
    assert int(base.view(torch.uint8).max()) > 1
