"""Decoding a token at a time on a GPU: milliseconds a token, and the share of the memory's speed.

    bash tools/gpu.sh python -m benchmarks.programs.decoding --shapes 1b 3b --batches 1 4
        --json OUT.json

In: nothing. Out: a line for each shape, kind of weights and batch: milliseconds a token of eager,
of Flambeau in two modes and of the incumbent in its best one, each step waited for and steps in a
row, as a loop that only prints at its end runs them; and the bytes of the weights over these times
beside a copy's speed. Invariant: every case is a process of its own; rounds of all systems are
interleaved and their median counts; each system's tokens are compared with eager's.

The model is written as its users write it: the cache is written at a position that is a tensor,
heads of keys and values are repeated, int8 weights are `F.linear(x, w.to(x.dtype)) * scale`;
int4 ones lie two in a byte and have a scale for each 128 columns of a row.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.run import run_case

#: layers, width, inner width, heads, heads of keys and values
SHAPES = {
    "1b": (16, 2048, 8192, 32, 8),
    "3b": (28, 3072, 8192, 24, 8),
    "8b": (32, 4096, 14336, 32, 8),
}
VOCABULARY, CACHE = 128256, 2048
WEIGHTS = ("bf16", "int8", "int4")
GROUP = 128  # columns that share a scale where weights have four bits
STEPS = 24


class Int8Linear(nn.Module):
    """A linear map whose weights are bytes, each row with a scale of its own."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scale = linear.weight.detach().abs().amax(1) / 127
        self.register_buffer("scale", scale)
        self.register_buffer("weight", (linear.weight.detach() / scale[:, None]).round().char())

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


