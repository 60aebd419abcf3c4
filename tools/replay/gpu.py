"""GPU kernels of functions at sizes that people use, with no GPU: text alone, nothing runs.

In: functions of fake tensors. Out: a debug folder a half. Invariant: AOT traces on the CPU, where
fake tensors may require grad; only what the graph compiler gets lies on a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import flambeau_aot
import flambeau_inductor
import flambeau_prims
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode

from flambeau.backends.composed import classify

BF16, F32 = torch.bfloat16, torch.float32
GPU = torch.device("cuda", 0)
#: capability and name of the machine that kernels are chosen for
CAPABILITY, NAME = (9, 0), "NVIDIA H200"


class _Enough(Exception):
    """All is written that is wanted: there is nothing to run it on."""


def compile_offline(program: tuple[Callable[..., Any], Callable[[], list[Any]]], to: str) -> None:
    fn, operands = program
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        inputs = operands()
    rules = flambeau_prims.decompositions()
    table = {op: rule for op, rule in rules.items() if op not in flambeau_inductor.KEPT_WHOLE}

    def enough(stage: str, work: Any) -> None:
        if stage == "wrap":
            raise _Enough

    def compile_graph(gm: fx.GraphModule, examples: list[Any], info: Any) -> Any:
        moved, inputs = on_gpu(gm, examples)
        options = flambeau_inductor.Options(observer=enough, debug_dir=to, disk_cache=False)
        with contextlib.suppress(_Enough):
            flambeau_inductor.compile(moved, inputs, info, options)
        return not_run

    def not_run(args: list[Any]) -> Any:
        raise _Enough

    with (
        contextlib.suppress(_Enough),
        mock.patch.object(torch.cuda, "device", lambda index: contextlib.nullcontext()),
        mock.patch.object(torch.cuda, "get_device_capability", lambda *index: CAPABILITY),
        mock.patch.object(torch.cuda, "get_device_name", lambda *index: NAME),
    ):
        options = flambeau_aot.Options(compile_backward="ahead", classify=classify)
        flambeau_aot.aot_function(fn, compile_graph, decompositions=table, options=options)(*inputs)


def on_gpu(gm: fx.GraphModule, examples: list[Any]) -> tuple[fx.GraphModule, list[Any]]:
    """The same graph on a GPU."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def moved(value: Any) -> Any:
        if isinstance(value, Tensor):
            with mode, torch.no_grad():
                return torch.empty_strided(
                    value.shape, value.stride(), dtype=value.dtype, device=GPU
                )
        return type(value)(map(moved, value)) if isinstance(value, tuple | list) else value

    def placed(value: Any) -> Any:
        return GPU if isinstance(value, torch.device) else value

    graph, known = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in gm.graph.nodes:
        made = known[node] = graph.node_copy(node, lambda other: known[other])
        made.args = fx.node.map_aggregate(made.args, placed)  # type: ignore[assignment]
        made.kwargs = fx.node.map_aggregate(made.kwargs, placed)  # type: ignore[assignment]
        made.meta = dict(node.meta)
        if "val" in made.meta:
            made.meta["val"] = moved(made.meta["val"])
    return fx.GraphModule(gm, graph), [moved(value) for value in examples]


def _of(*shapes: tuple[int, ...], dtype: torch.dtype = BF16, grad: bool = True) -> Any:
    return lambda: [torch.empty(shape, dtype=dtype, requires_grad=grad) for shape in shapes]


def _with_words(shape: tuple[int, ...], below: int, *others: tuple[int, ...]) -> Any:
    """Operands that require grad, and indices."""
    return lambda: [
        *(torch.empty(other, dtype=BF16, requires_grad=True) for other in others),
        torch.randint(below, shape),
    ]


def _block(
    x: Tensor, w1: Tensor, b1: Tensor, wq: Tensor, wo: Tensor, wu: Tensor, wd: Tensor
) -> Any:
    """A layer of GPT-2."""
    batch, length, width = x.shape
    h = F.layer_norm(x, (width,), w1, b1)
    q, k, v = (
        part.view(batch, length, -1, 64).transpose(1, 2) for part in (h @ wq).chunk(3, dim=-1)
    )
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + y.transpose(1, 2).reshape(batch, length, width) @ wo
    h = F.layer_norm(x, (width,), w1, b1)
    return x + F.gelu(h @ wu, approximate="tanh") @ wd


