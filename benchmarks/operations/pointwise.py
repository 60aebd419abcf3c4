"""Time of one pointwise function, compiled and in eager, on one thread.

    python -m benchmarks.operations.pointwise [--size 100000] [--only exp,sinh]
        [--out benchmarks/results]

In: nothing. Out: `pointwise-cpu.md`, the microseconds of eager and of the compiled call and their
ratio for every function and dtype of `FUNCTIONS` and `DTYPES`. Invariant: calls of both are
interleaved; the lower quartile of the rounds counts; a call of the compiled program has the
overhead that 16 elements show, which is told apart for what is slower.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

import flambeau

Function = Callable[[torch.Tensor], torch.Tensor]
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
UNARY = (  # noqa: SIM905
    "abs neg sign ceil floor round trunc exp exp2 expm1 log log2 log10 log1p sqrt rsqrt "
    "reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv "
    "lgamma digamma sigmoid isnan isinf isfinite "
).split()
FUNCTIONS: dict[str, Function] = {
    **{name: getattr(torch, name) for name in UNARY},
    "add": lambda x: x + 1,
    "mul": lambda x: x * 3.3,
    "div": lambda x: x / 3.3,
    "pow": lambda x: x**1.7,
    "pow of tensors": lambda x: torch.pow(x, x + 1),
    "atan2": lambda x: torch.atan2(x, x + 1),
    "maximum": lambda x: torch.maximum(x, x - 0.5),
    "fmax": lambda x: torch.fmax(x, x - 0.5),
    "copysign": lambda x: torch.copysign(x, x - 0.5),
    "nextafter": lambda x: torch.nextafter(x, x + 1),
    "fmod": lambda x: torch.fmod(x, 0.3),
    "remainder": lambda x: x % 0.3,
    "floor_divide": lambda x: x // 0.3,
}
ROUNDS, CALLS = 15, 4


def seconds(functions: list[Function], x: torch.Tensor) -> list[float]:
    """The lower quartile of a call of each, interleaved."""
    taken: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for function, times in zip(functions, taken, strict=True):
            started = time.perf_counter()
            for _ in range(CALLS):
                function(x)
            times.append((time.perf_counter() - started) / CALLS)
    return [sorted(times)[ROUNDS // 4] for times in taken]


def measured(function: Function, x: torch.Tensor) -> tuple[float, float, float]:
    """Microseconds in eager, compiled, and what one call costs more than eager's on 16 elements."""
    compiled = flambeau.compile(lambda x: function(x))
    few = x[:16].clone()
    with torch.no_grad():
        for given in (x, few):
            for _ in range(5):
                compiled(given)
        eager, made = seconds([function, compiled], x)
        eager_few, made_few = seconds([function, compiled], few)
    return eager * 1e6, made * 1e6, (made_few - eager_few) * 1e6


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--size", type=int, default=100_000)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--out", type=Path)
    a = arguments.parse_args()
    torch.set_num_threads(1)
    chosen = a.only.split(",") if a.only else list(FUNCTIONS)
    heads = " | ".join(str(d).removeprefix("torch.") for d in DTYPES)
    lines = [f"| function | {heads} |", "| --- " * (len(DTYPES) + 1) + "|"]
    slower = []
    for name in chosen:
        cells = []
        for dtype in DTYPES:
            x = (torch.rand(a.size, dtype=torch.float64) * 0.9 + 0.05).to(dtype)
            eager, made, call = measured(FUNCTIONS[name], x + 1 if name == "acosh" else x)
            cells.append(f"{eager:.1f}, {made:.1f}: {made / eager:.2f}")
            if made > 1.05 * eager:
                short = str(dtype).removeprefix("torch.")
                slower.append(f"{name} {short} {made / eager:.2f} ({(made - call) / eager:.2f})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    text = f"""`python -m benchmarks.operations.pointwise --size {a.size}`

Microseconds of one call in eager, and compiled: their ratio. {a.size} elements, one thread,
{platform.processor() or platform.machine()}, torch {torch.__version__}
({torch.backends.cpu.get_cpu_capability()}), Python {platform.python_version()}.

{chr(10).join(lines)}

Slower by more than 5 %, in brackets without what a call costs more than eager's on 16 elements:
{"; ".join(slower) or "none"}.
"""
    if a.out:
        (a.out / "pointwise-cpu.md").write_text(text)
    print(text.rsplit("\n\n", 1)[-1])


if __name__ == "__main__":
    main()
