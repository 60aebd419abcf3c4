"""Decompositions of assertions on data.

In: ATen's assertions. Out: `assert_true`.
Invariant: a tensor asserts that its one element is not zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.table import decomposition

aten = torch.ops.aten


@decomposition(aten._assert_async.default, aten._assert_async.msg)
def assert_async(x: Tensor, assert_msg: str = "Expected Tensor with single nonzero value") -> None:
    p.assert_true(p.reshape(e.cast(x, torch.bool), []), assert_msg)


@decomposition(aten._functional_assert_async.msg)
def functional_assert_async(x: Tensor, assert_msg: str, dep_token: Tensor) -> Any:
    assert_async(x, assert_msg)
    return p.clone(dep_token)
