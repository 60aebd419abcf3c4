"""Lower and schedule a function, run the program with the reference evaluator, hold it to eager."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.driver import PassContext
from flambeau_inductor.info import ALONE, GraphInfo
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.ir.program import Extern, Program, Ref, RunLoop
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.passes.primitive_passes import rewrite
from flambeau_inductor.runtime.report import Fallback
from flambeau_inductor.schedule import Limits, Refusal
from flambeau_inductor.schedule.assemble import assemble
from flambeau_inductor.schedule.schedule import schedule_loops, schedule_tensors
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode


@dataclass(frozen=True)
class Outcome:
    program: Program
    refusals: tuple[Refusal, ...]
    fallbacks: tuple[Fallback, ...]
    results: tuple[Any, ...]

    @property
    def loops(self) -> list[Loop]:
        return [s.loop for s in self.program.steps if isinstance(s, RunLoop)]

    @property
    def externs(self) -> list[str]:
        return [s.target for s in self.program.steps if isinstance(s, Extern)]


def compiled(gm: fx.GraphModule, inputs: list[Any], limits: Limits | None = None) -> Outcome:
    graph = lower_graph(gm, inputs)
    context = PassContext(options=Options(limits=limits or Limits(), verify=True))
    tensors = schedule_tensors(context, graph)
    program = schedule_loops(context, assemble(tensors, context.limits))
    results = run_program(program, inputs)
    return Outcome(program, tensors.refusals, tuple(graph.fallbacks), tuple(results))


SELECTING = ("select_templates", "add_rows_sorted", "join_launches", "select_variants")
"""Passes that choose kernels: a GPU may be here."""

Given = torch.Tensor | tuple[Sequence[int], torch.dtype]
"""A tensor like which one is to be, or its shape and dtype."""


def scheduled(
    of: Callable[..., Any],
    given: Iterable[Given],
    device: str = "cpu",
    info: GraphInfo = ALONE,
    **options: Any,
) -> Program:
    """The program of `of` on such tensors, of a device that need not be there."""
    seen: list[Program] = []

    def stop(stage: str, work: Any) -> None:
        if stage == "optimize":
            seen.append(work.scheduled())
            raise StopIteration

    with FakeTensorMode(allow_non_fake_inputs=True):
        fakes = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)
            if isinstance(t, torch.Tensor)
            else torch.empty(t[0], dtype=t[1], device=device)
            for t in given
        ]
        gm = flambeau_prims.lower(fx.symbolic_trace(of), fakes)
        with pytest.raises(StopIteration):
            chosen = Options(observer=stop, verify=True, skip_passes=SELECTING, **options)
            flambeau_inductor.compile(gm, fakes, info, options=chosen)
    return seen[0]


def against_eager(
    function: Callable[..., Any],
    *inputs: torch.Tensor,
    tolerance: float = 1e-5,
    limits: Limits | None = None,
) -> Outcome:
    """Compile `function` on `inputs` and compare every output's values and metadata."""
    gm = fx.symbolic_trace(function)
    low = rewrite(flambeau_prims.lower(gm, list(inputs)))
    before = [x.clone() for x in inputs]
    outcome = compiled(low, list(inputs), limits)
    for x, y in zip(inputs, before, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)
    wanted = function(*inputs)
    wanted = wanted if isinstance(wanted, tuple | list) else (wanted,)
    assert len(wanted) == len(outcome.results)
    for want, got in zip(wanted, outcome.results, strict=True):
        assert want.stride() == got.stride()
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert own_memory(outcome.program)
    return outcome


def steps_of(program: Program) -> list[str]:
    """Library calls by name, and "loop" for each kernel, in their order."""
    steps = (s for s in program.steps if isinstance(s, Extern | RunLoop))
    return [s.target if isinstance(s, Extern) else "loop" for s in steps]


def own_memory(program: Program) -> bool:
    """Every output that is a whole buffer of its own is returned once."""
    whole = [o.buffer for o in program.outputs if isinstance(o, Ref) and o.layout is None]
    made = [b for b in whole if b.startswith("buf")]
    return len(made) == len(set(made))
