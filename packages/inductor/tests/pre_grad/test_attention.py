"""Attention written out in training programs, as the library's kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau_inductor
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.pre_grad.attention import fuse_attention
from flambeau_inductor.runtime.fused_attention import attended
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode

Fn = Callable[..., Any]


def captured(fn: Fn, *inputs: Tensor) -> fx.GraphModule:
    """The graph of `fn` with a value at each node."""
    gm = fx.symbolic_trace(fn)
    values: dict[fx.Node, Any] = {}

    class Noting(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            values[n] = n.meta["val"] = super().run_node(n)
            return values[n]

    Noting(gm).run(*inputs)
    return gm


def operands(
    *shape: int, dtype: torch.dtype = torch.float32, keys: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    other = (*shape[:-2], keys or shape[-2], shape[-1])
    made = (torch.randn(s, dtype=dtype) for s in (shape, other, other))
    return tuple(t.requires_grad_() for t in made)  # type: ignore[return-value]


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(16), -1) @ v


def methods(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = F.softmax(torch.matmul(q, k.transpose(-1, -2)).mul(0.3), dim=-1)
    return torch.matmul(F.dropout(weights, 0.1, training=False), v)


def in_float32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.mT * 0.25, -1, dtype=torch.float32).to(q.dtype)
    return weights @ v


def by_batch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.bmm((torch.bmm(q, k.transpose(1, 2)) * 0.5).softmax(-1), v)


def filled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    hidden = torch.triu(q.new_ones(20, 20), diagonal=1).bool()
    scores = (q @ k.mT / 4).masked_fill(hidden[None, None], -math.inf)
    return torch.softmax(scores, -1) @ v


def hidden_below(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seen = torch.tril(q.new_ones(20, 20)).view(1, 1, 20, 20)
    scores = (q @ k.mT).masked_fill(seen == 0, float("-inf")) * 0.25
    return F.softmax(scores, dim=-1) @ v


def added(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.triu(q.new_full((20, 20), float("-inf")), diagonal=1)
    return torch.softmax(q @ k.mT * 0.25 + mask, -1) @ v


def chosen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seen = (q.new_ones(20, 20).tril() > 0)[None]
    return torch.softmax(torch.where(seen, q @ k.mT * 0.25, -math.inf), -1) @ v


def chosen_otherwise(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    at = q.new_ones(20).cumsum(0)
    lowest = q.new_full([], torch.finfo(torch.float32).min)
    scores = torch.where(at[None, :] > at[:, None], lowest, q @ k.mT / 4)
    return scores.softmax(-1) @ v


def hidden_by_position(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    at = q.new_ones(20).cumsum(0)
    later = ~(at[None, :] <= at[:, None]).expand(1, 1, 20, 20)
    return F.softmax((q @ k.mT / 4).masked_fill(later, torch.finfo(torch.float32).min), -1) @ v


def added_by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    at = q.new_ones(20).cumsum(0)
    mask = (at[None, :] > at[:, None]).float() * torch.finfo(torch.float32).min
    return torch.softmax(mask + q @ k.mT * 0.25, -1) @ v


def by_letters(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.einsum("bhqd,bhkd->bhqk", q, k).div(4.0).softmax(-1)
    return torch.einsum("bhqk, bhkd -> bhqd", weights, v)


CAUSAL = (filled, hidden_below, added, chosen, chosen_otherwise, hidden_by_position, added_by_hand)
CASES: tuple[tuple[Fn, tuple[int, ...], int | None], ...] = (
    (plain, (2, 3, 20, 16), None),
    (methods, (2, 3, 20, 16), 33),
    (in_float32, (1, 2, 16, 8), None),
    (by_batch, (6, 24, 16), 40),
    (by_letters, (2, 3, 20, 16), 33),
    *((fn, (2, 3, 20, 16), None) for fn in CAUSAL),
)


def alike_with_derivatives(gm: fx.GraphModule, fn: Any, inputs: Sequence[Tensor]) -> None:
    """A graph's results and gradients, and theirs, against the function's in float64."""
    exact = tuple(t.detach().double().requires_grad_() for t in inputs)
    got, expected = gm(*inputs), fn(*exact)
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)
    cotangent = torch.randn_like(got)
    first = torch.autograd.grad(got, inputs, cotangent, retain_graph=True)
    firsts = torch.autograd.grad(expected, exact, cotangent.double(), create_graph=True)
    for mine, right in zip(first, firsts, strict=True):
        assert mine.stride() == right.stride()
        torch.testing.assert_close(mine.double(), right, rtol=1e-4, atol=1e-5)
    again = torch.autograd.grad(gm(*inputs), inputs, cotangent, create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in again), inputs)
    seconds = torch.autograd.grad(sum(g.square().sum() for g in firsts), exact)
    for mine, right in zip(second, seconds, strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("fn", "shape", "keys"), CASES)
def test_it_is_found_and_gives_the_same_with_derivatives(
    fn: Fn, shape: tuple[int, ...], keys: int | None
) -> None:
    inputs = operands(*shape, keys=keys)
    gm = captured(fn, *inputs)
    assert fuse_attention(gm, ("cpu",)) == 1
    targets = [n.target for n in gm.graph.nodes if n.op != "placeholder"]
    assert attended in targets and torch.softmax not in targets and F.softmax not in targets
    (made,) = (n for n in gm.graph.nodes if n.target is attended)
    assert made.args[4] == (fn in CAUSAL)
    alike_with_derivatives(gm, fn, inputs)


@pytest.mark.parametrize("causal", [False, True])
def test_functional_transforms_take_it(causal: bool) -> None:
    q, k, v = (t.detach() for t in operands(3, 2, 20, 16))

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attended(q, k.mT, v, 0.25, causal).sin().sum()

    def exact(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return out.sin().sum()

    for got, right in zip(
        torch.func.grad(loss, (0, 1, 2))(q, k, v),
        torch.func.grad(exact, (0, 1, 2))(q.double(), k.double(), v.double()),
        strict=True,
    ):
        torch.testing.assert_close(got.double(), right, rtol=1e-4, atol=1e-5)
    each = torch.func.vmap(lambda q, k, v: attended(q, k.mT, v, 0.25, causal))(q, k, v)
    torch.testing.assert_close(each, attended(q, k.mT, v, 0.25, causal), rtol=1e-5, atol=1e-5)


def with_a_mask(mask: Callable[[Tensor], Tensor], value: float = -math.inf) -> Fn:
    """Scores of which those are replaced where the mask holds."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax((q @ k.mT).masked_fill(mask(q), value), -1) @ v

    return attend


