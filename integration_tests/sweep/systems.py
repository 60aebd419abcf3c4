"""Flambeau's capture as a system of the sweep.

In: a module. Out: the compiled module, and a function that tells what was captured. Invariant: the
backend runs graphs with torch as they are, unless another is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_capture
import torch
from flambeau_capture.api import compiler_of

from integration_tests.sweep.judging import Counts, System


def captured(backend: str) -> System:
    """A system that compiles with a backend of Flambeau."""

    def system(module: torch.nn.Module) -> tuple[Callable[..., Any], Callable[[], Counts]]:
        if backend == "eager":
            compiled = flambeau_capture.compile(module, cache_size_limit=64)
        else:
            import flambeau  # the other backends are its own

            compiled = flambeau.compile(module, backend=backend)
        compiler = compiler_of(compiled)
        assert compiler is not None

        def counts() -> Counts:
            records = compiler.records
            faults = [*records.internal_errors, *records.backend_errors]
            return Counts(
                graphs=len(records.graphs),
                operations=sum(graph.operations for graph in records.graphs),
                breaks=[_short(report) for report in records.breaks],
                faults=[f"{type(error).__name__}: {error}"[:300] for error in faults],
            )

        return compiled, counts

    return system


def _short(report: Any) -> str:
    line = report.user_line
    where = f" ({line.filename.rpartition('site-packages/')[2]}:{line.lineno})" if line else ""
    return f"{report.reason.id} {report.what}"[:160] + where
