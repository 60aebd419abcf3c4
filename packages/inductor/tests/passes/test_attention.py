"""Attention that user code writes out becomes the primitive for it; other code does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.driver import PassContext
from flambeau_inductor.passes import attention, rewriter
from flambeau_inductor.passes.primitive_passes import rewrite
from torch import fx
from torch.nn import functional as F

Tensor = torch.Tensor
ATTENTION = "flambeau_prims.attention.default"


def plain(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / 4.0, -1), v)


def wide_softmax(q: Tensor, k: Tensor, v: Tensor) -> Any:
    scores = (q * 0.25) @ k.transpose(-1, -2)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return F.dropout(weights, 0.0) @ v


def flattened_heads(q: Tensor, k: Tensor, v: Tensor) -> Any:
    a, b, c = (t.reshape(8, 32, 16) for t in (q, k, v))
    return torch.bmm(torch.softmax(torch.bmm(a, b.transpose(1, 2)) * 0.25, -1), c)


def einsum(q: Tensor, k: Tensor, v: Tensor) -> Any:
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.25
    return torch.einsum("bhqk,bhkd->bhqd", torch.softmax(scores, -1), v)


def padded(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Any:
    scores = torch.matmul(q, k.transpose(-2, -1)) * 0.25
    mask = (1.0 - seen[:, None, None, :].to(torch.float32)) * -3.0e38
    return torch.softmax(scores + mask, -1) @ v


def any_bias(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Any:
    bias = torch.log(seen[:, None, None, :].to(torch.float32))
    return torch.softmax(torch.matmul(q, k.transpose(-2, -1)) + bias, -1) @ v


def weights_too(q: Tensor, k: Tensor, v: Tensor) -> Any:
    weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / 4.0, -1)
    return torch.matmul(weights, v), weights


def other_dimension(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.softmax(torch.matmul(q, k.transpose(-2, -1)), -2) @ v


def scaled_after_bias(q: Tensor, k: Tensor, v: Tensor) -> Any:
    scores = torch.matmul(q, k.transpose(-2, -1)) + torch.full((32, 32), 0.5)
    return torch.softmax(scores * 2.0, -1) @ v


def masked_by_infinity(q: Tensor, k: Tensor, v: Tensor) -> Any:
    seen = torch.ones(32, 32, dtype=torch.bool).tril(-1)
    scores = torch.matmul(q, k.transpose(-2, -1)).masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1) @ v


def causal(q: Tensor, k: Tensor, v: Tensor) -> Any:
    seen = q.new_ones(32, 32).tril() > 0
    scores = torch.matmul(q, k.transpose(-2, -1)).masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1) @ v


def window(q: Tensor, k: Tensor, v: Tensor) -> Any:
    seen = q.new_ones(32, 32).tril().triu(-4) > 0
    scores = q @ k.transpose(-2, -1) * 0.25
    return torch.softmax(torch.where(seen, scores, float("-inf")), -1) @ v


def lowest(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Any:
    scores = torch.matmul(q, k.transpose(-2, -1)) * 0.25
    hidden = (seen == 0)[:, None, None, :]
    return torch.softmax(scores.masked_fill(hidden, torch.finfo(torch.float32).min), -1) @ v


def lowest_with_distances(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Any:
    rows = q.new_ones(32, 32).tril()
    bias = (rows - 1.0) * q.new_full((4, 1, 1), 0.5)
    scores = torch.matmul(q, k.transpose(-2, -1)) * 0.25 + bias
    return torch.softmax(torch.where(seen[:, None, None, :], scores, -3.0e38), -1) @ v


def heads_behind_positions(q: Tensor, k: Tensor, v: Tensor) -> Any:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.25, -1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def turned_weights(q: Tensor, k: Tensor, v: Tensor) -> Any:
    weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)), -1)
    return weights.transpose(-2, -1) @ v


def heads_in_groups(q: Tensor, k: Tensor, v: Tensor) -> Any:
    grouped = q.view(2, 2, 2, 32, 16)
    k, v = k[:, :2, None], v[:, :2, None]
    bias = q.new_full((2, 1, 32, 32), 0.5).tril()
    weights = torch.softmax(grouped @ k.transpose(-2, -1) * 0.25 + bias, -1)
    return (weights @ v).reshape(2, 4, 32, 16)


MASKED = (padded, lowest, lowest_with_distances)
BIASED = (window, heads_in_groups, *MASKED)
TAKEN = (
    plain,
    wide_softmax,
    flattened_heads,
    einsum,
    heads_behind_positions,
    causal,
    window,
    heads_in_groups,
    *MASKED,
)


def not_so_low(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Any:
    scores = torch.matmul(q, k.transpose(-2, -1)) * 0.25
    return torch.softmax(scores.masked_fill(~seen[:, None, None, :], -1e4), -1) @ v


def hidden_by_an_input(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Any:
    scores = torch.matmul(q, k.transpose(-2, -1)) * 0.25
    return torch.softmax(scores.masked_fill(~seen[:, None, None, :], -float("inf")), -1) @ v


UNKNOWN = (any_bias, not_so_low, hidden_by_an_input)
LEFT = (
    *UNKNOWN,
    turned_weights,
    weights_too,
    other_dimension,
    scaled_after_bias,
    masked_by_infinity,
)


def inputs(fn: Callable[..., Any], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    given = [torch.randn(2, 4, 32, 16).to(dtype) for _ in range(3)]
    if fn not in (*MASKED, *UNKNOWN):
        return given
    seen = torch.rand(2, 32) < 0.7
    seen[1] = fn not in (lowest, lowest_with_distances)  # all hidden, all alike
    return [*given, seen]


def lowered(fn: Callable[..., Any], given: list[Tensor]) -> fx.GraphModule:
    return flambeau_prims.lower(fx.symbolic_trace(fn), given)


def calls(gm: fx.GraphModule) -> int:
    return sum(str(n.target) == ATTENTION for n in gm.graph.nodes)


@pytest.mark.parametrize("fn", TAKEN, ids=lambda f: f.__name__)
def test_written_out_attention_becomes_one_primitive(fn: Callable[..., Any]) -> None:
    given = inputs(fn)
    gm = lowered(fn, given)
    rewritten = rewrite(gm)
    assert calls(gm) == 0 and calls(rewritten) == 1
    assert not any("exp" in str(n.target) for n in rewritten.graph.nodes)
    (made,) = (n for n in rewritten.graph.nodes if str(n.target) == ATTENTION)
    assert (made.args[5], made.args[3] is None) == (fn is causal, fn not in BIASED)
    (result,) = flambeau_inductor.compile(gm, given, options=Options(verify=True))(list(given))
    torch.testing.assert_close(result, fn(*given), rtol=1e-4, atol=1e-5)


def test_in_half_precision() -> None:
    given = inputs(wide_softmax, torch.bfloat16)
    gm = lowered(wide_softmax, given)
    assert calls(rewrite(gm)) == 1
    (result,) = flambeau_inductor.compile(gm, given)(list(given))
    exact = wide_softmax(*(t.double() for t in given))
    eager = wide_softmax(*given)
    ours = (result.double() - exact).norm()
    assert ours <= 3 * (eager.double() - exact).norm() + 1e-3


@pytest.mark.parametrize("fn", LEFT, ids=lambda f: f.__name__)
def test_what_is_not_the_same_is_left(fn: Callable[..., Any]) -> None:
    given = inputs(fn)
    gm = lowered(fn, given)
    assert calls(rewrite(gm)) == 0
    results = flambeau_inductor.compile(gm, given)(list(given))
    expected = fn(*given)
    pairs = zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True)
    for got, want in pairs:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_the_pass_can_be_left_out() -> None:
    given = inputs(plain)
    skipped = PassContext(options=Options(skip_passes=("written_out_attention",)))
    assert calls(rewrite(lowered(plain, given), skipped)) == 0


def test_inputs_of_which_nothing_is_known_are_left() -> None:
    given = [torch.randn(2, 32, 16), torch.randn(2, 16, 32), torch.randn(2, 32, 16)]

    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.bmm(torch.softmax(torch.bmm(q, k), -1), v)

    assert rewriter.rewrite(lowered(fn, given).graph, attention.RULES) == 1
    gm = lowered(fn, given)
    for node in gm.graph.nodes:
        node.meta.pop("val", None)
    assert rewriter.rewrite(gm.graph, attention.RULES) == 0
