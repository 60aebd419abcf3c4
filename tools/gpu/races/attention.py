"""Races of the attention templates against the library's kernels, forth and back.

bash tools/gpu.sh python3 tools/gpu/races/attention.py --json OUT.json
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import flambeau_inductor
import flambeau_prims
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.templates.selection.select import LIBRARY
from flambeau_inductor.tuning import machine_of, tuning_for
from racing import parser, raced
from torch import Tensor, fx
from torch.nn.attention import SDPBackend, sdpa_kernel

BF16 = torch.bfloat16
AHEAD = 100
BLOCKS = re.compile(r"^def \w+?_(\d+x\d+w\d+s\w+)", re.MULTILINE)
CASES: tuple[tuple[int, int, int, int, bool, bool], ...] = (
    # batch, heads, positions, width, causal, bias
    (8, 16, 2048, 64, False, False), (8, 16, 2048, 64, True, False),
    (4, 16, 4096, 128, False, False), (4, 16, 4096, 128, True, False),
    (16, 12, 512, 64, False, True), (16, 12, 128, 32, False, False), (8, 16, 1024, 64, False, True),
)  # fmt: skip
BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)


@dataclass
class Row:
    """Teraflops of what the inductor runs, and of the best of the library's kernels."""

    way: str
    case: tuple[int, int, int, int, bool, bool]
    own: float
    best: float
    choice: str
    error: float


class Queue:
    """Seconds of one run, of runs that are queued ahead: what the processor does to queue a run,
    which autograd takes long for, is not in them. The level 2 cache is overwritten before each."""

    def __init__(self, runs: int = 15) -> None:
        self._flush = torch.empty(
            tuning_for(machine_of(0)).flush_bytes, dtype=torch.uint8, device="cuda"
        )
        self._events = [[torch.cuda.Event(enable_timing=True) for _ in "ab"] for _ in range(runs)]

    def median(self, run: Callable[[], object]) -> float:
        run()
        torch.cuda.synchronize()
        for _ in range(AHEAD):  # the device is kept busy while the processor gets ahead of it
            self._flush.zero_()
        for before, after in self._events:
            self._flush.zero_()
            before.record()
            run()
            after.record()
        torch.cuda.synchronize()
        return statistics.median(a.elapsed_time(b) for a, b in self._events) * 1e-3


