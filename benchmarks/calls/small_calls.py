"""Small functions in their steady state, compiled and in eager: the time of a whole call.

    python -m benchmarks.calls.small_calls [--only NAME,...] [--rounds 60] [--threads 1]
        [--out FOLDER]

In: nothing. Out: microseconds of one call in both forms and their ratio, a row for each function of
`functions`: alone, under `no_grad`, and with its backward pass. Invariant: both forms run in turns
in one process, and the least of many rounds counts, which other programs' work delays least.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from benchmarks import tables

CALLS_MAX, LEAST_SECONDS, WARM_CALLS = 500, 0.002, 1000
"""Calls timed at a time take at least so long; a trial is over after so many calls."""


@dataclass(frozen=True)
class Case:
    """A function and its arguments; `backward`: its results are summed and differentiated."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    backward: bool = False


def _forward() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    t = torch.randn
    yield "add 4", lambda x, y: x + y, (t(4), t(4))
    yield "relu 100", lambda x: x.relu(), (t(100),)
    yield "exp of 4 operations 64", lambda x: ((x * 2 + 1).exp() - x).sin(), (t(64),)
    yield "matmul 8 x 8", lambda x, y: x @ y, (t(8, 8), t(8, 8))
    yield "matmul 64 x 64", lambda x, y: x @ y, (t(64, 64), t(64, 64))
    yield "matmul 256 x 256", lambda x, y: x @ y, (t(256, 256), t(256, 256))
    yield "bmm 4 x 8 x 8", lambda x, y: torch.bmm(x, y), (t(4, 8, 8), t(4, 8, 8))
    yield "matmul, matmul 8 x 8", lambda x, y: x @ y @ y, (t(8, 8), t(8, 8))
    yield "addmm 8 x 8", lambda b, x, y: torch.addmm(b, x, y), (t(8), t(8, 8), t(8, 8))
    yield "matmul, relu 8 x 8", lambda x, y: (x @ y).relu(), (t(8, 8), t(8, 8))
    yield "matvec 64", lambda x, y: x @ y, (t(64, 64), t(64))
    yield "dot 64", lambda x, y: x @ y, (t(64), t(64))
    yield "einsum 8", lambda x, y: torch.einsum("ij,jk->ik", x, y), (t(8, 8), t(8, 8))
    yield "softmax 100", lambda x: x.softmax(0), (t(100),)
    yield "softmax 8 x 100", lambda x: x.softmax(1), (t(8, 100),)
    yield "log_softmax 64 x 1000", lambda x: x.log_softmax(1), (t(64, 1000),)
    yield "sum 100", lambda x: x.sum(), (t(100),)
    yield "sum 10000", lambda x: x.sum(), (t(10000),)
    yield "sum 1000000", lambda x: x.sum(), (t(1000000),)
    yield "sum of rows 64 x 768", lambda x: x.sum(1), (t(64, 768),)
    yield "mean of columns 64 x 768", lambda x: x.mean(0), (t(64, 768),)
    yield "max 1000", lambda x: x.max(), (t(1000),)
    yield "argmax 1000", lambda x: x.argmax(), (t(1000),)
    yield "var of rows 64 x 768", lambda x: x.var(1), (t(64, 768),)
    yield "cumsum 100", lambda x: x.cumsum(0), (t(100),)
    yield "sort 100", lambda x: x.sort().values, (t(100),)
    yield "cat 2 x 8", lambda x, y: torch.cat([x, y]), (t(8), t(8))
    yield "view, transpose 8 x 8", lambda x: x.view(4, 16).t(), (t(8, 8),)
    yield "index 100", lambda x, i: x[i], (t(100), torch.arange(10))
    yield "embedding 8 of 100 x 16", lambda i, w: F.embedding(i, w), (torch.arange(8), t(100, 16))
    yield "where 100", lambda x: torch.where(x > 0, x, x * 0.1), (t(100),)
    yield "add_ 100", lambda x: x.add_(1e-9), (t(100),)
    yield (
        "layer_norm 8 x 64",
        lambda x, w, b: F.layer_norm(x, (64,), w, b),
        (t(8, 64), t(64), t(64)),
    )
    for rows, width in ((64, 768), (256, 1024)):
        given = t(rows, width), t(width), t(width)
        yield (
            f"layer_norm {rows} x {width}",
            lambda x, w, b: F.layer_norm(x, (x.shape[1],), w, b),
            given,
        )
    given = t(32, 128, 14, 14), t(128), t(128)
    yield "group_norm 32 x 128 x 14 x 14", lambda x, w, b: F.group_norm(x, 16, w, b), given
    given = t(8, 16, 14, 14), t(16), t(16)
    yield (
        "batch_norm 8 x 16 x 14 x 14",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        given,
    )
    given = t(1, 3, 16, 16), t(8, 3, 3, 3)
    yield "conv2d 3 x 16 x 16", lambda x, w: F.conv2d(x, w), given
    yield (
        "attention 2 x 16 x 8",
        lambda q: F.scaled_dot_product_attention(q, q, q),
        (t(1, 2, 16, 8),),
    )


