"""Programs whose sizes and numbers depend on data, as they are written: each at several data, one
graph, eager's values, gradients and errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import flambeau
from integration_tests.by_data import COUNTS, Case, compared
from integration_tests.programs_by_data import (
    branches_and_rows,
    decoding,
    detection,
    documented,
    graphs,
    heads_and_searches,
    losses,
    numbers_and_shapes,
    sequences,
)

SUBJECTS = (
    numbers_and_shapes, losses, detection, graphs, sequences, decoding, documented,
    heads_and_searches, branches_and_rows,
)  # fmt: skip


def by_backend() -> Iterator[object]:
    for subject in SUBJECTS:
        for name, backend in subject.CASES.by_backend():
            yield pytest.param(subject.CASES[name], backend, id=f"{name}-{backend}")


@pytest.mark.sweep(18)
@pytest.mark.parametrize(("one", "backend"), by_backend())
def test_one_graph(one: Case, backend: str) -> None:
    torch.manual_seed(0)
    options = {"capture.branches_by_data": True} if one.branches else {}
    compiled = flambeau.compile(one.program, backend=backend, options=options)
    for count in COUNTS:
        compared(one.program, compiled, one.make(count), one.trains)
    report = flambeau.report(compiled)
    if backend in one.in_parts:
        assert all("FB0004" in each and "packed" in each for each in report.breaks)
        assert report.breaks and report.graphs <= 2 and report.narrowed == ()
        return
    assert (report.graphs, report.breaks, report.narrowed) == (1, (), ())
    assert one.eager_at or "its graph raised" not in str(report)
