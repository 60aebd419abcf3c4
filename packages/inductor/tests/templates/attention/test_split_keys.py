"""Attention of one query with the keys split among programs, under Triton's interpreter."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.triton.build import build
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.templates.attention.flash_forward import split_attention
from flambeau_inductor.templates.attention.problem import Attention, Blocks, Heads, padded
from torch import Tensor
from torch.nn import functional as F


def heads(name: str, tensor: Tensor) -> Heads:
    a, b, c, d = tensor.stride()
    return Heads(name, (a, b, c, d))


def attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    keys: int,
    scale: float,
    folder: Path,
    steps: int = 1,
) -> Tensor:
    """What both kernels leave, by blocks of so many keys, of queries in eager's layout."""
    (batch, many, _, width), (_, kept, length, out) = q.shape, v.shape
    result = torch.full((batch, 1, many, out), torch.nan, dtype=q.dtype).transpose(1, 2)
    memory = {"q": q, "k": k, "v": v, "out": result} | ({} if bias is None else {"bias": bias})
    at = {name: heads(name, tensor) for name, tensor in memory.items()}
    sizes = (batch, many, kept, 1, length, width, out)
    operands = (at["q"], at["k"], at["v"], at["out"], at.get("bias"))
    attention = Attention(*operands, sizes, q.dtype, False, scale)
    facts = {n: t.dtype for n, t in memory.items()}, {n: t.numel() for n, t in memory.items()}
    way = split_attention(
        attention, Blocks(padded(many // kept), keys, 4, 1), steps, facts, "split", q.device
    )
    for each in way.kept:
        memory[each.buffer.name] = torch.full(each.buffer.layout.shape, torch.nan)
    path = folder / "kernels.py"
    path.write_text(module_text([kernel.source for kernel in way.kernels]))
    built = build(path, way.kernels)
    for kernel in way.kernels:
        built[kernel.name](*(memory[name] for name in kernel.arguments))
    return result


def expected(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    times = q.shape[1] // k.shape[1]
    wide = (q.double(), *(t.double().repeat_interleave(times, 1) for t in (k, v)))
    added = None if bias is None else bias.double()
    return F.scaled_dot_product_attention(*wide, added, scale=scale)


@pytest.mark.sweep(12)
@pytest.mark.parametrize("scale", [0.3, -0.5])
@pytest.mark.parametrize(("keys", "steps"), [(16, 1), (32, 1), (16, 2)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [(2, 6, 2, 70, 16, 16), (1, 4, 4, 33, 24, 20), (3, 5, 1, 64, 40, 16), (1, 40, 2, 50, 16, 8)],
)
def test_blocks_of_keys_add_up_to_attention(
    sizes: tuple[int, ...], biased: bool, keys: int, steps: int, scale: float, tmp_path: Path
) -> None:
    batch, many, kept, length, width, out = sizes
    q = torch.randn(batch, 1, many, width).half().transpose(1, 2)
    k, v = (torch.randn(batch, kept, length, n).half() for n in (width, out))
    bias = None
    if biased:
        hidden = torch.rand(batch, 1, 1, length) < 0.6
        bias = torch.randn(batch, 1, 1, length).half().masked_fill(hidden, -math.inf)
        bias = bias.expand(batch, many, 1, length)
    got = attended(q, k, v, bias, keys, scale, tmp_path, steps)
    wanted = expected(q, k, v, bias, scale).nan_to_num(0.0)
    torch.testing.assert_close(got.double(), wanted, rtol=4e-3, atol=4e-3)


def test_a_query_that_sees_no_key_gets_zeros(tmp_path: Path) -> None:
    q, k = torch.randn(2, 2, 1, 16).half(), torch.randn(2, 2, 40, 16).half()
    bias = torch.zeros(2, 2, 1, 40).half()
    bias[0, 1] = -math.inf
    bias[1, 0, :, 3:] = -math.inf
    got = attended(q, k, k, bias, 16, 0.25, tmp_path)
    assert not got[0, 1].any() and not got.isnan().any()
    torch.testing.assert_close(
        got, expected(q, k, k, bias, 0.25).nan_to_num(0).half(), rtol=4e-3, atol=4e-3
    )
