"""Race the matrix product's template against the library on 20 shapes, and fused against apart.

bash tools/gpu.sh python3 tools/gpu_products.py --json OUT.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.autotune import Budget, CudaClock, Outcome, Tuner
from flambeau_inductor.autotune.tuned import Values
from flambeau_inductor.cache import open_store, open_values
from flambeau_inductor.compilation import Compilation
from flambeau_inductor.compile import STAGES
from flambeau_inductor.kernels import launch_library
from flambeau_inductor.options import settled
from flambeau_inductor.templates.described import CAPABILITY
from flambeau_inductor.templates.select import LIBRARY, select
from flambeau_inductor.templates.stage import machine
from torch import Tensor, fx

BF16 = torch.bfloat16
SHAPES: tuple[tuple[int, int, int], ...] = (
    (8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024),
    (16384, 4096, 1024), (16384, 1024, 4096), (4096, 11008, 4096), (4096, 4096, 11008),
    (2048, 384, 384), (2048, 1536, 384), (2048, 384, 1536), (2048, 30528, 384),
    (512, 4096, 4096), (256, 4096, 4096), (128, 4096, 4096), (64, 4096, 4096),
    (16, 4096, 4096), (1000, 1000, 1000), (512, 512, 65536), (12608, 768, 768),
)  # fmt: skip


class Fresh:
    """Finds nothing, so that everything is measured; keeps it for the compile that follows."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def get(self, key: str) -> None:
        return None

    def put(self, key: str, value: Any) -> bool:
        return self._values.put(key, value)


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


def outcome(fn: Callable[..., Any], inputs: list[Tensor]) -> Outcome:
    """What the race of the product in `fn` came to."""
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), inputs)
    work = Compilation(gm, inputs, None, settled(Options()), "product")
    for name, stage in STAGES:
        if name == "select":
            break
        stage(work)
    values = open_values(work.options.cache_dir, "autotune")
    tuner = Tuner(Fresh(values), CudaClock(0), Budget(30.0))
    described = torch.cuda.get_device_capability() >= CAPABILITY
    library = launch_library(work.options, open_store(work.options.cache_dir))
    select(work.scheduled(), tuner, machine(0), described=described, library=library)
    return next(o for key, o in tuner.outcomes.items() if key.startswith("product"))


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


def best(found: Outcome) -> tuple[float, str]:
    """The template's best seconds, and with which tile."""
    return min((s, name) for name, s in found.seconds.items() if name != LIBRARY)


def first(found: Outcome) -> float:
    """The template's seconds with the tile that the model of the machine prefers."""
    return next(s for name, s in found.seconds.items() if name != LIBRARY)


def failures(failed: Mapping[str, str]) -> str:
    """What to say of tiles that could not be run."""
    return "".join(f", {name} failed: {why[:60]}" for name, why in failed.items())


def finished(rows: Sequence[Any], path: Path | None) -> int:
    """Keep the rows as JSON, where that is asked for; the exit status, 1 where one is wrong."""
    if path is not None:
        path.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 1 if any(not row.error < 1e-2 for row in rows) else 0


def main() -> int:
    """Measure all shapes; the exit status is 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--shapes", nargs="*", help="rows x columns x inner, as 512x512x65536")
    given = parser.parse_args()
    rows: list[Row] = []
    for shape in SHAPES:
        if given.shapes and "x".join(map(str, shape)) not in given.shapes:
            continue
        row = measure(shape)
        rows.append(row)
        print(
            f"{'x'.join(map(str, shape)):18s} library {row.library:4.0f} TF, template"
            f" {row.template:4.0f} TF = {row.share:.0%} ({row.tile}), with bias and gelu"
            f" {row.fused_share:.0%} of library and loop ({row.first:.0%} with the model's first"
            f" tile), error {row.error:.1e}" + failures(row.failed),
            flush=True,
        )
    status = finished(rows, given.json)
    good = sum(row.share >= 0.9 for row in rows)
    better = sum(row.fused_share > 1 for row in rows)
    print(f"{good} of {len(rows)} at 90 % of the library; fused is faster on {better}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
