"""Benchmark of several compiled forms of one graph.

In: callables that compute the same, inputs. Out: a `BackendBenchmark`. Invariant: nothing wins that
gives something else than eager, and nothing wins over eager by less than the noise of the
measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import fx

from flambeau._torch_compat import pytree
from flambeau.testing.isolated_run import copied

EAGER = "eager"
MARGIN = 0.97
"""What wins over eager takes at most so much of its time."""
ROUNDS, SECONDS = 25, 1.0
"""Most rounds, and most seconds of them all; three rounds are always run."""


@dataclass(frozen=True)
class BackendBenchmark:
    """Seconds of one call (with its backward pass, where there is one) by backend, and the winner.

    out: backends that did not take part to the end, with the reason. kept: the result is of an
    earlier process.
    """

    graph: str
    winner: str
    seconds: Mapping[str, float]
    out: Mapping[str, str] = field(default_factory=dict)
    kept: bool = False

    @property
    def speedup(self) -> float:
        """How many times faster than eager the winner is."""
        return self.seconds[EAGER] / self.seconds[self.winner]

    def __str__(self) -> str:
        times = ", ".join(f"{name} {1e6 * s:.0f} us" for name, s in self.seconds.items())
        text = f"{self.graph}: {self.winner} wins, {self.speedup:.2f}x of eager ({times})"
        text += "".join(f"; {name} is out: {why}" for name, why in self.out.items())
        return text + (" [measured in an earlier process]" if self.kept else "")


def race(
    gm: fx.GraphModule,
    forms: Mapping[str, Callable[..., Any]],
    inputs: Sequence[Any],
    out: Mapping[str, str],
) -> BackendBenchmark:
    """Run all forms in turns, eager among them, and compare the medians."""
    from flambeau.repro.check import compared  # it uses the table of backends, which uses this

    gone = dict(out)
    runs = {EAGER: _runner(gm.forward, inputs)}
    for name, form in forms.items():
        difference = None if name == EAGER else compared(gm, form, inputs)
        if difference is not None:
            gone[name] = f"wrong: {difference}"
        elif name != EAGER:
            runs[name] = _runner(form, inputs)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()  # the first call may still make something
    started = time.perf_counter()
    for number in range(ROUNDS):
        for name, run in runs.items():
            before = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - before)
        if number >= 2 and time.perf_counter() - started > SECONDS:
            break
    medians = {name: median(values) for name, values in times.items()}
    best = min(medians, key=medians.__getitem__)
    winner = best if medians[best] < MARGIN * medians[EAGER] else EAGER
    return BackendBenchmark(type(gm).__name__, winner, medians, gone)


def _runner(form: Callable[..., Any], inputs: Sequence[Any]) -> Callable[[], None]:
    """One call on inputs of its own, with its backward pass, ended when the device is done."""
    own = copied(list(inputs))
    wanted = [v for v in own if isinstance(v, torch.Tensor) and v.requires_grad]
    cuda = any(isinstance(v, torch.Tensor) and v.is_cuda for v in own)
    leaves = [value for value in wanted if value.is_leaf]

    def run() -> None:
        results = form(*own)
        outputs = [
            value
            for value in pytree.tree_leaves(results)
            if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        if outputs and leaves and torch.is_grad_enabled():
            ones = [torch.ones_like(value) for value in outputs]
            torch.autograd.grad(outputs, leaves, ones, allow_unused=True)
        if cuda:
            torch.cuda.synchronize()

    return run
