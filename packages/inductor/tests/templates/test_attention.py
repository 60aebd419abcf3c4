"""The attention template under Triton's interpreter, against the formula."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.triton.build import build
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.templates.attention.flash_forward import attention_kernel
from flambeau_inductor.templates.attention.problem import Attention, Blocks, Heads
from torch.nn import functional as F

SMALL = Blocks(16, 16, 4, 2)
AHEAD = Blocks(16, 16, 4, 2, held=True, ahead=True)


def heads(name: str, tensor: torch.Tensor) -> Heads:
    a, b, c, d = tensor.stride()
    return Heads(name, (a, b, c, d))


@pytest.mark.sweep(6)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sizes", [(2, 4, 2, 40, 40, 24, 20), (1, 2, 2, 16, 33, 16, 16)])
@pytest.mark.parametrize("blocks", [SMALL, AHEAD])
def test_attention(
    blocks: Blocks, sizes: tuple[int, ...], bias: bool, causal: bool, tmp_path: Path
) -> None:
    batch, many, kept, length, keys, width, out = sizes
    q = torch.randn(batch, length, many, width).transpose(1, 2)
    k, v = torch.randn(batch, kept, keys, width), torch.randn(batch, kept, keys, out)
    added = torch.randn(batch, 1, 1, keys).expand(batch, many, length, keys)
    result = torch.full((batch, many, length, out), torch.nan)
    buffers = {"q": q, "k": k, "v": v, "bias": added, "out": result}
    attention = Attention(
        heads("q", q),
        heads("k", k),
        heads("v", v),
        heads("out", result),
        heads("bias", added) if bias else None,
        (batch, many, kept, length, keys, width, out),
        torch.float32,
        causal,
        0.3,
    )
    dtypes = {name: t.dtype for name, t in buffers.items()}
    numels = {name: t.numel() for name, t in buffers.items()}
    kernel = attention_kernel(attention, blocks, (dtypes, numels))
    path = tmp_path / "kernel.py"
    path.write_text(module_text([kernel.source]))
    build(path, [kernel])[kernel.name](*(buffers[name] for name in kernel.arguments))
    mask = added if bias else torch.zeros(length, keys)
    if causal:
        seen = torch.ones(length, keys, dtype=torch.bool).tril()
        mask = mask.masked_fill(~seen, -torch.inf)
    many_keys, many_values = (t.repeat_interleave(many // kept, 1) for t in (k, v))
    expected = F.scaled_dot_product_attention(q, many_keys, many_values, mask, scale=0.3)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("blocks", [SMALL, AHEAD])
def test_a_row_without_any_key_gives_zeros(blocks: Blocks, tmp_path: Path) -> None:
    q, k, v = (torch.randn(1, 1, 16, 16) for _ in range(3))
    bias = torch.zeros(1, 1, 16, 16)
    bias[..., 3, :] = -torch.inf
    bias[..., 5, :] = torch.finfo(torch.float32).min  # hidden, all alike: the mean
    bias[..., 7, 4:] = torch.finfo(torch.float32).min
    out = torch.full_like(q, torch.nan)
    buffers = {"q": q, "k": k, "v": v, "bias": bias, "out": out}
    at = {name: heads(name, t) for name, t in buffers.items()}
    sizes = (1, 1, 1, 16, 16, 16, 16)
    attention = Attention(
        at["q"], at["k"], at["v"], at["out"], at["bias"], sizes, torch.float32, False, 0.25
    )
    dtypes, numels = dict.fromkeys(buffers, torch.float32), dict.fromkeys(buffers, 256)
    kernel = attention_kernel(attention, blocks, (dtypes, numels))
    path = tmp_path / "kernel.py"
    path.write_text(module_text([kernel.source]))
    build(path, [kernel])[kernel.name](*(buffers[name] for name in kernel.arguments))
    assert torch.equal(out[0, 0, 3], torch.zeros(16)) and not out.isnan().any()
    torch.testing.assert_close(out[0, 0, 5], v[0, 0].mean(0), rtol=1e-5, atol=1e-5)
    expected = F.scaled_dot_product_attention(q[..., 7:8, :], k[..., :4, :], v[..., :4, :])
    torch.testing.assert_close(out[..., 7:8, :], expected, rtol=1e-5, atol=1e-5)
