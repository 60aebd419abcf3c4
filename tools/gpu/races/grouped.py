"""Races of grouped products, and batches of many small ones, against the library and a loop.

bash tools/gpu.sh python3 tools/gpu/races/grouped.py --json OUT.json
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flambeau_inductor
import flambeau_prims
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.autotune import CudaClock
from flambeau_inductor.templates.selection.select import LIBRARY
from racing import best, failures, first, outcome, parser, raced
from torch import Tensor, fx

BF16 = torch.bfloat16
CASES: tuple[tuple[str, int, int, int, int], ...] = (
    # what the groups share or follow each other along; rows, columns, inner of all; groups
    ("rows", 16384, 4096, 2048, 8), ("rows", 16384, 14336, 4096, 8), ("rows", 8192, 1408, 2048, 64),
    ("rows", 4096, 3072, 768, 16), ("rows", 512, 4096, 4096, 8), ("rows", 64, 4096, 4096, 8),
    ("columns", 4096, 16384, 2048, 8),
    ("inner", 2048, 4096, 16384, 8), ("inner", 2048, 1408, 8192, 64),
    ("inner", 768, 3072, 4096, 16),
    ("batch", 32, 32, 32, 4096), ("batch", 64, 64, 64, 4096), ("batch", 128, 128, 64, 1024),
    ("batch", 256, 64, 256, 512), ("batch", 20, 20, 20, 4096),
)  # fmt: skip
ROUNDS = 9


@dataclass
class Row:
    """Microseconds of the library and of the best tile for groups of equal size; `fused_share` is
    that with what a gate does behind it; `first` and `fused_first` are of the tile that the model
    of the machine prefers. `uneven` are the library, a loop over the groups and the compiled
    program for groups of which some are empty and some twice as large.
    """

    case: tuple[str, int, int, int, int]
    library: float
    template: float
    tile: str
    share: float
    first: float
    fused_share: float
    fused_first: float
    uneven: tuple[float, float, float]
    error: float
    failed: dict[str, str]


def operands(case: tuple[str, int, int, int, int]) -> tuple[Tensor, Tensor]:
    """Both operands; weights are stored as linear layers store theirs."""
    kind, m, n, k, count = case

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, device="cuda").to(BF16) * k**-0.25

    if kind == "rows":
        return drawn(m, k), drawn(count, n, k).mT
    if kind == "columns":
        return drawn(count, m, k), drawn(n, k).T
    if kind == "inner":
        return drawn(k, m).T, drawn(k, n)
    return drawn(count, m, k), drawn(count, k, n)


def sizes(case: tuple[str, int, int, int, int]) -> list[int]:
    """Groups of which a quarter are empty, and a quarter twice as large; some lie off a tile."""
    kind, m, n, k, count = case
    whole = {"rows": m, "columns": n, "inner": k}[kind]
    plain = whole // count // 8 * 8  # the library's strides are multiples of 16 bytes
    found = [(0, 2 * plain - 8, plain, plain + 8)[number % 4] for number in range(count)]
    return found


def apart(case: tuple[str, int, int, int, int], a: Tensor, b: Tensor) -> Callable[[], Any]:
    """A loop over the groups, whose sizes the processor knows."""
    kind, ends = case[0], sizes(case)

    def loop() -> Any:
        if kind == "rows":
            return torch.cat([x @ w for x, w in zip(a[: sum(ends)].split(ends), b)])
        if kind == "columns":
            return torch.cat([x @ w for x, w in zip(a, b[:, : sum(ends)].split(ends, 1))], 1)
        left, right = a[:, : sum(ends)].split(ends, 1), b[: sum(ends)].split(ends)
        return torch.stack([x @ w for x, w in zip(left, right)])

    return loop


def exact(case: tuple[str, int, int, int, int], a: Tensor, b: Tensor) -> Tensor:
    """The same in float32, which is far more exact than what is compared with it."""
    if case[0] == "batch":
        return torch.bmm(a.float(), b.float())
    made = apart(case, a.float(), b.float())()
    assert isinstance(made, Tensor)
    return made


def measure(case: tuple[str, int, int, int, int]) -> Row:
    """Race one case, alone and with what follows; check and time groups of other sizes."""
    kind = case[0]
    a, b = operands(case)
    inputs = [a, b]
    if kind == "batch":

        def alone(a: Tensor, b: Tensor) -> Tensor:
            return torch.bmm(a, b)

        def gated(a: Tensor, b: Tensor) -> Tensor:
            return F.silu(torch.bmm(a, b))
    else:
        ends = torch.tensor(sizes(case), device="cuda").cumsum(0).int()
        inputs.append(ends)

        def alone(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:  # type: ignore[misc]
            return F.grouped_mm(a, b, offs=ends)

        def gated(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:  # type: ignore[misc]
            return F.silu(F.grouped_mm(a, b, offs=ends))

    plain, fused = outcome(alone, inputs), outcome(gated, inputs)
    gm = flambeau_prims.lower(fx.symbolic_trace(alone), inputs)
    options = Options(max_autotune=True, check_inputs=False)
    compiled = flambeau_inductor.compile(gm, inputs, options=options)
    wanted = exact(case, a, b)
    got = compiled(list(inputs))[0]
    part = got[: wanted.shape[0]] if kind == "rows" else got[..., : wanted.shape[-1]]
    off = float((part.float() - wanted).norm() / wanted.norm())
    runs: list[Callable[[], Any]] = [lambda: alone(*inputs)]
    runs.append(apart(case, a, b) if kind != "batch" else lambda: torch.bmm(a, b))
    runs.append(lambda: compiled(list(inputs)))
    seconds, tile = best(plain)
    together, _ = best(fused)
    library = plain.seconds[LIBRARY]
    return Row(
        case, library * 1e6, seconds * 1e6, tile, library / seconds, library / first(plain),
        fused.seconds[LIBRARY] / together, fused.seconds[LIBRARY] / first(fused), times(runs),
        off, dict(plain.failed),
    )  # fmt: skip


def times(runs: list[Callable[[], Any]]) -> tuple[float, float, float]:
    """Microseconds of each, in turns."""
    clock = CudaClock(0)
    samples: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for run, found in zip(runs, samples, strict=True):
            found.append(clock.sample(run) * 1e6)
    a, b, c = (statistics.median(found) for found in samples)
    return a, b, c


def told(row: Row) -> str:
    """A line of the table."""
    return (
        f"{' '.join(map(str, row.case)):28s} library {row.library:5.0f} us, template"
        f" {row.template:5.0f} us = {row.share:.0%} ({row.tile}; {row.first:.0%} with the"
        f" model's first), with silu {row.fused_share:.0%} of library and loop"
        f" ({row.fused_first:.0%}); uneven:"
        f" library, loop, compiled {' '.join(f'{us:.0f}' for us in row.uneven)} us,"
        f" error {row.error:.1e}" + failures(row.failed)
    )


if __name__ == "__main__":
    sys.exit(raced(parser(__doc__).parse_args(), CASES, measure, told))
