"""Debug folder: every stage's product, and a picture of the program.

In: a folder's path or None, and the compilation after each stage. Out: files. Invariant: a file is
written as soon as its stage is done, so that a compile that fails leaves all that came before.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from torch import fx

from flambeau_inductor.compile_state import Compilation, KernelText
from flambeau_inductor.debug.benchmark_scripts import (
    LIBRARY,
    LIBRARY_FACTS,
    bench_script,
    gpu_scripts,
    kernel_facts,
)
from flambeau_inductor.ir.program import CheckIndex, Extern, Program, RunLoop
from flambeau_inductor.ir.steps import known_bytes, made_by, touched
from flambeau_inductor.ir.tensors import LibraryCall
from flambeau_inductor.runtime.kernel_part import KernelPart
from flambeau_inductor.runtime.report import Report
from flambeau_inductor.schedule.tensor_program import TensorProgram

WIDTH, HEIGHT, GAP, LEFT = 460, 44, 14, 20
COLOURS = {"kernel": "#dceefb", "library": "#fde9d9", "check": "#eeeeee"}


def picture(program: Program) -> str:
    """Boxes below each other, kernels and library calls in colours of their own."""
    steps = [s for s in program.steps if isinstance(s, RunLoop | Extern | CheckIndex)]
    made: dict[str, int] = {}
    lines: list[str] = []
    boxes: list[str] = []
    for number, step in enumerate(steps):
        reads, writes = touched(step)
        for source in sorted({made[name] for name in reads if name in made}):
            lines.append(_arc(source, number))
        made.update(dict.fromkeys(made_by(step), number))
        boxes.extend(_box(number, step, _moved(program, reads | writes)))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 320}" height="{_top(len(steps))}"'
        ' font-family="monospace" font-size="11">'
    )
    return "\n".join([head, *lines, *boxes, "</svg>", ""])


def _top(number: int) -> int:
    return GAP + number * (HEIGHT + GAP)


def _arc(source: int, target: int) -> str:
    begin, end = _top(source) + HEIGHT // 2, _top(target) + HEIGHT // 2
    right = LEFT + WIDTH
    reach = min(right + 30 + 12 * (target - source), right + 290)
    return (
        f'<path d="M {right} {begin} C {reach} {begin}, {reach} {end}, {right} {end}"'
        ' fill="none" stroke="#8899aa"/>'
    )


def _box(number: int, step: RunLoop | Extern | CheckIndex, moved: str) -> Iterator[str]:
    kind, title, origins = _words(step)
    top = _top(number)
    yield (
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="4"'
        f' fill="{COLOURS[kind]}" stroke="#556677"/>'
    )
    yield f'<text x="{LEFT + 8}" y="{top + 17}">{escape(f"{title}  {moved}")}</text>'
    shown = origins if len(origins) < 66 else origins[:63] + "..."
    yield f'<text x="{LEFT + 8}" y="{top + 34}" fill="#445566">{escape(shown)}</text>'


def _words(step: RunLoop | Extern | CheckIndex) -> tuple[str, str, str]:
    """Kind, title, and the graph's nodes."""
    if isinstance(step, RunLoop):
        axes = " x ".join(str(a.size) for a in step.loop.x) or "1"
        over = " x ".join(str(a.size) for a in step.loop.r)
        title = f"{step.loop.name}: {axes}" + (f", over {over}" if over else "")
        return "kernel", title, " ".join(step.loop.origins)
    if isinstance(step, Extern):
        return "library", step.target, " ".join(step.origins)
    return "check", f"positions in {step.ref.buffer}", step.error


def _moved(program: Program, names: frozenset[str]) -> str:
    known = known_bytes(buffer for buffer in program.buffers if buffer.name in names)
    fixed = len(known) == len(names & program.by_name.keys())
    return f"{sum(known.values()) / 1024:.0f} KiB" if fixed else "open sizes"


@dataclass(frozen=True, slots=True)
class DebugFolder:
    """Where the files go; nowhere if `path` is None."""

    path: Path | None

    def after(self, stage: str, work: Compilation) -> None:
        """Write what `stage` made."""
        if self.path is None:
            return
        writer = WRITERS.get(stage)
        for name, made in writer(work).items() if writer is not None else ():
            if isinstance(made, Path):
                shutil.copyfile(made, self.path / name)
            else:
                (self.path / name).write_text(made)

    def show(self, level: str, number: int, name: str, ir: Any, changed: int) -> None:
        """Write what a pass has made of the IR of its level."""
        if self.path is not None and level in LISTINGS:
            stage, listing = LISTINGS[level]
            text = f"# after {name}, which replaced {changed}\n{listing(ir)}"
            (self.path / f"{stage}_pass_{number}_{name}.txt").write_text(text)

    def finish(self, report: Report) -> None:
        """Write the report."""
        if self.path is not None:
            (self.path / "report.json").write_text(json.dumps(report.to_dict(), indent=2) + "\n")


