"""Every lowering rule, through programs that use it, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor.lowering import lower_graph
from flambeau_prims import NotYetSymbolic
from torch import fx

from tests.evaluated import against_eager

aten = torch.ops.aten


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape).bfloat16()


def ints(high: int, *shape: int, low: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape)


Case = tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]

CASES: dict[str, Case] = {
    "broadcast": (lambda x, y: torch.relu(x) + y, lambda: (r(8, 16), r(16))),
    "transposed": (lambda x, y: x.t() + y, lambda: (r(8, 16), r(16, 8))),
    "0-d": (lambda x: x * 2 + 1, lambda: (r(),)),
    "sizes of 1": (lambda x, y: x * y, lambda: (r(1, 5, 1), r(3, 1, 1))),
    "empty": (lambda x: (x + 1, x.sum(0), x.amax(1)), lambda: (r(0, 16),)),
    "empty product": (lambda x, y: x @ y + 1, lambda: (r(0, 16), r(16, 3))),
    "strided input": (lambda x: F.relu(x) * 2, lambda: (r(8, 8)[::2, 1:],)),
    "channels last": (
        lambda x: F.relu(x) * 2,
        lambda: (r(2, 3, 8, 8).to(memory_format=torch.channels_last),),
    ),
    "expanded input": (lambda x: x + 1, lambda: (r(4, 1).expand(4, 6),)),
    "softmax": (lambda x: x.softmax(-1), lambda: (r(4, 8, 16),)),
    "softmax over rows": (lambda x: x.softmax(0), lambda: (r(40, 8),)),
    "log softmax": (lambda x: x.log_softmax(-1), lambda: (r(4, 16),)),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), lambda: (r(8, 8),)),
    "layer norm": (
        lambda x, w, b: F.gelu(F.layer_norm(x, (16,), w, b)),
        lambda: (r(4, 8, 16), r(16), r(16)),
    ),
    "batch norm": (
        lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, True)),
        lambda: (r(4, 3, 5, 5), r(3), r(3)),
    ),
    "batch norm, evaluating": (
        lambda x, m, v, w, b: F.relu(F.batch_norm(x, m, v, w, b)),
        lambda: (r(4, 3, 5, 5), r(3), r(3).abs(), r(3), r(3)),
    ),
    "sums": (lambda x: ((x * x).sum(), x.mean((0, 1)), x.prod(2)), lambda: (r(10, 4, 8),)),
    "middle sum": (lambda x: x.sum(1), lambda: (r(10, 4, 8),)),
    "sum of one": (lambda x: (x.sum(1), x.amax((0, 1))), lambda: (r(1, 1, 8),)),
    "any and all": (
        lambda x: ((x > 0).any(1), (x > -9).all(1), (x > 0).sum(1)),
        lambda: (r(6, 5),),
    ),
    "arg": (lambda x: (x.argmax(1), x.argmin(0), x.amin(1)), lambda: (r(10, 30),)),
    "variance": (lambda x: torch.var_mean(x, 1), lambda: (r(10, 8),)),
    "variance of one": (lambda x: torch.var_mean(x, 1), lambda: (r(10, 1),)),
    "integer sums": (lambda x: (x.sum(0), x.cumsum(0)), lambda: (ints(9, 5, 4),)),
    "cat": (
        lambda a, b, c: torch.cat([a, b * 2, c], 1) + 1,
        lambda: (r(4, 3), r(4, 5), r(4, 1)),
    ),
    "cat of many": (
        lambda a, b: torch.stack([*(a[:, k] for k in range(9)), b, b * 2], -1).exp(),
        lambda: (r(4, 20), r(4)),
    ),
    "cat of nothing": (lambda a, b: torch.cat([a, b], 1), lambda: (r(4, 0), r(4, 5))),
    "pad": (lambda a: F.pad(a, (1, 2, 0, 1), value=3.0) * 2, lambda: (r(4, 3),)),
    "pad of a sum": (lambda a: F.pad(a.exp() + 1, (1, 2)), lambda: (r(4, 3),)),
    "crop": (lambda a: F.pad(a, (-1, 2)), lambda: (r(4, 6),)),
    "slice scatter": (
        lambda a, b: torch.slice_scatter(a, b, 1, 1, 8, 3) * 2,
        lambda: (r(4, 9), r(4, 3)),
    ),
    "select scatter": (lambda a, b: torch.select_scatter(a, b, 0, 2), lambda: (r(4, 9), r(9))),
    "flip and roll": (lambda x: torch.roll(x, 2, 0) + x.flip(1), lambda: (r(6, 8),)),
    "stack": (lambda x, y: torch.stack([x, y], 1).sum(0), lambda: (r(3, 4), r(3, 4))),
    "repeat": (lambda x: x.repeat(2, 3) + 1, lambda: (r(3, 4),)),
    "triangle": (lambda x: torch.tril(x) + torch.arange(8), lambda: (r(8, 8),)),
    "float arange": (lambda x: x + torch.arange(0.5, 4.5, 0.5), lambda: (r(8),)),
    "heads": (
        lambda x: x.view(2, 6, 4, 8).permute(0, 2, 1, 3).reshape(8, 6, 8).transpose(1, 2) + 1,
        lambda: (r(2, 6, 32),),
    ),
    "heads back": (
        lambda x: x.permute(0, 2, 1, 3).reshape(2, 6, 32) * 2,
        lambda: (r(2, 4, 6, 8),),
    ),
    "odd reshape": (lambda x: x.reshape(4, 6) + x.t().reshape(4, 6), lambda: (r(3, 8),)),
    "as_strided": (lambda x: (x * 2).as_strided((3, 4), (2, 1), 1), lambda: (r(4, 4),)),
    "views out": (
        lambda x: (x, x.t(), (x + 1).t(), x[1:, ::2], x.expand(3, 4, 6)),
        lambda: (r(4, 6),),
    ),
    "two equal outputs": (lambda x: (x + 1, x + 1), lambda: (r(4, 6),)),
    "clone out": (lambda x: (x.clone(), x), lambda: (r(4, 6),)),
    "constant out": (lambda x: (torch.ones(3), x + torch.ones(3)), lambda: (r(3),)),
    "expanded out": (lambda x: (x + 1).expand(5, 3), lambda: (r(3),)),
    "embedding": (lambda i, w: F.embedding(i, w) * 2, lambda: (ints(10, 4, 5), r(10, 6))),
    "index": (
        lambda x, i, j: x[i, :, j],
        lambda: (r(10, 3, 8), ints(10, 4, 1, low=-10), ints(8, 1, 5, low=-8)),
    ),
    "embedding at an expanded part of a buffer": (
        lambda table, types, at: table[types[:, at].expand(3, -1).reshape(-1)],
        lambda: (r(2, 8), ints(2, 1, 64), ints(64, 16)),
    ),
    "embedding at a flattened part of a buffer": (
        lambda table, types: table[types[:, :16].expand(2, -1).reshape(-1)],
        lambda: (r(2, 8), ints(2, 1, 512)),
    ),
    "index, apart": (lambda x, i: x[:, i] + 1, lambda: (r(3, 7), ints(7, 2, 2, low=-7))),
    "gather": (lambda x, i: x.gather(1, i), lambda: (r(10, 8), ints(8, 10, 3))),
    "gather of computed": (
        lambda x, i: x.log_softmax(1).gather(1, i),
        lambda: (r(10, 8), ints(8, 10, 1)),
    ),
    "scatter add": (
        lambda x, i, y: x.scatter_add(0, i, y * 2),
        lambda: (r(5, 4), ints(5, 7, 4), r(7, 4)),
    ),
    "index put": (
        lambda x, i, y: x.index_put((i,), y, accumulate=True) + 1,
        lambda: (r(5, 4), ints(5, 7), r(7, 4)),
    ),
    "cross entropy": (lambda x, t: F.cross_entropy(x, t), lambda: (r(8, 20), ints(20, 8))),
    "products": (
        lambda x, w, b, v: F.linear(F.gelu(F.linear(x, w, b)), v),
        lambda: (r(4, 8, 16), r(32, 16), r(32), r(16, 32)),
    ),
    "product of transposed": (lambda x, y: x.t() @ y[:, ::2], lambda: (r(5, 4), r(5, 6))),
    "batched": (lambda x, y: (x * 2) @ y.transpose(1, 2), lambda: (r(3, 5, 4), r(3, 6, 4))),
    "convolution": (
        lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)),
        lambda: (r(2, 3, 8, 8), r(4, 3, 3, 3), r(4)),
    ),
    "pooling": (
        lambda x: (F.max_pool2d(x.relu(), 2), F.avg_pool2d(x + 1, 2)),
        lambda: (r(2, 3, 8, 8),),
    ),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        lambda: (r(2, 4, 6, 8), r(2, 4, 6, 8), r(2, 4, 6, 8)),
    ),
    "sorting": (
        lambda x: (torch.sort(x * 2, 1)[0], torch.topk(x, 3)[1]),
        lambda: (r(8, 8),),
    ),
    "no kernel": (lambda x: torch.linalg.inv(x + 9 * torch.eye(4)) * 2, lambda: (r(4, 4),)),
    "layer norm backward": (
        lambda g, x, w, b: aten.native_layer_norm_backward.default(
            g, x, [16], x.mean(1, keepdim=True), x.var(1, keepdim=True).rsqrt(), w, b,
            [True, True, True],
        ),
        lambda: (r(8, 16), r(8, 16), r(16), r(16)),
    ),
    "softmax backward": (
        lambda g, y: aten._softmax_backward_data.default(g, y, 1, torch.float32),
        lambda: (r(8, 16), r(8, 16).softmax(1)),
    ),
    "embedding backward": (
        lambda g, i: aten.embedding_dense_backward.default(g, i, 10, -1, False),
        lambda: (r(4, 5, 6), ints(10, 4, 5)),
    ),
    "dtypes": (
        lambda i, x, m: (i // 3, i % -3, x.to(torch.int32), m & (i > 2), i.float() * x),
        lambda: (ints(9, 4, 4, low=-9), 5 * r(4, 4), r(4, 4) > 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_eager(name: str) -> None:
    torch.manual_seed(sum(map(ord, name)))
    function, inputs = CASES[name]
    outcome = against_eager(function, *inputs())
    found = [f.operator for f in outcome.fallbacks]
    if name == "no kernel":
        assert "flambeau_prims.lu_factor.default" in found
    else:
        assert found == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: F.layer_norm(x, (16,)),
        lambda x: (x.sum(1), x.mean(0), F.gelu(x)),
        lambda x: torch.cat([x, x * 2]).amax(0),
    ],
)
def test_half_precision(function: Callable[..., Any]) -> None:
    against_eager(function, half(4, 16), tolerance=2e-2)


def test_complex_numbers_are_the_librarys() -> None:
    x = torch.randn(3, 4, dtype=torch.complex64)
    outcome = against_eager(lambda x: (x * x + 1).t(), x)
    assert outcome.loops == [] and outcome.fallbacks
    assert all("complex64" in f.reason for f in outcome.fallbacks)


@pytest.mark.parametrize(
    ("function", "bad", "error"),
    [
        (lambda w, i: F.embedding(i, w), 10, IndexError),
        (lambda w, i: F.embedding(i, w), -1, IndexError),
        (lambda w, i: w[i], 10, IndexError),
        (lambda w, i: w[i], -11, IndexError),
        (lambda w, i: w.t().gather(1, i.unsqueeze(0)), 10, RuntimeError),
    ],
)
def test_index_out_of_range_raises(
    function: Callable[..., Any], bad: int, error: type[Exception]
) -> None:
    weight = r(10, 3)
    with pytest.raises(error):
        function(weight, torch.tensor([1, bad]))
    with pytest.raises(error):
        against_eager(function, weight, torch.tensor([1, bad]))
    against_eager(function, weight, torch.tensor([1, 9]))


def test_an_input_that_is_no_tensor_and_no_number_is_refused() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = "words"
    graph.output((x,))
    with pytest.raises(NotYetSymbolic, match="an input that is a number, not a tensor"):
        lower_graph(fx.GraphModule({}, graph))