def _rms(x: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def _rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def _scores(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125 + bias, -1) @ v


def _update(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m, v = m.lerp(g, 0.1), v * 0.999 + g * g * 0.001
    return p * 0.999 - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def _quantised(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return x @ (w.to(x.dtype) * scale).t()


GPU_PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "product_gelu": (lambda x, w: F.gelu(x @ w), _of((8192, 4096), (4096, 4096))),
    "linear_relu": (
        lambda x, w, b: F.relu(F.linear(x, w, b)), _of((4096, 1024), (4096, 1024), (4096,))
    ),
    "product_float": (lambda x, w: (x @ w).tanh(), _of((2048, 1024), (1024, 512), dtype=F32)),
    "decoding_product": (lambda x, w: F.silu(x @ w), _of((1, 4096), (4096, 11008), grad=False)),
    "odd_product": (lambda x, w: x @ w, _of((2048, 2048), (2048, 2049), grad=False)),
    "quantised_product": (
        _quantised,
        lambda: [
            torch.empty(64, 4096, dtype=BF16),
            torch.empty(4096, 4096, dtype=torch.int8),
            torch.empty(4096, 1, dtype=BF16),
        ],
    ),
    "gpt2_layer": (
        _block,
        _of((8, 1024, 768), (768,), (768,), (768, 2304), (768, 768), (768, 3072), (3072, 768)),
    ),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        _of(*[(4, 16, 2048, 64)] * 3),
    ),
    "attention_spelt_out": (_scores, _of(*[(4, 16, 1024, 64)] * 3, (1, 1, 1024, 1024))),
    "softmax": (lambda x: torch.softmax(x, -1), _of((65536, 4096))),
    "layernorm_gelu": (
        lambda x, w, b: F.gelu(F.layer_norm(x, (4096,), w, b)),
        _of((16384, 4096), (4096,), (4096,)),
    ),
    "rmsnorm_swiglu": (lambda x, g, w: _rms(x, w) * F.silu(g), _of(*[(16384, 4096)] * 2, (4096,))),
    "cross_entropy": (
        lambda x, at: F.cross_entropy(x.float(), at), _with_words((8192,), 50257, (8192, 50257))
    ),
    "rope": (_rope, _of((4, 16, 2048, 64), (2048, 64), (2048, 64))),
    "embedding_norm": (
        lambda w, g, at: _rms(F.embedding(at, w), g),
        _with_words((8, 2048), 50257, (50257, 768), (768,)),
    ),
    "groupnorm_silu_conv": (
        lambda x, w: F.conv2d(F.silu(F.group_norm(x, 32)), w, padding=1),
        lambda: [
            torch.empty(4, 320, 64, 64, dtype=BF16, requires_grad=True),
            torch.empty(320, 320, 3, 3, dtype=BF16, requires_grad=True),
        ],
    ),
    "batchnorm_relu": (
        lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True)),
        _of((64, 256, 56, 56), (256,), (256,), dtype=F32),
    ),
    "dropout_residual": (
        lambda x, y, w, b: F.layer_norm(x + F.dropout(y, 0.1), (1024,), w, b),
        _of(*[(32768, 1024)] * 2, (1024,), (1024,)),
    ),
    "rows": (lambda x: x.var(-1), _of((4096, 65536), dtype=F32)),
    "columns": (lambda x: x.var(0), _of((65536, 4096), dtype=F32)),
    "whole_sum": (lambda x: x.square().sum(), _of((1 << 26,), dtype=F32)),
    "transpose_add": (lambda x, y: x + y.t(), _of(*[(8192, 8192)] * 2)),
    "running_sum": (lambda x: x.cumsum(-1), _of((8192, 8192), dtype=F32)),
    "largest": (lambda x: x.argmax(-1), _of((8192, 50257), grad=False)),
    "scatter_add": (
        lambda x, at: torch.zeros(4096, 256, dtype=BF16).index_add(0, at, x),
        _with_words((65536,), 4096, (65536, 256)),
    ),
    "adamw": (_update, _of(*[(4096, 4096)] * 4, dtype=F32, grad=False)),
}  # fmt: skip
