"""Tensor-parallel decoder blocks on several GPUs: eager, Flambeau and the incumbent.

    python benchmarks/programs/tensor_parallel.py --ranks 2

Blocks of a Llama's shape (2048 tokens, width 4096, 32 heads, bf16), their projections split by
columns and rows, a sum over ranks where torch's own examples have one. Forward and backward, every
system in the same processes, steps interleaved; medians in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn import functional as F

TOKENS, HIDDEN, HEADS, INNER, BLOCKS, STEPS = 2048, 4096, 32, 11008, 2, 20


class CopyToAll(torch.autograd.Function):
    """The same to every rank; its derivative is the sum over ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class SumOfAll(torch.autograd.Function):
    """The sum over ranks; its derivative is the same to every rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class Norm(nn.Module):
    """Root mean square norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return (wide * scale).to(x.dtype) * self.weight


class Block(nn.Module):
    """One rank's part of a decoder block."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.heads, self.size = HEADS // ranks, HIDDEN // HEADS
        own = HIDDEN // ranks
        self.n1, self.n2 = Norm(HIDDEN), Norm(HIDDEN)
        self.qkv = nn.Linear(HIDDEN, 3 * own, bias=False)
        self.out = nn.Linear(own, HIDDEN, bias=False)
        self.gate = nn.Linear(HIDDEN, INNER // ranks, bias=False)
        self.up = nn.Linear(HIDDEN, INNER // ranks, bias=False)
        self.down = nn.Linear(INNER // ranks, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = CopyToAll.apply(self.n1(x))
        q, k, v = (
            part.view(1, TOKENS, self.heads, self.size).transpose(1, 2)
            for part in self.qkv(h).chunk(3, -1)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + SumOfAll.apply(self.out(a.transpose(1, 2).reshape(1, TOKENS, -1)))
        h = CopyToAll.apply(self.n2(x))
        return x + SumOfAll.apply(self.down(F.silu(self.gate(h)) * self.up(h)))


def distance(one: Tensor, other: Tensor) -> float:
    """Relative, in the Euclidean norm."""
    return float((one.float() - other.float()).norm() / other.float().norm().clamp(min=1e-12))


def run(rank: int, ranks: int, port: int, systems: list[str]) -> None:
    """One rank; the first prints."""
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_NVLS_ENABLE="0"
    )  # multicast is not to be had on every machine
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=device)
    import flambeau

    torch.manual_seed(rank)
    with device:
        model = nn.Sequential(*[Block(ranks) for _ in range(BLOCKS)]).bfloat16()
        torch.manual_seed(7)
        x = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16).requires_grad_()
        cotangent = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16)
    known: dict[str, Callable[..., Any]] = {"eager": model}
    if "flambeau" in systems:
        known["flambeau"] = flambeau.compile(model, fullgraph=True)
    if "incumbent" in systems:
        known["incumbent"] = torch.compile(model)

    def step(fn: Callable[..., Any]) -> list[Tensor]:
        model.zero_grad()
        x.grad = None
        y = fn(x)
        y.backward(cotangent)
        return [y.detach(), *(p.grad for p in (x, *model.parameters()) if p.grad is not None)]

    def timed(fn: Callable[..., Any]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        torch.cuda.synchronize()
        start.record()
        step(fn)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    wanted = [each.clone() for each in step(model)]
    rows = {}
    for name, fn in known.items():
        started = time.perf_counter()
        found = step(fn)
        torch.cuda.synchronize()
        first = time.perf_counter() - started
        worst = max(distance(a, b) for a, b in zip(found, wanted, strict=True))
        rows[name] = first, worst
        for _ in range(3):
            step(fn)
    times: dict[str, list[float]] = {name: [] for name in known}
    for _ in range(STEPS):
        for name, fn in known.items():
            times[name].append(timed(fn))
    if rank == 0:
        print("| system | step ms | over eager | first step s | largest distance |")
        print("| --- | --- | --- | --- | --- |")
        base = statistics.median(times["eager"])
        for name, (first, worst) in rows.items():
            median = statistics.median(times[name])
            print(f"| {name} | {median:.2f} | {base / median:.2f} | {first:.1f} | {worst:.1e} |")
        report = flambeau.report()
        print(f"{report.graphs} graphs, {len(report.breaks)} breaks, {report.kernels} kernels")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--systems", nargs="*", default=["flambeau", "incumbent"])
    chosen = parser.parse_args()
    port = 29500 + os.getpid() % 1000
    mp.spawn(run, args=(chosen.ranks, port, chosen.systems), nprocs=chosen.ranks)
