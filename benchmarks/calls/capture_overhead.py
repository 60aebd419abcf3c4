"""Overhead of a call of compiled code beside the graph: hook, guards, fetching inputs.

In: functions of tensors whose graphs are replaced by a callable that answers at once. Out: a table
of microseconds a call, ours and the incumbent's interleaved in one process. Invariant: both systems
are given the same program and a backend that does nothing, so what is timed is capture alone.

    python -m benchmarks.calls.capture_overhead [--rounds 15] [--out benchmarks/results]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks import tables


@dataclass(frozen=True)
class Program:
    """A function, its arguments, and how many calls are timed at a time."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    calls: int


def _two_tensors() -> Program:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    return Program("a function of two tensors", add, (torch.randn(4), torch.randn(4)), 2000)


def _linears(count: int) -> Program:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(count))).eval()
    return Program(f"a tree of {count} Linears", model, (torch.randn(1, 2),), 100)


def _nested(depth: int, width: int) -> Program:
    def block(level: int) -> nn.Module:
        if level == 0:
            return nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.GELU())
        return nn.Sequential(*(block(level - 1) for _ in range(width)))

    model = block(depth).train()
    name = f"a tree of {depth} levels, {width} wide, training"
    return Program(name, model, (torch.randn(1, 2),), 100)


def _attributes(count: int) -> Program:
    class Settings:
        pass

    settings = Settings()
    for i in range(count):
        setattr(settings, f"scale_{i}", 1.0 + i)

    def scaled(x: torch.Tensor) -> torch.Tensor:
        for i in range(count):
            x = x * getattr(settings, f"scale_{i}")
        return x

    return Program(f"{count} attributes of an object", scaled, (torch.randn(4),), 500)


def _instant(module: Any, example_inputs: Any) -> Callable[..., Any]:
    """A backend whose callable keeps what the graph answered first and gives it back."""
    answer: list[Any] = []

    def call(*inputs: Any) -> Any:
        if not answer:
            with torch.no_grad():
                answer.append(module.forward(*inputs))
        return answer[0]

    return call


def _systems(program: Program) -> dict[str, Callable[..., Any]]:
    from flambeau_capture import optimize

    return {
        "flambeau": optimize(_instant)(program.fn),
        "incumbent": torch.compile(program.fn, backend=_instant),
    }


def _microseconds(fn: Callable[..., Any], program: Program) -> float:
    args = program.args
    started = time.perf_counter()
    for _ in range(program.calls):
        fn(*args)
    return (time.perf_counter() - started) / program.calls * 1e6


def _plain_call(*args: Any) -> None:
    return None


def measure(program: Program, rounds: int) -> dict[str, Any]:
    """Medians over rounds that take the systems in turn."""
    torch.manual_seed(0)
    systems = {**_systems(program), "plain call": _plain_call}
    for fn in systems.values():
        for _ in range(20):
            fn(*program.args)
    times: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, fn in systems.items():
            times[name].append(_microseconds(fn, program))
    row: dict[str, Any] = {name: statistics.median(found) for name, found in times.items()}
    row["program"] = program.name
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    programs = [_two_tensors(), _linears(30), _linears(300), _nested(3, 4), _attributes(100)]
    rows = [measure(program, options.rounds) for program in programs]
    base = [row["plain call"] for row in rows]
    head = ["program", "flambeau us", "incumbent us", "incumbent / flambeau"]
    cells = [
        [
            row["program"],
            f"{row['flambeau'] - plain:.1f}",
            f"{row['incumbent'] - plain:.1f}",
            f"{(row['incumbent'] - plain) / (row['flambeau'] - plain):.1f}",
        ]
        for row, plain in zip(rows, base, strict=True)
    ]
    load = tables.load()
    about = (
        f"Python {platform.python_version()}, torch {torch.__version__}, one thread; "
        f"medians of {options.rounds} interleaved rounds, over a call of a Python function. "
        f"Load of the machine: {load:.1f} a core"
        f"{'' if load < 1 else ', which slows what touches more memory more'}."
    )
    text = f"# What a call costs beside the graph\n\n{about}\n\n{tables.grid(head, cells)}\n"
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "capture-overhead.md").write_text(text)
        (options.out / "capture-overhead.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
