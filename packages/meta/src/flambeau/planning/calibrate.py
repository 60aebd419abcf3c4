"""Finds out how long compiling takes on this machine.

In: nothing, or what this process compiled. Out: samples on disk, and the model of them. Invariant:
only graphs that were compiled from scratch count: a kernel from the cache says nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch

from flambeau.planning.model import CostModel, Sample, fit, keep_samples, known_samples
from flambeau.records import GraphRecord, Recorder, recorded

LENGTHS = (2, 6, 16, 40)


def calibrate(cache_dir: str | None = None, lengths: Sequence[int] = LENGTHS) -> CostModel:
    """Compile a few graphs of several sizes from scratch, and keep what they took.

    lengths: of the programs, in operations. About ten seconds on a laptop. The kernels are built
    in a folder that goes away.
    """
    made: list[Sample] = []
    with tempfile.TemporaryDirectory() as scratch:
        for length in lengths:
            for training in (False, True):
                made += _timed(_chain(length), training, scratch)
    samples = [*known_samples(cache_dir), *made]
    keep_samples(samples, cache_dir)
    return fit(samples)


def learned(cache_dir: str | None = None) -> CostModel:
    """The model of what is on disk and of what this process has compiled so far."""
    seen = [record for _, recorder in recorded() for record in recorder.report().records]
    return fit([*known_samples(cache_dir), *samples_of(seen)])


def samples_of(records: Iterable[GraphRecord]) -> list[Sample]:
    """What records tell: those of graphs that the inductor compiled from scratch."""
    return [
        Sample(record.nodes, record.kind == "training", sum(record.seconds.values()))
        for record in records
        if record.kernels and not record.cache_hits and any("build" in p for p in record.seconds)
    ]


def _timed(fn: Callable[..., torch.Tensor], training: bool, cache_dir: str) -> list[Sample]:
    from flambeau.explaining.explain import compiled_with  # both front doors use this module

    recorder = Recorder()
    options = {"inductor.cache_dir": cache_dir}
    w = torch.randn(32, 32, requires_grad=training)
    compiled_with(fn, recorder, options)(torch.randn(16, 32), w)
    return samples_of(replace(record) for record in recorder.report().records)


def _chain(length: int) -> Callable[..., torch.Tensor]:
    """A program of some length with what models are made of."""

    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for step in range(length):
            if step % 4 == 0:
                x = x @ w
            elif step % 4 == 1:
                x = torch.nn.functional.gelu(x) + step
            elif step % 4 == 2:
                x = torch.softmax(x, -1) * x
            else:
                x = (x - x.mean(-1, keepdim=True)) * 0.5
        return x.sum()

    return run