class Int4Linear(nn.Module):
    """A linear map whose weights are halves of bytes, each 128 columns of a row with a scale."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        groups = linear.weight.detach().view(linear.out_features, -1, GROUP)
        scale = groups.abs().amax(2, keepdim=True) / 7
        whole = ((groups / scale).round() + 8).to(torch.uint8).view(linear.out_features, -1, 2)
        self.register_buffer("scale", scale)
        self.register_buffer("weight", whole[..., 0] | (whole[..., 1] << 4))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.weight.shape[0]
        whole = torch.stack((self.weight & 15, self.weight >> 4), -1)
        groups = (whole.view(rows, -1, GROUP).to(x.dtype) - 8) * self.scale
        return F.linear(x, groups.view(rows, -1))


QUANTISED = {"int8": Int8Linear, "int4": Int4Linear}


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Positions by rotation (Su et al. 2021), halves of each head apart."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


class Block(nn.Module):
    """Attention over a cache, and a gated feed-forward layer, each behind a norm."""

    def __init__(self, width: int, inner: int, heads: int, groups: int, batch: int) -> None:
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.head, bias=False)
        self.v = nn.Linear(width, groups * self.head, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.register_buffer("keys", torch.zeros(batch, groups, CACHE, self.head))
        self.register_buffer("values", torch.zeros(batch, groups, CACHE, self.head))

    def forward(self, x: Tensor, at: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        batch = x.shape[0]
        normed = self.norm1(x)
        q = self.q(normed).view(batch, 1, self.heads, self.head).transpose(1, 2)
        k = self.k(normed).view(batch, 1, self.groups, self.head).transpose(1, 2)
        v = self.v(normed).view(batch, 1, self.groups, self.head).transpose(1, 2)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        self.keys[:, :, at] = k
        self.values[:, :, at] = v
        keys = self.keys.repeat_interleave(self.heads // self.groups, 1)
        values = self.values.repeat_interleave(self.heads // self.groups, 1)
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, 1, -1))
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """One step: the likeliest token after one at a position."""

    def __init__(self, shape: str, batch: int) -> None:
        super().__init__()
        layers, width, inner, heads, groups = SHAPES[shape]
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(
            Block(width, inner, heads, groups, batch) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.out = nn.Linear(width, VOCABULARY, bias=False)
        angles = torch.outer(
            torch.arange(CACHE), 500000.0 ** (-torch.arange(0, 1, 2 * heads / width))
        ).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("masks", torch.ones(CACHE, CACHE, dtype=torch.bool).tril())

    def forward(self, token: Tensor, at: Tensor) -> Tensor:
        x = self.embedding(token)
        cos, sin, mask = self.cos[at], self.sin[at], self.masks[at]
        for block in self.blocks:
            x = block(x, at, cos, sin, mask)
        return self.out(self.norm(x)).argmax(-1)


def model_of(shape: str, weights: str, batch: int) -> Decoder:
    """The decoder on the GPU, the same in every process."""
    torch.manual_seed(7)
    with torch.device("cuda"):
        model = Decoder(shape, batch).bfloat16().eval().requires_grad_(False)
    if weights in QUANTISED:
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if type(child) is nn.Linear:
                    setattr(module, name, QUANTISED[weights](child))
    return model


def weight_bytes(model: Decoder) -> int:
    """Bytes of weights that a step has to read."""
    linears = [m for m in model.modules() if isinstance(m, nn.Linear | Int8Linear | Int4Linear)]
    return sum(m.weight.numel() * m.weight.element_size() for m in linears)


def copy_speed() -> float:
    """Bytes a second that a large copy reads and writes."""
    source = torch.ones(1 << 30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    times = [_elapsed(lambda: target.copy_(source)) for _ in range(10)]
    return 2 * source.numel() / median(times)


def _elapsed(call: Callable[[], Any]) -> float:
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    call()
    after.record()
    torch.cuda.synchronize()
    return float(before.elapsed_time(after)) / 1e3


def measure(shape: str, weights: str, batch: int, chosen: list[str]) -> dict[str, Any]:
    """Seconds a token by system, in this process."""
    import flambeau

    wraps: dict[str, Callable[[Any], Any]] = {
        "eager": lambda fn: fn,
        "flambeau": flambeau.compile,
        "flambeau reduce-overhead": lambda fn: flambeau.compile(fn, mode="reduce-overhead"),
        "incumbent reduce-overhead": lambda fn: torch.compile(fn, mode="reduce-overhead"),
    }
    model = model_of(shape, weights, batch)
    caches = [b for n, b in model.named_buffers() if n.endswith(("keys", "values"))]
    start = torch.arange(batch, device="cuda")[:, None] + 5
    rows: dict[str, Any] = {}
    steps: dict[str, Callable[[int], Tensor]] = {}
    wanted: list[Tensor] = []
    positions = torch.arange(CACHE, device="cuda").unsqueeze(1)

    def decoded(fn: Callable[[Tensor, Tensor], Tensor], count: int) -> list[Tensor]:
        for cache in caches:
            cache.zero_()
        found, token = [], start.clone()
        for at in range(count):
            token = fn(token, positions[at]).clone()
            found.append(token)
        return found

    def in_a_row(step: Callable[[int], Tensor]) -> None:
        for at in range(STEPS):
            step(CACHE // 2 + at)

    with torch.no_grad():
        for name in [n for n in wraps if n in chosen]:
            try:
                fn = wraps[name](model)
                started = time.perf_counter()
                fn(start, positions[0])
                torch.cuda.synchronize()
                rows[name] = {"first_s": time.perf_counter() - started}
                found = decoded(fn, 12)
                wanted = wanted or found
                same = [bool((a == b).all()) for a, b in zip(found, wanted, strict=True)]
                rows[name]["equal tokens"] = same.index(False) if False in same else len(same)
                steps[name] = lambda at, fn=fn: fn(start, positions[at])
            except Exception as error:  # a failing system is a result
                rows[name] = {"failed": f"{type(error).__name__}: {error}"[:200]}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for at in range(STEPS):
            for name, step in steps.items():
                torch.cuda.synchronize()
                times[name].append(_elapsed(lambda step=step, at=at: step(CACHE // 2 + at)))
        for name, step in steps.items():
            repeated = [_elapsed(lambda step=step: in_a_row(step)) for _ in range(5)]
            rows[name]["ms in a row"] = 1e3 * median(repeated) / STEPS
    for name, samples in times.items():
        rows[name]["ms"] = 1e3 * median(samples[4:])
    bytes_read, speed = weight_bytes(model), copy_speed()
    for row in rows.values():
        if "ms" in row:
            row["share"] = bytes_read / speed / row["ms"] * 1e3
            row["share in a row"] = bytes_read / speed / row["ms in a row"] * 1e3
    report = flambeau.report()
    kept = {"fallbacks": len(report.fallbacks), "breaks": len(report.breaks)}
    return {"bytes": bytes_read, "copy": speed, "systems": rows, "report": kept}


def line(case: str, result: dict[str, Any]) -> str:
    """A row of the table."""
    if "failed" in result:
        return f"| {case} | {result['failed']} |"
    cells = [case]
    for name, row in result["systems"].items():
        figures = (
            "{ms:.3f} ms {share:.0%}, in a row {ms in a row:.3f} ms {share in a row:.0%}, "
            "{equal tokens} equal, first {first_s:.1f} s"
        )
        cells.append(f"{name}: " + (figures.format(**row) if "ms" in row else row["failed"][:80]))
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--weights", nargs="*", default=list(WEIGHTS), choices=WEIGHTS)
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 4, 16])
    parser.add_argument("--systems", nargs="*", default=[
        "eager", "flambeau", "flambeau reduce-overhead", "incumbent reduce-overhead",
    ])  # fmt: skip
    parser.add_argument("--timeout", type=float, default=150.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--case", nargs=3, metavar=("SHAPE", "WEIGHTS", "BATCH"))
    a = parser.parse_args()
    if a.case:
        print(json.dumps(measure(a.case[0], a.case[1], int(a.case[2]), a.systems)))
        return 0
    results: dict[str, Any] = {}
    cases = [(s, w, b) for s in a.shapes for w in a.weights for b in a.batches]
    for shape, weights, batch in cases:
        name = f"{shape} {weights} batch {batch}"
        arguments = ["--case", shape, weights, str(batch), "--systems", *a.systems]
        with tempfile.TemporaryDirectory() as caches:
            results[name] = run_case(arguments, caches, a.timeout, "programs/decoding.py")
        print(line(name, results[name]), flush=True)
        if a.json is not None:
            a.json.write_text(json.dumps(results, indent=1))
    return 1 if any("failed" in each for each in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
