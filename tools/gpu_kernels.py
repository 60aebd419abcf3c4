"""Time what one pass over memory should do, beside a copy and eager, in one process.

Each case is a function of PyTorch compiled by the inductor; `--json OUT` keeps the figures. The
goal is a share of the copy's bandwidth measured in the same run: 95 % for what only moves bytes,
85 % for what is heavy in exponentials and the error function.

    bash tools/gpu.sh python3 tools/gpu_kernels.py --json OUT.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.autotune import CudaClock
from torch import Tensor, fx

MOVES, HEAVY = 0.95, 0.85
ROWS, COLUMNS = 65536, 4096
BF16 = torch.bfloat16


@dataclass(frozen=True)
class Case:
    """`streams` counts the passes over ROWS x COLUMNS elements of two bytes that are needed."""

    fn: Callable[..., Any]
    inputs: Callable[[], tuple[Tensor, ...]]
    streams: float
    goal: float = MOVES


@dataclass
class Row:
    """Microseconds, and the share of the copy's bandwidth; `missed` says why it is under the
    goal, as far as the figures show."""

    name: str
    us: float
    gbs: float
    of_copy: float
    goal: float
    eager_us: float
    error: float
    kernels: int
    missed: str = ""


def r(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda").to(BF16)


def labels(classes: int) -> Tensor:
    return torch.randint(0, classes, (ROWS,), device="cuda")


def rmsnorm_swiglu(x: Tensor, gate: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (wide * scale).to(x.dtype) * w * F.silu(gate)


def rope(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turned = torch.cat((-q[..., 64:], q[..., :64]), -1)
    return q * cos + turned * sin


def norm_backward(grad: Tensor, x: Tensor, w: Tensor) -> Tensor:
    wide, g = x.float(), grad.float() * w.float()
    centred = wide - wide.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)
    unit = centred * scale
    along = unit * (g * unit).mean(-1, keepdim=True)
    return ((g - g.mean(-1, keepdim=True) - along) * scale).to(x.dtype)


def softmax_backward(grad: Tensor, y: Tensor) -> Tensor:
    g, p = grad.float(), y.float()
    return (p * (g - (g * p).sum(-1, keepdim=True))).to(y.dtype)


def chain(x: Tensor, y: Tensor) -> Tensor:
    return torch.sigmoid(x * 1.5 + y) * torch.tanh(x) + y.abs().sqrt()


def whole() -> tuple[Tensor, ...]:
    return (r(ROWS, COLUMNS),)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def normed(*first: Callable[[], Tensor]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (*(f() for f in first), r(COLUMNS), r(COLUMNS))


def matrix() -> Tensor:
    return r(ROWS, COLUMNS)


CASES: dict[str, Case] = {
    "softmax": Case(softmax, whole, 2),
    "softmax of 64": Case(softmax, lambda: (r(ROWS * 64, 64),), 2),
    "softmax of 1024": Case(softmax, lambda: (r(ROWS * 4, 1024),), 2),
    "softmax of 32768": Case(softmax, lambda: (r(ROWS // 8, 32768),), 2),
    "softmax of 131072": Case(softmax, lambda: (r(ROWS // 32, 131072),), 2),
    "softmax backward": Case(softmax_backward, lambda: (matrix(), matrix()), 3),
    "log-softmax": Case(lambda x: torch.log_softmax(x, -1), whole, 2),
    "layernorm": Case(lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), normed(matrix), 2),
    "layernorm of 256": Case(
        lambda x, w, b: F.layer_norm(x, (256,), w, b),
        lambda: (r(ROWS * 16, 256), r(256), r(256)),
        2,
    ),
    "layernorm backward": Case(norm_backward, lambda: (matrix(), matrix(), r(COLUMNS)), 3),
    "residual+layernorm": Case(
        lambda x, y, w, b: F.layer_norm(x + y, (COLUMNS,), w, b), normed(matrix, matrix), 3
    ),
    "layernorm+gelu": Case(
        lambda x, w, b: F.gelu(F.layer_norm(x, (COLUMNS,), w, b)), normed(matrix), 2, HEAVY
    ),
    "rmsnorm+swiglu": Case(rmsnorm_swiglu, lambda: (matrix(), matrix(), r(COLUMNS)), 3, HEAVY),
    "gelu": Case(lambda x: F.gelu(x), whole, 2, HEAVY),
    "gelu by tanh": Case(lambda x: F.gelu(x, approximate="tanh"), whole, 2, HEAVY),
    "pointwise chain": Case(chain, lambda: (matrix(), matrix()), 3, HEAVY),
    "cross-entropy": Case(
        lambda x, t: F.cross_entropy(x.float(), t), lambda: (matrix(), labels(COLUMNS)), 1, HEAVY
    ),
    "rope": Case(rope, lambda: (r(8, 32, 8192, 128), r(8192, 128), r(8192, 128)), 2),
    "transpose+add": Case(lambda x, y: x.t() + y, lambda: (matrix(), r(COLUMNS, ROWS)), 3),
    "column sums": Case(lambda x: x.float().sum(0), whole, 1),
    "variance of rows": Case(lambda x: x.float().var(-1), whole, 1),
    "embedding": Case(
        lambda t, i: F.embedding(i, t), lambda: (r(50000, COLUMNS), labels(50000)), 2
    ),
}


WHY = {
    "softmax of 32768": "a row of 64 KiB in registers: two programs a multiprocessor, no more",
    "softmax of 131072": "a row of 256 KiB fits on no multiprocessor and is read twice",
}
"""Of the cases that were looked into, what keeps them from their goal."""


def median(clock: CudaClock, run: Callable[[], object], rounds: int) -> float:
    """Median seconds of a run with cold caches, one run thrown away."""
    times = [clock.sample(run) for _ in range(rounds + 1)][1:]
    return sorted(times)[len(times) // 2]


def copy_rate(clock: CudaClock) -> float:
    """Gigabytes a second, read and written, of a plain copy."""
    source = matrix()
    target = torch.empty_like(source)
    return 2 * source.nbytes / median(clock, lambda: target.copy_(source), 25) / 1e9


def error(case: Case, got: Tensor, inputs: tuple[Tensor, ...]) -> float:
    """Relative error against float64, of the first rows where the rest does not matter."""
    first, *others = inputs
    rows = got.shape[0] if got.ndim and got.shape[0] < 4096 else 1024
    by_row = got.ndim == 2 and first.ndim == 2 and got.shape == first.shape
    if not by_row:
        if first.numel() > 1 << 28 or got.numel() > 1 << 26:
            return float("nan")  # a copy in float64 would not say more than the cases by row
        rows = first.shape[0]
    cut = [t[:rows] if by_row and t.shape == first.shape else t for t in (first, *others)]
    exact = case.fn(*(t.double() if t.is_floating_point() else t for t in cut))
    own = got[:rows].double() if by_row else got.double()
    return float((own - exact).norm() / exact.norm())


def measure(name: str, case: Case, clock: CudaClock, copy: float, options: Options) -> Row:
    """Compile, check and time one case."""
    inputs = case.inputs()
    gm = flambeau_prims.lower(fx.symbolic_trace(case.fn), list(inputs))
    compiled = flambeau_inductor.compile(gm, list(inputs), options=options)
    off = error(case, compiled(list(inputs))[0], inputs)
    own = median(clock, lambda: compiled(list(inputs)), 15)
    eager = median(clock, lambda: case.fn(*inputs), 5)
    rate = case.streams * ROWS * COLUMNS * 2 / own / 1e9
    row = Row(name, own * 1e6, rate, rate / copy, case.goal, eager * 1e6, off, 0)
    row.kernels = compiled.report.kernels
    if row.of_copy < case.goal:
        row.missed = f"{row.kernels} launches" if row.kernels > 2 else "arithmetic"
        row.missed = WHY.get(name, row.missed)
    return row


def main() -> int:
    """Run the cases; the exit status is 1 where one is wrong or fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--max-autotune", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    clock = CudaClock(0)
    copy = copy_rate(clock)
    print(f"copy {copy:.0f} GB/s", flush=True)
    rows: list[Row] = []
    failed: list[str] = []
    options = Options(check_inputs=False, max_autotune=given.max_autotune)
    for name in given.names or CASES:
        try:
            row = measure(name, CASES[name], clock, copy, options)
        except Exception as problem:  # a failing case is a result; the others still run
            failed.append(f"{name}: {type(problem).__name__}: {str(problem)[:200]}")
            print("FAILED", failed[-1], flush=True)
            continue
        rows.append(row)
        print(
            f"{name:20s} {row.us:7.0f} us {row.gbs:6.0f} GB/s {row.of_copy:5.0%} of copy"
            f" (goal {row.goal:.0%}), eager {row.eager_us:7.0f} us, error {row.error:.1e}"
            f" {row.missed}",
            flush=True,
        )
        torch.cuda.empty_cache()
    if given.json is not None:
        table = {"copy GB/s": copy, "rows": [asdict(row) for row in rows], "failed": failed}
        given.json.write_text(json.dumps(table, indent=1))
    wrong = [row.name for row in rows if row.error > 1e-2]
    print(f"{len(rows)} cases, wrong: {wrong or 'none'}, failed: {len(failed)}", flush=True)
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())
