"""Checks as kernels: true exactly where the check on the CPU would not raise."""

from __future__ import annotations

import pytest
import torch
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.program import CheckIndex, Layout, Ref
from flambeau_inductor.runtime.checks import check_index
from flambeau_inductor.schedule.checks import check_loop

CPU = torch.device("cpu")


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("values", [[0, 4], [0, 5], [-1, 0], [-5, 4], [-6, 0], [2, 2]])
@pytest.mark.parametrize("shape", [(6,), (2, 3), ()], ids=str)
def test_a_kernel_sees_what_the_cpu_sees(
    shape: tuple[int, ...], values: list[int], wrap: bool
) -> None:
    index = torch.tensor(values, dtype=torch.int64).repeat(3)[: max(1, len(shape) and 6)]
    if not shape:
        index = index[-1:]
    stride = torch.empty(shape).stride()
    layout = Layout(shape, stride, torch.int64, CPU)
    check = CheckIndex(Ref("index", layout), 5, wrap, "IndexError", "{index} is out")
    result = torch.zeros(1, dtype=torch.bool)
    run_loop(check_loop("check", check, layout, "fine"), {"index": index, "fine": result})
    try:
        check_index(index, -5 if wrap else 0, 5, "IndexError", "{index} is out")
        expected = True
    except IndexError:
        expected = False
    assert bool(result) == expected
