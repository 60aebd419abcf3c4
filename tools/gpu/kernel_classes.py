"""Classes of generated Triton kernels on a real GPU, against float64 arithmetic.

Prints a table and writes JSON:

    bash tools/gpu.sh python3 tools/gpu/kernel_classes.py --json OUT.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "packages" / "inductor"))

from flambeau_inductor.codegen.triton.build import build
from flambeau_inductor.codegen.triton.kernel import generate
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.runtime.gpu.launch import Launcher
from tests.codegen import loops
from tests.codegen.triton.offline.compile_classes import dtypes_of

F32 = torch.float32


def launcher(loop: Loop, folder: Path) -> tuple[Launcher, tuple[str, ...]]:
    """The loop's kernel, compiled for this GPU, and its argument order."""
    dtypes = dtypes_of(loop)
    kernel = generate(loop, dtypes, dict.fromkeys(dtypes, 1 << 20))
    path = folder / f"{loop.name}_{abs(hash(kernel.source))}.py"
    path.write_text(module_text([kernel.source]))
    return build(path, [kernel])[kernel.name], kernel.arguments


def check_classes(folder: Path, most: int | None = None) -> list[dict[str, object]]:
    """Numbers of each class, or of the first `most`, against float64 arithmetic."""
    generator = torch.Generator("cuda").manual_seed(0)

    def randn(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
        return torch.randn(shape, device="cuda", generator=generator).to(dtype)

    def empty(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
        return torch.full(shape, 77, device="cuda", dtype=dtype)

    a, b = randn(300, 4096), randn(500, 1000)
    long, wide = randn(3, 70001), randn(700, 300)
    index = torch.randint(0, 300, (64,), device="cuda", generator=generator)
    cases: list[tuple[Loop, dict[str, torch.Tensor], torch.Tensor]] = [
        (loops.softmax(300, 4096), {"in0": a, "out": empty(300, 4096)}, a.double().softmax(-1)),
        (loops.softmax(3, 70001), {"in0": long, "out": empty(3, 70001)}, long.double().softmax(-1)),
        (
            loops.reduction("argmax", 500, 1000, F32, torch.int64),
            {"in0": b, "out": empty(500, dtype=torch.int64)},
            b.argmax(-1),
        ),
        (loops.reduction("max", 500, 1000, F32, F32), {"in0": b, "out": empty(500)}, b.amax(-1)),
        (loops.column_sum(700, 300), {"in0": wide, "out": empty(300)}, wide.double().sum(0)),
        (
            loops.transpose_add(300, 700),
            {"in0": wide, "in1": randn(300, 700), "out": empty(300, 700)},
            torch.empty(0),
        ),
        (loops.embedding(64, 4096), {"table": a, "index": index, "out": empty(64, 4096)}, a[index]),
        (loops.total(300 * 4096), {"in0": a, "out": empty(1)}, a.double().sum()[None]),
    ]
    for op in (
        *("exp", "erf", "tanh", "log1p", "sin", "rsqrt", "sigmoid", "atan", "round"),
        *("erfc", "lgamma", "digamma"),
    ):
        x = randn(5000)
        cases.append(
            (
                loops.pointwise(op, 1, 5000, F32, F32),
                {"in0": x, "out": empty(5000)},
                getattr(torch, op)(x.double()),
            )
        )
    x, y = randn(5000), randn(5000)
    for op in ("pow", "div", "maximum", "atan2", "fmod", "remainder", "nextafter"):
        cases.append(
            (
                loops.pointwise(op, 2, 5000, F32, F32),
                {"in0": x, "in1": y, "out": empty(5000)},
                getattr(torch, op)(x.double(), y.double()),
            )
        )
    rows: list[dict[str, object]] = []
    for loop, buffers, expected in cases[:most]:
        if loop.name == "transpose_add":
            expected = buffers["in0"].double().T + buffers["in1"].double()
        launch, names = launcher(loop, folder)
        launch(*(buffers[name] for name in names))
        got = buffers["out"].double()
        error = (got - expected).abs().nan_to_num(0) / (1 + expected.abs().nan_to_num(0))
        agree = torch.equal(got.isnan(), expected.isnan())
        worst = float(error.max())
        name = loop.body[-2].op if loop.name == "pointwise" else loop.name  # type: ignore[union-attr]
        rows.append({"class": name, "error": worst, "right": agree and worst < 1e-5})
        print(
            f"  {name:20s} error {worst:.1e} {'ok' if rows[-1]['right'] else 'WRONG'}", flush=True
        )
    return rows


def main() -> int:
    """Run all; the exit status is 1 when a number is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--small", action="store_true", help="a few, for tools that are slow")
    arguments = parser.parse_args()
    import triton  # reported only

    versions = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    print(versions, flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        classes = check_classes(folder, 8 if arguments.small else None)
    if arguments.json is not None:
        result = {"versions": versions, "classes": classes}
        arguments.json.write_text(json.dumps(result, indent=1))
    return 0 if all(row["right"] for row in classes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