def cases() -> Iterator[Case]:
    """The functions, without and with gradients."""
    torch.manual_seed(0)
    for name, fn, args in _forward():
        yield Case(name, fn, args)
    linear, model = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def frozen(x: Tensor) -> Tensor:
        with torch.no_grad():
            return linear(x)

    yield Case("nn.Linear 8, no_grad", frozen, (torch.randn(4, 8),))
    yield Case("nn.Linear 8, forward with grad", lambda x: linear(x), (torch.randn(4, 8),))
    yield Case("MLP 8, 16, 4, forward with grad", lambda x: model(x), (torch.randn(4, 8),))
    yield Case("nn.Linear 8, backward", lambda x: linear(x), (torch.randn(4, 8),), True)
    yield Case("MLP 8, 16, 4, backward", lambda x: model(x), (torch.randn(4, 8),), True)
    given = {
        "matmul 8 x 8", "matmul 64 x 64", "softmax 100", "sum 100", "add 4", "relu 100",
        "layer_norm 8 x 64", "layer_norm 64 x 768", "layer_norm 256 x 1024", "where 100",
        "group_norm 32 x 128 x 14 x 14", "log_softmax 64 x 1000", "var of rows 64 x 768",
        "exp of 4 operations 64", "conv2d 3 x 16 x 16", "attention 2 x 16 x 8",
    }  # fmt: skip
    for name, fn, args in _forward():
        if name in given:
            own = tuple(x.requires_grad_() if x.is_floating_point() else x for x in args)
            yield Case(f"{name}, backward", fn, own, True)


def called(case: Case, fn: Callable[..., Any]) -> Callable[[], object]:
    """One call, with its backward pass where there is one."""
    args = case.args
    if not case.backward:
        return lambda: fn(*args)

    def step() -> None:
        result = fn(*args)
        result.backward(ones)
        for leaf in leaves:
            leaf.grad = None

    leaves = [x for x in args if isinstance(x, Tensor) and x.requires_grad]
    ones = torch.ones_like(fn(*args))
    return step


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Of one of so many calls."""
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - started) / repeats


@dataclass(frozen=True)
class Row:
    """Seconds of a call, the least of the rounds."""

    name: str
    eager: float
    compiled: float

    @property
    def ratio(self) -> float:
        return self.compiled / self.eager


def measure(case: Case, rounds: int) -> Row:
    """Both forms, in turns."""
    both = [called(case, case.fn), called(case, flambeau.compile(case.fn))]
    for one in both:
        for _ in range(WARM_CALLS):
            one()
    repeats = min(CALLS_MAX, max(1, int(LEAST_SECONDS / seconds(both[0], 5))))
    taken = [[seconds(one, repeats) for one in both] for _ in range(rounds)]
    eager, compiled = (min(each) for each in zip(*taken, strict=True))
    return Row(case.name, eager, compiled)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="names that a case's must begin with")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    only = tuple(given.only.split(","))
    head, rows = ["function", "eager us", "compiled us", "compiled / eager"], list[list[str]]()
    print(tables.grid(head, []))
    for case in cases():
        if not case.name.startswith(only):
            continue
        row = measure(case, given.rounds)
        numbers = row.eager * 1e6, row.compiled * 1e6, row.ratio
        rows.append([row.name, *(f"{number:.2f}" for number in numbers)])
        print(tables.grid(head, rows).rpartition("\n")[2], flush=True)
    if given.out is not None:
        about = (
            f"Python {platform.python_version()}, torch {torch.__version__}, threads: "
            f"{given.threads}; the least of {given.rounds} interleaved rounds of the whole call. "
            f"Load of the machine: {tables.load():.1f} a core.\n\n"
            f"    python -m benchmarks.calls.small_calls --threads {given.threads}"
        )
        given.out.mkdir(parents=True, exist_ok=True)
        table = tables.grid(head, rows)
        text = f"# Small functions, compiled and in eager\n\n{about}\n\n{table}\n"
        (given.out / f"small-calls-cpu-{given.threads}.md").write_text(text)


if __name__ == "__main__":
    main()
