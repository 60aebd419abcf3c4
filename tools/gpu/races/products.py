"""Races of the matrix product's template against the library, and of fused against apart.

bash tools/gpu.sh python3 tools/gpu/races/products.py --json OUT.json
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import flambeau_inductor
import flambeau_prims
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.templates.selection.select import LIBRARY
from racing import best, failures, first, outcome, parser, raced
from torch import Tensor, fx

BF16 = torch.bfloat16
CASES: tuple[tuple[int, int, int], ...] = (
    (8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024),
    (16384, 4096, 1024), (16384, 1024, 4096), (4096, 11008, 4096), (4096, 4096, 11008),
    (2048, 384, 384), (2048, 1536, 384), (2048, 384, 1536), (2048, 30528, 384),
    (512, 4096, 4096), (256, 4096, 4096), (128, 4096, 4096), (64, 4096, 4096),
    (16, 4096, 4096), (1000, 1000, 1000), (512, 512, 65536), (12608, 768, 768),
)  # fmt: skip


@dataclass
class Row:
    """Teraflops of the library and of the best tile; `fused_share` is the same with bias and gelu
    behind the product (in the same kernel, or in a loop behind the library's), `first` that with
    the tile that the model of the machine prefers."""

    shape: tuple[int, int, int]
    library: float
    template: float
    tile: str
    share: float
    fused_share: float
    first: float
    error: float
    failed: dict[str, str]


def measure(shape: tuple[int, int, int]) -> Row:
    """Race one shape, alone and with what follows; check the fused kernel's numbers."""
    m, n, k = shape
    x, w = torch.randn(m, k, device="cuda").to(BF16), torch.randn(n, k, device="cuda").to(BF16)
    w *= k**-0.5
    bias = torch.randn(n, device="cuda").to(BF16)

    def alone(x: Tensor, w: Tensor) -> Tensor:
        return torch.mm(x, w.t())

    def more(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return F.gelu(F.linear(x, w, bias))

    plain, fused = outcome(alone, [x, w]), outcome(more, [x, w, bias])
    gm = flambeau_prims.lower(fx.symbolic_trace(more), [x, w, bias])
    options = Options(max_autotune=True, check_inputs=False)
    got = flambeau_inductor.compile(gm, [x, w, bias], options=options)([x, w, bias])[0]
    rows = slice(0, 256)
    exact = more(x[rows].double(), w.double(), bias.double())
    off = float((got[rows].double() - exact).norm() / exact.norm())
    seconds, tile = best(plain)
    together, _ = best(fused)
    flops = 2 * m * n * k
    library = plain.seconds[LIBRARY]
    return Row(
        shape, flops / library / 1e12, flops / seconds / 1e12, tile,
        library / seconds, fused.seconds[LIBRARY] / together, fused.seconds[LIBRARY] / first(fused),
        off, dict(plain.failed),
    )  # fmt: skip


def told(row: Row) -> str:
    """A line of the table."""
    return (
        f"{'x'.join(map(str, row.shape)):18s} library {row.library:4.0f} TF, template"
        f" {row.template:4.0f} TF = {row.share:.0%} ({row.tile}), with bias and gelu"
        f" {row.fused_share:.0%} of library and loop ({row.first:.0%} with the model's first"
        f" tile), error {row.error:.1e}" + failures(row.failed)
    )


if __name__ == "__main__":
    sys.exit(raced(parser(__doc__).parse_args(), CASES, measure, told))
