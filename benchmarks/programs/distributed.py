"""Training on several ranks by eager, Flambeau and the incumbent: losses, and samples per second.

    python benchmarks/programs/distributed.py --ranks 2 [--device cpu|cuda] [--wraps ddp,tp]
        [--json file]

In: a number of processes, which communicate by gloo on CPUs and by NCCL on GPUs. Out: a table: for
each way to wrap (DDP around what is compiled or in it, FSDP2 with compiled blocks or whole, with
its gathers in the graph, whole steps, tensor parallelism, and the same of rows that are gathered
and scattered, as they are or in chunks) and each system the median step, the time in which the host
was busy, the losses' distance from eager's, the first step, the peak memory of rank 0.
Invariant: all systems train the same weights on the same batches, in the same processes, one after
the other; a system that fails is a row that says so.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.systems import SYSTEMS, systems


@dataclass(frozen=True)
class Size:
    """Of the decoder that is trained, and of its batches on each rank."""

    layers: int
    width: int
    heads: int
    words: int
    length: int
    batch: int


SIZES = {
    "tiny": Size(1, 16, 2, 32, 8, 2),
    "cpu": Size(2, 64, 4, 512, 32, 4),
    "cuda": Size(12, 768, 12, 16384, 512, 8),
    "1b": Size(16, 2048, 32, 32000, 1024, 4),
}


@dataclass(frozen=True)
class Row:
    """What one system did under one way to wrap. Times in seconds, memory in bytes."""

    wrap: str
    system: str
    step: float | None = None
    first: float | None = None
    peak: int | None = None
    loss_distance: float | None = None
    host: float | None = None
    error: str | None = None


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norms = nn.ModuleList(nn.LayerNorm(size.width) for _ in range(2))
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.up = nn.Linear(size.width, 4 * size.width)
        self.down = nn.Linear(4 * size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) in, the same out."""
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Decoder(nn.Module):
    """A small language model; returns the loss of predicting the next word."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.places = nn.Embedding(size.length, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(batch, length) word numbers in, a scalar out."""
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.words.weight.T
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def ddp(size: Size, device: torch.device, compile_it: Callable[[Any], Any]) -> Any:
    """The model under DistributedDataParallel, compiled around it."""
    return compile_it(DistributedDataParallel(Decoder(size).to(device)))


def ddp_of_compiled(size: Size, device: torch.device, compile_it: Callable[[Any], Any]) -> Any:
    """DistributedDataParallel around the compiled model."""
    return DistributedDataParallel(compile_it(Decoder(size).to(device)))


def fsdp2(size: Size, device: torch.device, compile_it: Callable[[Any], Any]) -> Any:
    """Every block compiled and sharded by itself, then what is left."""
    model = Decoder(size).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model.blocks:
        block.forward = compile_it(block.forward)
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def fsdp2_whole(size: Size, device: torch.device, compile_it: Callable[[Any], Any]) -> Any:
    """The sharded model compiled whole."""
    return compile_it(fsdp2(size, device, lambda forward: forward))


def step(model: Any, optimizer: Any, ids: torch.Tensor) -> torch.Tensor:
    """A whole step; returns the loss."""
    loss: torch.Tensor = model(ids)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def tensor_parallel(size: Size, device: torch.device, compile_it: Callable[[Any], Any]) -> Any:
    """The feed-forward layers of every block by columns and rows, compiled whole."""
    model = Decoder(size).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return compile_it(model)


def by_rows(size: Size, device: torch.device, compile_it: Callable[[Any], Any]) -> Any:
    """Each rank's own rows, gathered for the feed-forward layers by columns and rows, and scattered
    after them; gradients of what each rank has whole are summed as they come."""
    model = Decoder(size).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    plan = {
        "up": ColwiseParallel(input_layouts=Shard(0)),
        "down": RowwiseParallel(output_layouts=Shard(0)),
    }
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    for each in model.parameters():
        if not isinstance(each.data, DTensor):
            each.register_post_accumulate_grad_hook(_summed)
    return compile_it(model)


def _summed(parameter: nn.Parameter) -> None:
    dist.all_reduce(parameter.grad)


def fsdp2_plain(size: Size, device: torch.device, compile_it: Callable[[Any], Any]) -> Any:
    """The sharded model as it is: its step is compiled."""
    return fsdp2(size, device, lambda forward: forward)


def ddp_plain(size: Size, device: torch.device, compile_it: Callable[[Any], Any]) -> Any:
    """The model under DistributedDataParallel as it is: its step is compiled."""
    return DistributedDataParallel(Decoder(size).to(device))


TENSOR_PARALLEL = "tp"
OWN_OPTIONS: dict[str, dict[str, Any]] = {
    "fsdp2 gathered": {"capture.gather_parameters": True},
    "fsdp2 step": {"capture.gather_parameters": True},
    "ddp step": {"capture.sum_gradients": True},
    "sequence chunks": {"inductor.chunk_products": True},
}
"""What ours is told, by the way to wrap."""
WRAPS: dict[str, Callable[..., Any]] = {
    "ddp": ddp,
    "ddp of compiled": ddp_of_compiled,
    "fsdp2": fsdp2,
    "fsdp2 whole": fsdp2_whole,
    "fsdp2 gathered": fsdp2_whole,
    "fsdp2 step": fsdp2_plain,
    "ddp step": ddp_plain,
    TENSOR_PARALLEL: tensor_parallel,
    "sequence": by_rows,
    "sequence chunks": by_rows,
}