def measure(case: tuple[int, int, int, int, bool, bool], queue: Queue) -> Row:
    batch, heads, length, width, causal, biased = case
    q, k, v = (torch.randn(batch, heads, length, width, device="cuda").to(BF16) for _ in range(3))
    bias = torch.randn(batch, 1, length, length, device="cuda").to(BF16) if biased else None

    def attend(q: Tensor, k: Tensor, v: Tensor, *added: Tensor) -> Tensor:
        mask = added[0].expand(batch, heads, length, length) if added else None
        out = torch.ops.flambeau_prims.attention.default(q, k, v, mask, 0.0, causal)
        return out[0]

    if biased:

        def traced(q: Tensor, k: Tensor, v: Tensor, added: Tensor) -> Tensor:
            return attend(q, k, v, added)

        inputs = [q, k, v, bias]
    else:

        def traced(q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # type: ignore[misc]
            return attend(q, k, v)

        inputs = [q, k, v]
    gm = flambeau_prims.lower(fx.symbolic_trace(traced), inputs)
    options = Options(max_autotune=True, check_inputs=False)
    compiled = flambeau_inductor.compile(gm, inputs, options=options)
    got = compiled(list(inputs))[0]
    few = slice(0, 1), slice(0, 2)
    exact = F.scaled_dot_product_attention(
        *(t[few].double() for t in (q, k, v)),
        attn_mask=None if bias is None else bias[:1].double().expand(1, 2, length, length),
        is_causal=causal,
    )
    error = float((got[few].double() - exact).norm() / exact.norm())
    own = queue.median(lambda: compiled(list(inputs)))
    times = []
    full = None if bias is None else bias.expand(batch, heads, length, length)
    for backend in BACKENDS:
        try:
            with sdpa_kernel(backend):
                times.append(
                    queue.median(
                        lambda: F.scaled_dot_product_attention(
                            q, k, v, attn_mask=full, is_causal=causal
                        )
                    )
                )
        except RuntimeError:  # not for these operands
            continue
    flops = 4 * batch * heads * length * length * width / (2 if causal else 1)
    choice = _choice(compiled)
    return Row("forward", case, flops / own / 1e12, flops / min(times) / 1e12, choice, error)


def _choice(compiled: flambeau_inductor.CompiledGraph) -> str:
    """The blocks of the template's kernels, by which they are named, or the library."""
    source = compiled.report.sources.get("kernels.py", "")
    return " ".join(BLOCKS.findall(source)) if "tl.dot" in source else LIBRARY


def measure_backward(case: tuple[int, int, int, int, bool, bool], queue: Queue) -> Row:
    """The gradients of q, k and v (and none of a bias), given what the forward left."""
    batch, heads, length, width, causal, biased = case
    shape = (batch, heads, length, width)
    q, k, v, grad = (torch.randn(shape, device="cuda").to(BF16) for _ in range(4))
    bias = torch.randn(batch, 1, length, length, device="cuda").to(BF16) if biased else None
    full = None if bias is None else bias.expand(batch, heads, length, length)
    prims = torch.ops.flambeau_prims
    out, sums = prims.attention.default(q, k, v, full, 0.0, causal)
    inputs = [grad, q, k, v, out, sums, *([full] if full is not None else [])]

    def plain(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor) -> object:
        return prims.attention_backward.default(grad, q, k, v, out, sums, None, 0.0, causal)

    def added(
        grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, bias: Tensor
    ) -> object:
        return prims.attention_backward.default(grad, q, k, v, out, sums, bias, 0.0, causal)

    traced = added if biased else plain
    gm = flambeau_prims.lower(fx.symbolic_trace(traced), inputs)
    options = Options(max_autotune=True, check_inputs=False)
    compiled = flambeau_inductor.compile(gm, inputs, options=options)
    got = compiled(list(inputs))
    few = slice(0, 1), slice(0, 2)
    exact = [t[few].double().requires_grad_() for t in (q, k, v)]
    result = F.scaled_dot_product_attention(
        *exact, attn_mask=None if full is None else full[few].double(), is_causal=causal
    )
    right = torch.autograd.grad(result, exact, grad[few].double())
    error = max(
        float((mine[few].double() - g).norm() / g.norm())
        for mine, g in zip(got, right, strict=True)
    )
    own = queue.median(lambda: compiled(list(inputs)))
    operands = [t.detach().requires_grad_() for t in (q, k, v)]
    times = []
    for backend in BACKENDS:
        try:
            with sdpa_kernel(backend):
                made = F.scaled_dot_product_attention(*operands, attn_mask=full, is_causal=causal)
                back = partial(torch.autograd.grad, made, operands, grad, retain_graph=True)
                times.append(queue.median(back))
        except RuntimeError:  # not for these operands
            continue
    flops = 10 * batch * heads * length * length * width / (2 if causal else 1)
    choice = _choice(compiled)
    return Row("backward", case, flops / own / 1e12, flops / min(times) / 1e12, choice, error)


def told(row: Row) -> str:
    """A line of the table."""
    return (
        f"{row.way} {row.case}: {row.own:.0f} TF by {row.choice or 'template'}, best of the library"
        f" {row.best:.0f} TF ({row.own / row.best:.0%}), error {row.error:.1e}"
    )


def main() -> int:
    """Measure all cases, forth and then back; the exit status is 1 where one is wrong."""
    given = parser(__doc__).parse_args()
    queue = Queue()
    ways = [(way, case) for way in (measure, measure_backward) for case in CASES]
    return raced(given, ways, lambda each: each[0](each[1], queue), told)


if __name__ == "__main__":
    sys.exit(main())