def open_debug_folder(parent: str | None, name: str) -> DebugFolder:
    """A new folder under `parent`, or nothing."""
    if parent is None:
        return DebugFolder(None)
    root = Path(parent).expanduser()
    root.mkdir(parents=True, exist_ok=True)
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
    return DebugFolder(Path(tempfile.mkdtemp(prefix=f"{safe}-{os.getpid()}-", dir=root)))


def _graph(graph: fx.Graph) -> str:
    """The graph's code, with shapes and the user's lines as comments."""
    lines: list[str] = []
    shown = ""
    for node in graph.nodes:
        trace = str(node.meta.get("stack_trace") or "").rstrip()
        head = trace.rfind('  File "')
        last = trace[head:] if head >= 0 else ""
        if last and last != shown:
            shown = last
            lines += ["", *(f"# {line.strip()}" for line in last.splitlines())]
        value = node.meta.get("val")
        what = ""
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            what = f"  # {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            if hasattr(value, "stride"):
                stride = value.stride() if callable(value.stride) else value.stride
                what += f" strides {list(stride)}"
        lines.append(f"{node.format_node()}{what}")
    return "\n".join(lines).lstrip() + "\n"


def _steps(program: TensorProgram) -> str:
    """What has memory, and what shares a loop."""
    if program.plan is None:
        return f"computed again: {', '.join(sorted(node.name for node in program.again))}\n"
    if program.steps is None:
        return _lines(node for node in program.plan.order if node in program.plan.anchors)
    return _lines(
        f"{step.target}({', '.join(step.origins)})"
        if isinstance(step, LibraryCall)
        else f"loop of {', '.join(member.node.name for member in step.members)}"
        for step in program.steps
    )


def _program(program: Program) -> str:
    from flambeau_inductor.ir.show import show_program  # debugging alone needs it

    return show_program(program)


LISTINGS: Mapping[str, tuple[int, Callable[[Any], str]]] = {
    "fx": (1, _graph),
    "library": (2, lambda gm: _graph(gm.graph)),
    "tensor": (2, _steps),
    "program": (3, _program),
}
"""Which stage's files a level's are among, and its IR as text."""


def _before_fusion(work: Compilation) -> str:
    from flambeau_inductor.lowering import lower_graph  # debugging alone needs it
    from flambeau_inductor.schedule import schedule

    # scheduling notes strides in the graph it is given, so the unfused listing has its own
    again = lower_graph(work.graph, work.example_inputs, work.info)
    return _program(schedule(again, replace(work.options.limits, fusion=False)))


def _lines(of: Iterable[object]) -> str:
    return "".join(f"{each}\n" for each in of)


def _after_build(work: Compilation) -> Mapping[str, str | Path]:
    return {
        name: made
        for text, built in zip(work.kernels, work.built, strict=True)
        if built.part is not None
        for name, made in BENCHES[built.part.loader](work, text, built.part).items()
    }


def _library_bench(
    work: Compilation, text: KernelText, part: KernelPart
) -> Mapping[str, str | Path]:
    facts = kernel_facts(work.program, text.launches)
    return {
        LIBRARY_FACTS: json.dumps(facts, indent=1) + "\n",
        "6_bench.py": bench_script(work.name, text.distinct),
        LIBRARY: part.files["kernels.so"],
    }


def _gpu_bench(work: Compilation, text: KernelText, part: KernelPart) -> Mapping[str, str | Path]:
    from flambeau_inductor.kernels.launching import kernels_of

    facts = kernel_facts(work.program, text.launches)
    return gpu_scripts(work.name, kernels_of(part), facts)


BENCHES: Mapping[str, Callable[[Compilation, KernelText, KernelPart], Mapping[str, str | Path]]] = {
    "cpp": _library_bench,
    "triton": _gpu_bench,
}
"""Scripts that run kernels alone, by what loads them."""


WRITERS: Mapping[str, Callable[[Compilation], Mapping[str, Any]]] = {
    "rewrite": lambda work: {
        "0_graph.txt": _graph(work.given.graph),
        "1_rewritten.txt": _graph(work.graph.graph),
    },
    "lower": lambda work: {"2_before_fusion.txt": _before_fusion(work)},
    "optimize": lambda work: {
        "3_after_fusion.txt": _program(work.program),
        "3_fused.svg": picture(work.program),
        "3_merged.txt": _lines(work.merges),
        "3_refused.txt": _lines(work.refusals),
    },
    "generate": lambda work: {f"4_{text.file}": text.text for text in work.kernels},
    "build": _after_build,
    "wrap": lambda work: {"5_wrapper.py": work.wrapper.text},
}