OTHER_MASKS = [
    with_a_mask(lambda q: q.new_ones(20, 20).triu(2) > 0),
    with_a_mask(lambda q: q.new_ones(20, 20).triu() > 0),
    with_a_mask(lambda q: q.new_ones(20, 20).tril() > 0),
    with_a_mask(lambda q: q.new_ones(20, 20).triu(1) == 0),
    with_a_mask(lambda q: q.new_zeros(20, 20).triu(1) > 0),
    with_a_mask(lambda q: q[0, 0, :, :1] > 0),
    with_a_mask(lambda q: q.new_ones(1, 1).triu(1) > 0),
    with_a_mask(lambda q: q.new_ones(25, 16).triu(1).view(20, 20) > 0),
    with_a_mask(lambda q: q.new_ones(20, 20).triu(1).transpose(0, 1) > 0),
    with_a_mask(lambda q: q.new_ones(20, 20).triu(1) > 0, -1e9),
]


def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.dropout(torch.softmax(q @ k.mT, -1), 0.1) @ v


def shown(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(q @ k.mT, -1)
    return weights @ v, weights


def by_columns(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT, -2) @ v


def upside_down(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT * -0.5, -1) @ v


def other_letters(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.einsum("bhqd,bhkd->bhkq", q, k).softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v)


def low_but_scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    later = q.new_ones(20, 20).triu(1) > 0
    return ((q @ k.mT).masked_fill(later, -1e30) * 1e-30).softmax(-1) @ v


def window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    at = q.new_ones(20).cumsum(0)
    apart = at[:, None] - at
    return (q @ k.mT).masked_fill((apart < 0) | (apart >= 4), -math.inf).softmax(-1) @ v


@pytest.mark.parametrize(
    "fn",
    [dropped, shown, by_columns, upside_down, other_letters, low_but_scaled, window, *OTHER_MASKS],
)
def test_what_is_something_else_is_left_alone(fn: Fn) -> None:
    gm = captured(fn, *operands(1, 2, 20, 16))
    before = str(gm.graph)
    assert fuse_attention(gm, ("cpu",)) == 0 and str(gm.graph) == before


@pytest.mark.parametrize("fn", CAUSAL)
def test_a_causal_mask_is_told_without_gradients_too(fn: Fn) -> None:
    inputs = [t.detach() for t in operands(2, 3, 20, 16)]
    gm = captured(fn, *inputs)
    assert fuse_attention(gm, ("cpu",)) == 1
    expected = fn(*(t.double() for t in inputs))
    torch.testing.assert_close(gm(*inputs).double(), expected, rtol=1e-5, atol=1e-5)


def test_unless_order_matters_and_with_a_reason() -> None:
    inputs = operands(1, 2, 20, 16)
    still = tuple(t.detach() for t in inputs)
    assert fuse_attention(captured(plain, *still), ("cpu",)) == 0
    with torch.no_grad():
        assert fuse_attention(captured(plain, *inputs), ("cpu",)) == 0
    assert fuse_attention(captured(plain, *inputs)) == 0  # on a GPU only, unless asked
    short = operands(1, 2, 20, 16, keys=8)
    assert fuse_attention(captured(plain, *short), ("cpu",)) == 0


def on_a_gpu(dtype: torch.dtype, width: int) -> tuple[fx.GraphModule, list[Tensor]]:
    """`plain` on tensors that do not exist; without a GPU autograd itself cannot follow them."""
    with torch.no_grad():
        inputs = [torch.empty(2, 4, 64, width, device="cuda", dtype=dtype) for _ in range(3)]
        gm = captured(plain, *inputs)
    for t in inputs:
        t.requires_grad_()
    return gm, inputs


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_programs_for_a_gpu_that_need_not_be_there(dtype: torch.dtype) -> None:
    with FakeTensorMode():
        gm, inputs = on_a_gpu(dtype, 32)
        assert flambeau_inductor.prepare(gm, Options())["fuse_attention"] == 1
        (made,) = (n for n in gm.graph.nodes if n.target is attended)
        assert made.args[3] == 0.25 and made.meta["val"].shape == inputs[0].shape
        for options in (Options(skip_passes=("fuse_attention",)), Options(deterministic=True)):
            assert "fuse_attention" not in flambeau_inductor.prepare(
                on_a_gpu(dtype, 32)[0], options
            )
        assert fuse_attention(on_a_gpu(dtype, 20)[0]) == 0  # rows of 40 bytes


def test_what_writes_an_operand_stays_in_the_graph() -> None:
    def written(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        moved = q + 1
        moved.add_(1)
        return plain(moved, k, v)

    inputs = operands(2, 3, 20, 16)
    gm = captured(written, *inputs)
    assert fuse_attention(gm, ("cpu",)) == 1
    assert "add_" in [n.target for n in gm.graph.nodes]
    torch.testing.assert_close(gm(*inputs), written(*inputs))


def test_operands_that_are_written_meanwhile() -> None:
    def between(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = q + 1, k + 1, v + 1
        scores = torch.bmm(q, k.transpose(1, 2))
        q.view(-1)[3:].mul_(2)
        return torch.bmm(scores.softmax(-1), v)

    inputs = operands(6, 20, 16)
    gm = captured(between, *inputs)
    assert fuse_attention(gm, ("cpu",)) == 0
