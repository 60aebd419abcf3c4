"""Calibration of the compile-time model on this machine.

In: nothing, or what this process compiled. Out: samples on disk, and the model of them. Invariant:
only graphs that were compiled from scratch count: a kernel from the cache says nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence

import torch

from flambeau.events.records import GraphRecord, RecordCollector, recorded
from flambeau.planning.model import CostModel, Sample, fit, keep_samples, known_samples

LENGTHS = (2, 6, 16, 40)
WIDTH = 32


def calibrate(cache_dir: str | None = None, lengths: Sequence[int] = LENGTHS) -> CostModel:
    """Compile a few graphs of several sizes from scratch, and keep what they took.

    lengths: of the programs, in operations. About ten seconds on a laptop. The kernels are built
    in a folder that goes away.
    """
    made: list[Sample] = []
    with tempfile.TemporaryDirectory() as scratch:
        for length in lengths:
            for training in (False, True):
                made += _timed(_chain(length), training, f"{scratch}/{length}{training}")
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


def _timed(module: torch.nn.Module, training: bool, cache_dir: str) -> list[Sample]:
    from flambeau.explaining.explain import compiled_with  # both front doors use this module

    recorder = RecordCollector()
    compiled = compiled_with(module, recorder, {"inductor.cache_dir": cache_dir})
    with torch.set_grad_enabled(training):
        compiled(torch.randn(16, WIDTH))
    return samples_of(recorder.report().records)


def _chain(length: int) -> torch.nn.Module:
    """A program of some length with what models are made of.

    Of torch's own modules: capture does not look into functions of Flambeau itself.
    """
    kinds: tuple[Callable[[], torch.nn.Module], ...] = (
        lambda: torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.GELU,
        lambda: torch.nn.LayerNorm(WIDTH),
        lambda: torch.nn.Softmax(-1),
        torch.nn.Hardswish,
    )
    return torch.nn.Sequential(*(kinds[step % len(kinds)]() for step in range(length)))
