"""Products of the inductor's stages for one graph, as plain data.

In: a `Compilation` after its last stage. Out: `HalfFacts`. Invariant: nothing of the compilation is
kept alive; a size that is a symbol counts as unknown, not as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import fx


@dataclass(frozen=True)
class StepFacts:
    """A generated kernel or a library call.

    origins: the operations of the graph that it computes. bytes: of the buffers that it touches,
    each once, and of one that a kernel looks rows up in no more than it can look at; None where a
    size is a symbol. lines: the user's lines that it comes from.
    reads, writes: names of buffers. seconds: one run on its own, where that was measured.
    """

    kind: str
    name: str
    origins: tuple[str, ...]
    bytes: int | None
    lines: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    seconds: float | None = None


@dataclass(frozen=True)
class MemoryFacts:
    """The memory plan: live bytes beyond the inputs after each step that changes them.

    A size that is a symbol makes all that it is a part of unknown: None.
    """

    timeline: tuple[tuple[str, int | None], ...]
    peak: int | None
    input_bytes: int | None
    reused: int


@dataclass(frozen=True)
class HalfFacts:
    """The forward, backward or inference half of a captured graph.

    refused: fusions that were considered and not made, with the reason. chosen: kernels and values,
    and how they are computed, where that was chosen by measurement.
    """

    graph: str
    half: str
    steps: tuple[StepFacts, ...]
    memory: MemoryFacts
    fused: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str, str], ...] = ()
    no_kernel: tuple[tuple[str, str, str], ...] = ()
    chosen: tuple[tuple[str, str], ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def facts_of(work: Any, graph: str, half: str) -> HalfFacts:
    """The facts of a finished compilation."""
    program = work.scheduled()
    sizes = {buffer.name: nbytes(buffer.layout) for buffer in program.buffers}
    lines = user_lines_of(work.rewritten().graph.nodes)
    items = {buffer.name: int(buffer.layout.dtype.itemsize) for buffer in program.buffers}
    steps = [_step(step, sizes, items, lines) for step in program.steps]
    return HalfFacts(
        graph=graph,
        half=half,
        steps=tuple(step for step in steps if step is not None),
        memory=_memory(program, sizes),
        fused=tuple((merge.first, merge.second) for merge in work.merges),
        refused=tuple((r.first, r.second, r.reason) for r in work.refusals),
        no_kernel=tuple((f.operator, f.reason, f.node) for f in work.tensors.fallbacks),
        chosen=tuple(sorted(work.choices.items())),
        seconds=dict(work.seconds),
    )


def nbytes(layout: Any) -> int | None:
    """Bytes from the first to the last element of a layout; None where a size is a symbol."""
    from flambeau_inductor.ir.steps import storage_bytes  # a warm start loads no such module

    size = storage_bytes(layout)
    return size if isinstance(size, int) else None


def in_bytes(size: float | None) -> str:
    """Bytes in the unit that reads best; a size that is a symbol is `?`."""
    if size is None:
        return "?"
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GB"


def called(target: Any) -> str:
    """What a node calls, by its name."""
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def user_lines_of(nodes: Iterable[fx.Node]) -> dict[str, str]:
    """The innermost line of the user's program of each node, by the node's name."""
    return {node.name: line for node in nodes if (line := user_line(node))}


def innermost(node: fx.Node) -> str:
    """The innermost frame of a node's stack trace; empty if it has none."""
    trace = str(node.meta.get("stack_trace") or "").rstrip()
    head = trace.rfind('  File "')
    return trace[head:] if head >= 0 else ""


def user_line(node: fx.Node) -> str:
    """The innermost line of the user's program that a node comes from; empty if unknown."""
    return " ".join(part.strip() for part in innermost(node).splitlines())


def _step(
    step: Any, sizes: Mapping[str, int | None], items: Mapping[str, int], lines: Mapping[str, str]
) -> StepFacts | None:
    loop, target = getattr(step, "loop", None), getattr(step, "target", None)
    if loop is None and target is None:
        return None  # memory, and checks of indices
    from flambeau_inductor.ir.steps import looked_at, touched  # a warm start loads no such module

    origins = tuple(loop.origins if loop is not None else step.origins)
    reads, writes = touched(step)
    writes |= {name for name in getattr(step, "results", ()) if name is not None}
    seen = looked_at(loop, items) if loop is not None else {}
    moved = [
        size if size is None else min(size, seen.get(name, size))
        for name in reads | writes
        for size in [sizes.get(name)]
    ]
    return StepFacts(
        kind="kernel" if loop is not None else "library",
        name=str(loop.name if loop is not None else target),
        origins=origins,
        bytes=_sum(moved),
        lines=tuple(dict.fromkeys(lines[name] for name in origins if name in lines)),
        reads=tuple(sorted(reads)),
        writes=tuple(sorted(writes)),
    )


def _memory(program: Any, sizes: Mapping[str, int | None]) -> MemoryFacts:
    given = {buffer.name for buffer in program.inputs} | {name for name, _ in program.constants}
    live: dict[str, int | None] = {}
    timeline: list[tuple[str, int | None]] = []
    reused = 0
    for step in program.steps:
        kind = type(step).__name__
        name = str(getattr(step, "buffer", ""))
        if kind == "Alloc":
            live[name] = sizes.get(name)
        elif kind == "Reuse":
            live[name] = live.pop(step.old, sizes.get(name))
            reused += 1
        elif kind == "Free":
            live.pop(name, None)
        else:
            for result in getattr(step, "results", ()):
                if result is not None:
                    live[result] = sizes.get(result)
            continue
        timeline.append((f"{kind.lower()} {name}", _sum(live.values())))
    return MemoryFacts(
        timeline=tuple(timeline),
        peak=_known((size for _, size in timeline), lambda known: max(known, default=0)),
        input_bytes=_sum(sizes.get(name) for name in given),
        reused=reused,
    )


def _sum(sizes: Iterable[int | None]) -> int | None:
    return _known(sizes, sum)


def _known(sizes: Iterable[int | None], of: Callable[[list[int]], int]) -> int | None:
    """A figure of sizes; None where one is a symbol."""
    found = list(sizes)
    known = [size for size in found if size is not None]
    return of(known) if len(known) == len(found) else None
