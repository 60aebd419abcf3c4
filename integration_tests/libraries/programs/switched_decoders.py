"""Scripts that train a decoder of their own and call `torch.compile`: on its whole, its layers, its
loss, its optimizer. Flambeau is installed, and nothing else is changed."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from integration_tests.libraries.programs.text import TOKENS
from integration_tests.libraries.workload import Compile, Program, workload


class Block(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.silu(self.up(self.second(x))))


class Decoder(nn.Module):
    def __init__(self, layers: int = 2, width: int = 32) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(TOKENS, width), nn.Linear(width, TOKENS, bias=False)
        self.layers, self.norm = (
            nn.ModuleList(Block(width) for _ in range(layers)),
            nn.RMSNorm(width),
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def next_tokens(batch: int = 2, length: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, TOKENS, (batch, length + 1))
    return tokens[:, :-1], tokens[:, 1:]


@workload(installs=True)
def pretraining_with_accumulation(compile: Compile) -> Program:
    """Accumulated gradients, clipping, a cosine of learning rates, losses estimated in between."""
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
    compiled, counted = torch.compile(model), [0]

    @torch.no_grad()
    def estimate() -> torch.Tensor:
        compiled.eval()
        x, y = next_tokens()
        loss = F.cross_entropy(compiled(x).flatten(0, 1), y.flatten())
        compiled.train()
        return loss

    def step() -> Any:
        rate = 1e-3 * 0.5 * (1 + math.cos(math.pi * counted[0] / 50))
        for group in optimizer.param_groups:
            group["lr"] = rate
        for _ in range(2):
            x, y = next_tokens()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(compiled(x).flatten(0, 1), y.flatten()) / 2
            loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        counted[0] += 1
        return loss, norm, estimate()

    return Program(step, model, optimizer)


@workload(installs=True)
def finetuning_by_layer(compile: Compile) -> Program:
    """Layers compiled one by one in place, under checkpointing; a loss in chunks, compiled too."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
    )

    model = Decoder(layers=3)
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))
    for layer in reversed(list(model.layers)):
        layer.compile(backend="inductor")
    chunk = torch.compile(lambda logits, y: F.cross_entropy(logits.float(), y, reduction="sum"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        x, y = next_tokens()
        logits = model(x)
        pairs = zip(logits.chunk(4, 1), y.chunk(4, 1), strict=True)
        loss = sum(chunk(a.flatten(0, 1), b.flatten()) for a, b in pairs) / y.numel()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return Program(step, model, optimizer)


@workload(installs=True)
def pretraining_by_block(compile: Compile) -> Program:
    """Blocks compiled whole and put back by name, the optimizer's step and the loss as well."""
    model = Decoder()
    kept = (model.embed, model.norm, model.head, *model.layers)
    for name, block in model.layers.named_children():
        model.layers.register_module(name, torch.compile(block, fullgraph=True))
    loss_fn = torch.compile(lambda logits, y: F.cross_entropy(logits.flatten(0, 1), y.flatten()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3), capturable=False)
    update = torch.compile(optimizer.step)

    def step() -> torch.Tensor:
        x, y = next_tokens()
        loss = loss_fn(model(x), y)
        loss.backward()
        update()
        optimizer.zero_grad()
        return loss

    return Program(step, *kept)


@workload(installs=True)
def orthogonalised_momentum(compile: Compile) -> Program:
    """An optimizer with a compiled function of its own, beside a model compiled for one size."""

    @torch.compile
    def orthogonal(gradient: torch.Tensor) -> torch.Tensor:
        x = gradient.bfloat16()
        x = x.mT if x.size(0) > x.size(1) else x
        x = x / (x.norm() + 1e-7)
        for _ in range(3):
            product = x @ x.mT
            x = 3.4445 * x + (-4.775 * product + 2.0315 * product @ product) @ x
        return x.mT if gradient.size(0) > gradient.size(1) else x

    class Momentum(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    kept = state.setdefault("momentum", torch.zeros_like(p))
                    kept.lerp_(p.grad, 0.05)
                    p.add_(orthogonal(p.grad.lerp(kept, 0.95)).to(p.dtype), alpha=-group["lr"])

    model = Decoder()
    optimizer = Momentum([p for p in model.layers.parameters() if p.ndim == 2], {"lr": 0.02})
    compiled = torch.compile(model, dynamic=False)

    def step() -> torch.Tensor:
        x, y = next_tokens()
        loss = F.cross_entropy(compiled(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        model.zero_grad()
        return loss

    return Program(step, model)