def _train(
    wrap: str, compile_it: Callable[[Any], Any], size: Size, device: torch.device, steps: int
) -> tuple[list[float], list[float], list[float], int]:
    """Losses, seconds of each step, those in which the process was busy, peak bytes."""
    torch.manual_seed(0)
    model = WRAPS[wrap](size, device, compile_it)
    optimizer = torch.optim.AdamW(_by_kind(model.parameters()), lr=1e-4)
    own = 0 if wrap == TENSOR_PARALLEL else dist.get_rank()  # whose ranks share their batches
    made = torch.Generator().manual_seed(1 + own)
    half = torch.bfloat16 if device.type == "cuda" else torch.float32
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    losses, seconds, host = [], [], []
    run = compile_it(step) if wrap.endswith(" step") else step
    for _ in range(steps):
        ids = torch.randint(size.words, (size.batch, size.length), generator=made).to(device)
        _wait(device)
        started, busy = time.perf_counter(), time.process_time()
        with torch.autocast(device.type, half, enabled=half != torch.float32):
            loss = run(model, optimizer, ids)
        host.append(time.process_time() - busy)
        _wait(device)
        seconds.append(time.perf_counter() - started)
        losses.append(loss.item())
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return losses, seconds, host, peak


def _by_kind(parameters: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
    """Groups of parameters of one class: torch 2.11 steps none of plain and distributed ones."""
    found: dict[type, list[nn.Parameter]] = {}
    for each in parameters:
        found.setdefault(type(each.data), []).append(each)
    return [{"params": group} for group in found.values()]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Run:
    """What is measured."""

    ranks: int
    kind: str
    steps: int
    size: str
    wraps: tuple[str, ...]
    systems: tuple[str, ...]


def _rank(rank: int, run: Run, meeting: str, results: Any) -> None:
    kind, steps = run.kind, run.steps
    device = torch.device(kind, rank) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
        os.environ["NCCL_NVLS_ENABLE"] = "0"
    else:
        torch.set_num_threads(1)
    backend = "nccl" if kind == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=f"file://{meeting}", rank=rank, world_size=run.ranks
    )
    for wrap in run.wraps:
        found = systems(options=OWN_OPTIONS.get(wrap)).items()
        chosen = {name: compile_it for name, compile_it in found if name in run.systems}
        expected: list[float] = []
        for name, compile_it in chosen.items():
            gc.collect()  # what the system before held is no part of this one's peak
            if kind == "cuda":
                torch.cuda.empty_cache()
            try:
                losses, seconds, busy, peak = _train(
                    wrap, compile_it, SIZES[run.size], device, steps
                )
            except Exception as error:  # whatever a system raises is its result
                results.put((rank, Row(wrap, name, error=f"{type(error).__name__}: {error}"[:300])))
                continue
            expected = expected or losses
            distance = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
            middle = statistics.median(seconds[len(seconds) // 2 :])
            host = statistics.median(busy[len(busy) // 2 :])
            results.put((rank, Row(wrap, name, middle, seconds[0], peak, distance, host)))
            dist.barrier()
    dist.destroy_process_group()


def table(rows: list[Row], run: Run) -> str:
    """The rows as Markdown; samples per second over all ranks, which share theirs under tensor
    parallelism."""
    lines = [
        f"| {run.ranks} x {run.kind} | system | step ms | samples/s | over eager | host ms | "
        "first step s | peak GB | largest distance of a loss |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    eager = {row.wrap: row.step for row in rows if row.system == "eager"}
    for row in rows:
        if row.step is None or row.first is None:
            lines.append(f"| {row.wrap} | {row.system} | failed: {row.error} | | | | | | |")
            continue
        base = eager.get(row.wrap)
        batch = SIZES[run.size].batch * (1 if row.wrap == TENSOR_PARALLEL else run.ranks)
        ratio = f"{base / row.step:.3f}" if base else ""
        speed = f"{row.step * 1e3:.2f} | {batch / row.step:.1f} | {ratio}"
        lines.append(
            f"| {row.wrap} | {row.system} | {speed} | {(row.host or 0) * 1e3:.2f} | "
            f"{row.first:.2f} | "
            f"{(row.peak or 0) / 1e9:.2f} | {row.loss_distance:.1e} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--size", choices=tuple(SIZES), help="as the device has by default")
    parser.add_argument("--wraps", default=",".join(WRAPS), help="%(default)s")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="%(default)s")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    run = Run(
        chosen.ranks, chosen.device, chosen.steps, chosen.size or chosen.device,
        tuple(chosen.wraps.split(",")), tuple(chosen.systems.split(",")),
    )  # fmt: skip
    unknown = {*run.wraps} - {*WRAPS} | {*run.systems} - {*SYSTEMS}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: no such way to wrap, or system")
    context = processes.get_context("spawn")
    results = context.Queue()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        arguments = (run, f"{folder}/meeting", results)
        started = [
            context.Process(target=_rank, args=(rank, *arguments)) for rank in range(run.ranks)
        ]
        for each in started:
            each.start()
        while any(each.is_alive() for each in started) or not results.empty():
            while not results.empty():
                rank, row = results.get()
                print(f"rank {rank}: {row}", flush=True)
                rows += [row] if rank == 0 else []
            time.sleep(0.1)
    print(table(rows, run))
    if chosen.json:
        record = {
            "command": " ".join(sys.argv), "torch": torch.__version__, "run": asdict(run),
            "size": asdict(SIZES[run.size]), "rows": [asdict(row) for row in rows],
        }  # fmt: skip
        chosen.json.write_text(json.dumps(record, indent=1), encoding="utf-8")
    return int(any(row.error for row in rows if row.system == "flambeau") or not rows)


if __name__ == "__main__":
    sys.exit(main())
