"""Attention whose operands no fused kernel reads as they lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor.pre_grad import attention
from flambeau_inductor.runtime.fused_attention import attended
from torch import Tensor

from tests.pre_grad.test_attention import alike_with_derivatives, captured, operands

LENGTH = 20


@pytest.fixture(autouse=True)
def _rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels as a GPU has them: of elements of a row side by side."""

    def fuses(*call: Any) -> bool:
        return all(t is None or t.stride(-1) == 1 for t in call[:4])

    monkeypatch.setattr(attention, "_library_fuses", fuses)


def looked_up(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    bias = table.permute(2, 0, 1).unsqueeze(0)
    return F.scaled_dot_product_attention(q, k, v, bias, scale=1.0)


def of_each_sequence(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    bias = table.permute(2, 0, 1).expand(2, -1, -1, -1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def of_each_query(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    bias = table[:, :1].permute(2, 0, 1).expand(-1, -1, table.shape[1])
    return F.scaled_dot_product_attention(q, k, v, bias)


def turned_values(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v.mT.contiguous().mT) + table.square().sum()


@pytest.mark.parametrize("keys", [LENGTH, 32])
@pytest.mark.parametrize("fn", [looked_up, of_each_sequence, of_each_query, turned_values])
def test_it_is_fused_with_derivatives(fn: Any, keys: int) -> None:
    inputs = (*operands(2, 3, LENGTH, 8, keys=keys), torch.randn(LENGTH, keys, 3).requires_grad_())
    gm = captured(fn, *inputs)
    assert attention.fuse_strided_attention(gm, ("cpu",)) == 1
    assert attended in [node.target for node in gm.graph.nodes]
    alike_with_derivatives(gm, fn, inputs)


def readable_as_it_is(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    bias = table.permute(2, 0, 1).contiguous()
    return F.scaled_dot_product_attention(q, k, v, bias)


def dropped(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, table.permute(2, 0, 1), 0.5)


def of_open_flags(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    hidden = table.permute(2, 0, 1) > 0
    return F.scaled_dot_product_attention(q, k, v, hidden)


@pytest.mark.parametrize("fn", [readable_as_it_is, dropped, of_open_flags])
def test_any_other_call_stays(fn: Any) -> None:
    inputs = (*operands(2, 3, LENGTH, 8), torch.randn(LENGTH, LENGTH, 3))
    gm = captured(fn, *inputs)
    before = str(gm.graph)
    assert attention.fuse_strided_attention(gm, ("cpu",)) == 0 and str(gm.graph) == before


def test_kernels_that_the_program_forbids_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = (*operands(2, 3, LENGTH, 8), torch.randn(LENGTH, LENGTH, 3))
    gm = captured(looked_up, *inputs)
    monkeypatch.setattr(attention, "_library_fuses", lambda *call: False)
    assert attention.fuse_strided_attention(gm, ("cpu",)) == 0
