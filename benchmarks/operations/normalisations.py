"""Times of normalisations and spreads, compiled and in eager, in a thread's own time.

    python -m benchmarks.operations.normalisations [--only NAME,...]

In: nothing. Out: microseconds of eager and of the compiled program for every call of `calls`, the
median of the rounds and the least, as a table on standard output. Invariant: both run in turns in
one process, on one thread, and other programs' work counts in neither.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import flambeau_inductor
import flambeau_prims
import torch
import torch.nn.functional as F
from torch import Tensor, fx

Call = tuple[str, Callable[..., Any], tuple[Tensor, ...]]
ROUNDS, LEAST_SECONDS = 25, 0.004


def calls() -> Iterator[Call]:
    """Names, functions and arguments."""
    for rows, width in ((64, 768), (1024, 768), (256, 1024), (64, 4096), (1024, 4096)):
        x, w, b = torch.randn(rows, width) + 3, torch.randn(width), torch.randn(width)
        name = f"layer_norm {rows} x {width}"
        yield name, lambda x, w, b: F.layer_norm(x, (x.shape[1],), w, b), (x, w, b)
    x = torch.randn(1024, 768)
    yield "var of rows 1024 x 768", lambda x: x.var(1), (x,)
    yield "std of rows 1024 x 768", lambda x: x.std(1), (x,)
    yield "var of columns 1024 x 768", lambda x: x.var(0), (x,)
    yield "var of rows 64 x 20000", lambda x: x.var(1), (torch.randn(64, 20000),)
    for shape in ((8, 64, 56, 56), (32, 128, 14, 14)):
        x, w, b = torch.randn(shape), torch.randn(shape[1]), torch.randn(shape[1])
        size = " x ".join(map(str, shape))
        yield f"group_norm {size}", lambda x, w, b: F.group_norm(x, 16, w, b), (x, w, b)
        yield (
            f"batch_norm {size}",
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
            (x, w, b),
        )
    yield "asinh of 1e6", lambda x: torch.asinh(x), (torch.randn(1_000_000),)


def compiled(function: Callable[..., Any], given: tuple[Tensor, ...]) -> Callable[..., Any]:
    """The program of the function on such arguments."""
    low = flambeau_prims.lower(fx.symbolic_trace(function), list(given))
    made = flambeau_inductor.compile(low, list(given))
    return lambda *tensors: made(list(tensors))


def seconds(function: Callable[..., Any], given: tuple[Tensor, ...], repeats: int) -> float:
    """The thread's time of one of so many calls."""
    started = time.thread_time()
    for _ in range(repeats):
        function(*given)
    return (time.thread_time() - started) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="names that a call's must begin with")
    only = tuple(parser.parse_args().only.split(","))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| call | eager | compiled |\n| --- | --- | --- |")
    for name, function, given in calls():
        if not name.startswith(only):
            continue
        both = (function, compiled(function, given))
        for one in both:
            one(*given)
        repeats = max(1, int(LEAST_SECONDS / seconds(function, given, 2)))
        taken = [[seconds(one, given, repeats) for one in both] for _ in range(ROUNDS)]
        cells = [f"{median(each) * 1e6:.0f} ({min(each) * 1e6:.0f})" for each in zip(*taken)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
