"""Masks of attention that the graph itself makes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau_inductor
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.pre_grad.attention import drop_constant_masks
from torch import Tensor, fx

from tests.pre_grad.test_attention import captured, operands

LENGTH = 20
Fn = Callable[[Tensor, Tensor, Tensor], Tensor]


def make(beside: Any, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A call of the graph that `beside` is of, although no operand is."""
    if isinstance(beside, fx.Proxy):
        return beside.tracer.create_proxy("call_function", target, args, kwargs)
    return target(*args, **kwargs)


def nothing_hidden(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seen = make(q, torch.arange, LENGTH, device=torch.device("cpu"))[None, None, :, None] >= 0
    seen = seen.expand(2, -1, LENGTH, LENGTH)  # keys lie at one place: no fused kernel takes it
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def turned_over(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seen = make(q, torch.ones, (2, LENGTH))[:, None, None, :].expand(2, 1, LENGTH, LENGTH)
    hidden = make(q, torch.tensor, 1.0, dtype=torch.float32) - seen
    mask = hidden.masked_fill(hidden.to(torch.bool), torch.finfo(torch.float32).min)
    return F.scaled_dot_product_attention(q, k, v, mask, 0.0, False, scale=0.3)


def packed_and_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    positions = make(q, torch.arange, LENGTH).unsqueeze(0).expand(2, -1)
    before = positions[:, :1] - 1
    sequence = (torch.diff(positions, prepend=before, dim=-1) != 1).cumsum(-1)
    rows, keys = (make(q, torch.arange, LENGTH) for _ in range(2))
    rows += 0
    batch = make(q, torch.arange, 2)[:, None, None, None]
    rows, keys = rows[None, None, :, None], keys[None, None, None, :]
    seen = rows.new_ones((), dtype=torch.bool) & (keys <= rows)
    seen = seen & (sequence[batch, rows] == sequence[batch, keys])
    mask = seen.expand(2, -1, LENGTH, LENGTH)[:, :, :, :LENGTH]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=False)


def added_above(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.triu(q.new_full((LENGTH, LENGTH), -math.inf), diagonal=1)
    return F.scaled_dot_product_attention(q, k, v, mask, 0.0, False)


def a_window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows, keys = make(q, torch.arange, LENGTH)[:, None], make(q, torch.arange, LENGTH)[None]
    near = (keys <= rows) & (keys > rows - 5)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=near)


def a_slope(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    distance = make(q, torch.arange, LENGTH)[None] - make(q, torch.arange, LENGTH)[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=-0.1 * distance.abs().float())


def by_values(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seen = (k[..., 0] > -100)[:, :, None, :].expand(-1, -1, LENGTH, -1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def written_later(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seen = q.new_ones((LENGTH, LENGTH), dtype=torch.bool)
    seen.logical_and_(q[0, 0, :, :1] > 0)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def drawn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seen = make(q, torch.rand, (LENGTH, LENGTH)) >= 0
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def attention(gm: fx.GraphModule) -> tuple[Any, bool]:
    """The mask that is left, and whether what comes later is hidden."""
    (call,) = (n for n in gm.graph.nodes if n.target is F.scaled_dot_product_attention)
    given = dict(zip(("q", "k", "v", "attn_mask", "p", "is_causal"), call.args, strict=False))
    given |= call.kwargs
    return given["attn_mask"], given.get("is_causal", False)


@pytest.mark.parametrize(
    ("fn", "causal"),
    [(nothing_hidden, False), (turned_over, False), (packed_and_causal, True), (added_above, True)],
)
def test_a_mask_that_the_graph_makes_is_told_in_other_words(fn: Fn, causal: bool) -> None:
    inputs = operands(2, 3, LENGTH, 8)
    gm = captured(fn, *inputs)
    assert drop_constant_masks(gm, ("cpu",)) == 1
    assert attention(gm) == (None, causal)
    torch.testing.assert_close(gm(*inputs), fn(*inputs))


@pytest.mark.parametrize("fn", [a_window, a_slope, by_values, written_later, drawn])
def test_any_other_mask_stays(fn: Fn) -> None:
    inputs = operands(2, 3, LENGTH, 8)
    gm = captured(fn, *inputs)
    before = str(gm.graph)
    assert drop_constant_masks(gm, ("cpu",)) == 0 and str(gm.graph) == before


def test_a_causal_mask_of_other_lengths_stays() -> None:
    q, k, v = operands(2, 3, LENGTH, 8, keys=LENGTH + 4)

    def last_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seen = make(q, torch.ones, (LENGTH, LENGTH + 4), dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    assert drop_constant_masks(captured(last_rows, q, k, v), ("cpu",)) == 0


def test_what_writes_an_operand_stays_in_the_graph() -> None:
    def written(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        moved = q + 1
        moved.add_(1)
        return nothing_hidden(moved, k, v)

    inputs = operands(2, 3, LENGTH, 8)
    gm = captured(written, *inputs)
    assert drop_constant_masks(gm, ("cpu",)) == 1
    assert [n.target for n in gm.graph.nodes if n.op == "call_method"] == ["add_"]
    torch.testing.assert_close(gm(*inputs), written(*inputs))


def test_on_a_gpu_only_and_where_order_may_change() -> None:
    inputs = operands(2, 3, LENGTH, 8)
    assert drop_constant_masks(captured(nothing_hidden, *inputs)) == 0
    gm = captured(nothing_hidden, *inputs)
    assert flambeau_inductor.prepare(gm, Options())["drop_constant_masks"] == 0
    assert "drop_constant_masks" not in flambeau_inductor.prepare(gm, Options(deterministic=True))
