"""Errors of the functions in generated C++ kernels, in units of the last place, as a table.

    python packages/inductor/tools/measure_ulp.py [--points 4000]

In: nothing. Out: Markdown: per function the range, and the largest error against mpmath for float32
and float64 on each instruction set that this processor has. Float64 functions are libm's.
Invariant: points are spread over the range, and over small numbers by their exponent.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from flambeau_inductor.codegen.cpp.toolchain import FLAGS, INCLUDE, find_toolchain

SETS = {
    "portable": (("-msse2",), 4),
    "AVX2": (("-mavx2", "-mfma", "-mf16c"), 8),
    "AVX-512": (
        ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma", "-mf16c"),
        16,
    ),
}
"""Flags, and the lanes of a float32 vector."""

RANGES: dict[str, tuple[float, float]] = {
    "exp": (-86, 88),
    "exp2": (-125, 127),
    "expm1": (-20, 80),
    "log": (1e-30, 1e5),
    "log2": (1e-30, 1e5),
    "log10": (1e-30, 1e5),
    "log1p": (-0.99, 1e5),
    "tanh": (-12, 12),
    "sigmoid": (-30, 30),
    "erf": (-5, 5),
    "sin": (-8000, 8000),
    "cos": (-8000, 8000),
    "rsqrt": (1e-30, 1e5),
    "sqrt": (1e-30, 1e5),
}
EXACT: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)),
    "exp2": lambda v: mpmath.mpf(2) ** v,
    "log2": lambda v: mpmath.log(v, 2),
    "rsqrt": lambda v: 1 / mpmath.sqrt(v),
}
PROGRAM = """
#include "flambeau/vec.h"
#define FL_W {width}
#include "flambeau/lanes.h"
extern "C" unsigned long fread(void*, unsigned long, unsigned long, void*);
extern "C" unsigned long fwrite(const void*, unsigned long, unsigned long, void*);
extern void *stdin, *stdout;
using namespace fl;
template <class F> static void apply(F f) {{
  {lane} in[{width}], out[{width}];
  while (fread(in, sizeof in, 1, stdin) == 1) {{
    store(out, f(load{width}(in, width<{width}>{{}})), width<{width}>{{}});
    fwrite(out, sizeof out, 1, stdout);
  }}
}}
int main(int, char** names) {{
  switch (names[1][0]) {{
{cases}
  }}
}}
"""


def program(folder: Path, flags: tuple[str, ...], width: int, lane: str) -> Path:
    """A program that applies the function whose letter it is given."""
    cases = "\n".join(
        f"    case {65 + k}: apply([](auto x) {{ return {name}(x); }}); break;"
        for k, name in enumerate(RANGES)
    )
    source, made = folder / f"{lane}.cpp", folder / f"{lane}{width}"
    source.write_text(PROGRAM.format(width=width, lane=lane, cases=cases))
    plain = [f for f in FLAGS if f != "-fPIC"]
    command = [find_toolchain().compiler, *plain, *flags, f"-I{INCLUDE}", str(source), "-lm"]
    subprocess.run([*command, "-o", str(made)], check=True)
    return made


def points(low: float, high: float, count: int, dtype: type[np.floating[Any]]) -> Any:
    """Numbers all over the range, and small ones by exponent."""
    tiny = np.logspace(-15, -1, count // 10)
    small = [tiny] if low > 0 else [tiny, -tiny]
    spread = [np.linspace(low, high, count)]
    if low > 0:
        spread.append(np.logspace(np.log10(low), np.log10(high), count))
    values = np.concatenate([*spread, *small]).astype(dtype)
    return np.resize(values, -(-len(values) // 16) * 16)


def worst(made: Path, name: str, values: Any) -> float:
    """The largest error in units of the last place of the exact result."""
    letter = chr(65 + list(RANGES).index(name))
    done = subprocess.run([made, letter], input=values.tobytes(), capture_output=True, check=True)
    found = np.frombuffer(done.stdout, dtype=values.dtype)
    if len(found) != len(values):
        raise RuntimeError(f"{name}: {len(found)} results of {len(values)}")
    exact = EXACT.get(name) or getattr(mpmath, name)
    largest = 0.0
    with mpmath.workdps(40):
        for value, got in zip(values.tolist(), found.tolist(), strict=True):
            want = exact(mpmath.mpf(value))
            unit = float(np.spacing(values.dtype.type(abs(want))))
            largest = max(largest, float(abs(mpmath.mpf(got) - want)) / unit)
    return largest


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--points", type=int, default=3000)
    count = arguments.parse_args().points
    known = Path("/proc/cpuinfo").read_text()
    sets = {n: s for n, s in SETS.items() if all(f" {f[2:]}" in known for f in s[0])}
    with tempfile.TemporaryDirectory() as folder:
        columns: dict[str, tuple[Path, type[np.floating[Any]]]] = {}
        for name, (flags, width) in sets.items():
            (where := Path(folder) / name).mkdir()
            columns[f"float32 {name}"] = program(where, flags, width, "f32"), np.float32
            columns[f"float64 {name}"] = program(where, flags, width // 2, "f64"), np.float64
        print(f"| function | range | {' | '.join(columns)} |")
        print("| --- | --- |" + " --- |" * len(columns))
        for name, (low, high) in RANGES.items():
            errors = [
                worst(made, name, points(low, high, count, dtype))
                for made, dtype in columns.values()
            ]
            row = " | ".join(f"{e:.2f}" for e in errors)
            print(f"| `{name}` | {low:g} to {high:g} | {row} |")


if __name__ == "__main__":
    main()
