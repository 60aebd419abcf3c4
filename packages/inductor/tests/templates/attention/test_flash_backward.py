"""Attention backward from the template under Triton's interpreter, against float64 autograd."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.triton.build import build
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.templates.attention.flash_backward import (
    Backward,
    keys_kernel,
    queries_kernel,
)
from flambeau_inductor.templates.attention.flash_forward import attention_kernel
from flambeau_inductor.templates.attention.problem import Attention, Blocks, Heads, Rows

Buffers = dict[str, torch.Tensor]


def heads(name: str, tensor: torch.Tensor) -> Heads:
    a, b, c, d = tensor.stride()
    return Heads(name, (a, b, c, d))


def rows(name: str, tensor: torch.Tensor) -> Rows:
    a, b, c = tensor.stride()
    return Rows(name, (a, b, c), tensor.shape[2])


def described(buffers: Buffers, scale: float, causal: bool, bias: bool) -> Backward:
    """The operands of `buffers` as the templates see them."""
    q, k, v = (buffers[name] for name in "qkv")
    batch, many, length, width = q.shape
    sizes = (batch, many, many, length, k.shape[2], width, v.shape[3])
    at = {name: heads(name, t) for name, t in buffers.items() if t.ndim == 4}
    forward = Attention(
        *(at[name] for name in ("q", "k", "v", "out")),
        at["bias"] if bias else None,
        sizes,
        q.dtype,
        causal,
        scale,
        rows("sums", buffers["sums"]),
    )
    delta = rows("delta", buffers["delta"])
    grads = at["dq"], at["dk"], at["dv"]
    of_bias = at["db"] if bias and not causal else None
    return Backward(forward, at["grad"], delta, grads, of_bias)


def run(backward: Backward, blocks: Blocks, buffers: Buffers, folder: Path) -> None:
    """Forward and backward, on these buffers."""
    dtypes = {name: t.dtype for name, t in buffers.items()}
    numels = {name: t.numel() for name, t in buffers.items()}
    kernels = [
        attention_kernel(backward.forward, blocks, (dtypes, numels)),
        queries_kernel(backward, blocks, (dtypes, numels)),
        keys_kernel(backward, blocks, (dtypes, numels)),
    ]
    path = folder / "kernels.py"
    path.write_text(module_text([kernel.source for kernel in kernels]))
    launchers = build(path, kernels)
    for kernel in kernels:
        launchers[kernel.name](*(buffers[name] for name in kernel.arguments))


def buffers_of(
    sizes: tuple[int, int, int, int, int, int], dtype: torch.dtype, padding: int = 0
) -> Buffers:
    batch, many, length, keys, width, out = sizes
    made = {
        "q": torch.randn(batch, length, many, width).transpose(1, 2),
        "k": torch.randn(batch, many, keys, width),
        "v": torch.randn(batch, keys, many, out).transpose(1, 2),
        "grad": torch.randn(batch, many, length, out),
        "bias": torch.randn(batch, 1, length, keys).expand(batch, many, length, keys),
    }
    made = {name: t.to(dtype) for name, t in made.items()}
    for name, of in (("out", "grad"), ("dq", "q"), ("dk", "k"), ("dv", "v")):
        made[name] = torch.full_like(made[of], torch.nan)
    made["db"] = torch.full((batch, many, length, keys), torch.nan, dtype=dtype)
    made["sums"] = torch.full((batch, many, length + padding), torch.nan)
    made["delta"] = torch.full((batch, many, length), torch.nan)
    return made


def exact(buffers: Buffers, scale: float, causal: bool, bias: bool) -> dict[str, torch.Tensor]:
    """Result, logarithms of sums and gradients in float64."""
    q, k, v = (buffers[name].double().requires_grad_() for name in "qkv")
    added = buffers["bias"].double().requires_grad_()
    scores = q @ k.mT * scale + (added if bias else 0)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    out = scores.softmax(-1) @ v
    names = ("dq", "dk", "dv", *["db"] * (bias and not causal))
    learnt = (q, k, v, added)[: len(names)]
    grads = torch.autograd.grad(out, learnt, buffers["grad"].double())
    named = dict(zip(names, grads, strict=True))
    return {"out": out.detach(), "sums": scores.logsumexp(-1).detach(), **named}


@pytest.mark.sweep(12)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ((2, 2, 40, 40, 24, 20), Blocks(16, 16, 4, 2)),
        ((1, 2, 32, 33, 16, 16), Blocks(32, 16, 4, 2)),
        ((1, 1, 50, 50, 16, 32), Blocks(16, 32, 4, 2)),
        ((2, 2, 40, 40, 24, 20), Blocks(16, 16, 4, 2, held=True, ahead=True)),
        ((1, 1, 20, 41, 16, 16), Blocks(16, 16, 4, 2)),
        ((1, 1, 41, 20, 16, 16), Blocks(16, 16, 4, 2)),
    ],
)
def test_gradients(
    sizes: tuple[int, int, int, int, int, int],
    blocks: Blocks,
    bias: bool,
    causal: bool,
    tmp_path: Path,
) -> None:
    buffers = buffers_of(sizes, torch.float32, padding=8)
    run(described(buffers, 0.3, causal, bias), blocks, buffers, tmp_path)
    length = sizes[2]
    assert (buffers["sums"][:, :, length:][..., : -length % blocks.queries] == torch.inf).all()
    buffers["sums"] = buffers["sums"][:, :, :length]
    for name, expected in exact(buffers, 0.3, causal, bias).items():
        close = torch.allclose(buffers[name].double(), expected, rtol=1e-4, atol=1e-5)
        assert close, name


@pytest.mark.sweep(2)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "blocks",
    [
        Blocks(32, 16, 4, 2, described=True),
        Blocks(16, 16, 4, 2, described=True, held=True, ahead=True),
    ],
)
def test_described_operands_of_half_precision(blocks: Blocks, causal: bool, tmp_path: Path) -> None:
    buffers = buffers_of((2, 2, 70, 70, 24, 40), torch.float16)
    backward = described(buffers, 0.2, causal, False)
    numels = {name: t.numel() for name, t in buffers.items()}
    kernel = keys_kernel(backward, blocks, ({n: t.dtype for n, t in buffers.items()}, numels))
    assert len(kernel.descriptors) == 4
    run(backward, blocks, buffers, tmp_path)
    for name, expected in exact(buffers, 0.2, causal, False).items():
        error = (buffers[name].double() - expected).norm() / expected.norm()
        assert error < 2e-3, (name, error)


def test_a_row_that_sees_no_key_has_no_gradient(tmp_path: Path) -> None:
    buffers = buffers_of((1, 1, 16, 16, 16, 16), torch.float32)
    buffers["bias"] = torch.zeros(1, 1, 16, 16)
    buffers["bias"][..., 3, :] = -torch.inf
    buffers["bias"][..., 5, :] = torch.finfo(torch.float32).min
    run(described(buffers, 0.25, False, True), Blocks(16, 16, 4, 2), buffers, tmp_path)
    assert torch.equal(buffers["dq"][0, 0, 3], torch.zeros(16))
    assert torch.equal(buffers["db"][0, 0, 3], torch.zeros(16))
    assert not any(buffers[name].isnan().any() for name in ("out", "dq", "dk", "dv", "db"))
