"""Fake tensors, and the errors of operators that cannot take them.

In: a fake mode. Out: fake tensors and operators run on them. Invariant: no memory is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)

DATA_DEPENDENT_ERRORS: tuple[type[Exception], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
)


def new_fake(mode: FakeTensorMode, meta: torch.Tensor, device: torch.device) -> FakeTensor:
    """A fake tensor on `device` over a tensor of the meta device."""
    return FakeTensor(mode, meta, device)


def run_fake(mode: FakeTensorMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run one operator on fake tensors, no dispatch mode being active."""
    return mode.__torch_dispatch__(func, (), args, kwargs)
