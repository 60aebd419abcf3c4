"""`explain`: one compiled run, and everything that was learnt from it.

In: a function or a compiled callable, and arguments. Out: an `Explanation`. Invariant: the function
runs once; the facts are of that run, and of what came before it if it was compiled already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import flambeau_capture
from flambeau_capture.api import compiler_of
from flambeau_capture.observe.explanation import explanation_of
from flambeau_capture.observe.records import FrameRecord, Records

from flambeau.backends import resolve
from flambeau.backends.request import Request
from flambeau.choices import choose
from flambeau.events.bus import GraphRun, Listener, StageProduct
from flambeau.events.records import GraphRecord, RecordCollector, Report, recorder_of
from flambeau.events.stage_products import HalfFacts, called, facts_of
from flambeau.explaining.costs import ConvertedFrame, Figures, Line
from flambeau.explaining.explanation import (
    BreakFacts,
    Explanation,
    GraphFacts,
    KeptInEager,
    RecompileFacts,
)


class Collector(Listener):
    """A listener that keeps the facts of each half, and when graphs run."""

    every_stage = True

    def __init__(self, runs: float) -> None:
        self.runs = runs
        self.halves: list[HalfFacts] = []
        self.seen: list[GraphRun] = []

    def __call__(self, kind: str, product: object, owner: int) -> None:
        if isinstance(product, GraphRun):
            self.seen.append(product)
        elif isinstance(product, StageProduct) and product.stage == "wrap":
            self.halves.append(facts_of(product.work, product.graph, product.half))


def explain(
    fn: Callable[..., Any],
    *args: Any,
    backend: str | Callable[..., Any] = "inductor",
    **kwargs: Any,
) -> Any:
    """`explain(fn)(*args, **kwargs)`, or `explain(fn, *args, **kwargs)`: an `Explanation`.

    fn: a function, method or module; or what `flambeau.compile` returned, explained with
    all its calls so far, this one included. backend: for what is not compiled yet.
    """
    if not args and not kwargs:
        return lambda *given, **named: _explain(fn, backend, given, named)
    return _explain(fn, backend, args, kwargs)


def _explain(
    fn: Callable[..., Any],
    backend: str | Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Explanation:
    made = recorder_of(fn)
    collector = Collector(inf if made is None else 0)
    recorder = made or RecordCollector()
    compiled = compiled_with(fn, recorder, {}, backend) if made is None else fn
    compiler = compiler_of(compiled)
    assert compiler is not None
    recorder.watch.own.add(collector)
    try:
        result = compiled(*args, **kwargs)
    finally:
        recorder.watch.own.remove(collector)
    ended = time.perf_counter()
    records, halves = compiler.records, collector.halves
    found = explanation_of(records, result)
    report = recorder.report(breaks=tuple(map(str, records.breaks)))
    breaks = _breaks(records, collector.seen if made is None else None, ended)
    own = sum(frame.seconds - frame.backend_seconds for frame in records.frames)
    return Explanation(
        result=result,
        backend=str(compiler.converter.backend_name),
        graphs=_graphs(records, report, halves),
        breaks=tuple(sorted(breaks, key=_cost, reverse=True)),
        guards=tuple(str(guard) for guard in found.out_guards),
        recompiles=tuple(
            RecompileFacts(
                record.function,
                f"{record.filename}:{record.lineno}",
                str(record.failures[0].guard),
                str(record.failures[0].expected),
                str(record.failures[0].got),
            )
            for record in records.recompiles
        ),
        kept_in_eager=tuple(_kept(records, report, halves)),
        seconds={"capture": own, **report.seconds},
        capture=found,
    )


def compiled_with(
    fn: Callable[..., Any],
    recorder: RecordCollector,
    options: Mapping[str, object],
    backend: str | Callable[..., Any] = "inductor",
) -> Any:
    """The function, compiled so that a recorder of ours sees what happens."""
    choices = choose(None, options)
    chosen = resolve(backend, Request(choices, recorder))
    watched = replace(choices.capture, watch=recorder.watch.publish)
    return flambeau_capture.optimize(chosen, options=watched)(fn)


def _cost(facts: BreakFacts) -> tuple[float, int]:
    return (facts.run_ms or 0.0) + (facts.capture_ms or 0.0), facts.bytes or 0


def _graphs(records: Records, report: Report, halves: list[HalfFacts]) -> tuple[GraphFacts, ...]:
    compiled = {record.name: record for record in report.records}
    failed = {failure.graph: failure for failure in report.fallbacks}
    made = []
    for record in records.graphs:
        name = type(record.module).__name__
        known = compiled.get(name) or GraphRecord(name, "eager", 0)
        calls = (node for node in record.module.graph.nodes if node.op.startswith("call_"))
        made.append(
            GraphFacts(
                name=name,
                function=record.function,
                inputs=record.inputs,
                operations=tuple(called(node.target) for node in calls),
                kind=known.kind,
                kernels=known.kernels,
                fused_ops=known.fused_ops,
                library_calls=dict(known.externs),
                seconds=dict(known.seconds),
                failure=str(failed.get(name, "")),
                halves=tuple(half for half in halves if half.graph == name),
            )
        )
    return tuple(made)


def _breaks(records: Records, runs: list[GraphRun] | None, ended: float) -> list[BreakFacts]:
    frames = {id(frame): _conversion(frame) for frame in records.frames}
    stopped = [frame for frame in records.frames if frame.stopped is not None]
    line = Line(list(frames.values()), runs or [], ended=ended)
    made = []
    for place, report in enumerate(records.breaks):
        frame = stopped[place] if len(stopped) == len(records.breaks) else None
        measured = runs is not None and frame is not None
        figures = line.figures(frames[id(frame)]) if measured else Figures()
        made.append(
            BreakFacts(
                id=report.reason.id,
                title=report.reason.title,
                met=report.what,
                line="" if report.user_line is None else str(report.user_line).strip(),
                edit=report.reason.hint,
                function="" if frame is None else frame.function,
                capture_ms=figures.capture_ms,
                run_ms=figures.run_ms,
                bytes=(figures.bytes or 0) if measured else None,
            )
        )
    return made


def _conversion(frame: FrameRecord) -> ConvertedFrame:
    stopped = frame.stopped is not None
    return ConvertedFrame(frame.ended, frame.seconds, frame.backend_seconds, stopped)


def _one_line(line: object) -> str:
    return "a break" if line is None else " ".join(str(line).split())


def _kept(records: Records, report: Report, halves: list[HalfFacts]) -> list[KeptInEager]:
    kept = [KeptInEager(f"frame {name}", why) for name, why in records.skipped]
    kept += [
        KeptInEager(f"Python at {_one_line(each.user_line)}", f"{each.reason.id} {each.what}")
        for each in records.breaks
    ]
    kept += [
        KeptInEager(f"graph {failure.graph}", f"{failure.stage}: {failure.error}")
        for failure in report.fallbacks
    ]
    kept += [
        KeptInEager(f"{target} in {half.graph} ({half.half})", why)
        for half in halves
        for target, why, _ in half.no_kernel
    ]
    kept += [
        KeptInEager("a frame that capture failed on", f"{type(error).__name__}: {error}")
        for error in [*records.internal_errors, *records.backend_errors]
    ]
    return kept
