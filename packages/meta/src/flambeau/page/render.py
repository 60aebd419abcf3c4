"""Pages: their view model, built from events, and its rendering from templates.

In: a trace's folder, or an explanation. Out: HTML in one piece. Invariant: each graph is on one
card, with every artefact of every stage that left one; every guard is in the tree once. The page
needs nothing from anywhere: style and script are in it; all text is escaped.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from flambeau.events.stage_products import in_bytes
from flambeau.page.pictures import fused_picture, memory_picture
from flambeau.page.reading import Event, KernelTime, ProcessEvents, by_time_lost, load, with_costs

if TYPE_CHECKING:
    from flambeau.explaining.explain import Explanation


PLACE = re.compile(r"""(\w[\w ]*) (['"])(.*)\2""")
ROOT = re.compile(r"[A-Za-z_]\w*|<[^>]*>")
STEP = re.compile(r"\.[A-Za-z_]\w*|\[[^\]]*\]")


@dataclass
class GuardNode:
    """A place, the kinds of guards on it, and the places inside it."""

    name: str
    kinds: list[str] = field(default_factory=list)
    inside: dict[str, GuardNode] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Guards here and inside."""
        return len(self.kinds) + sum(node.count for node in self.inside.values())


def guard_tree(guards: Iterable[str]) -> GuardNode:
    """The tree of guards, its root without a name."""
    root = GuardNode("guards")
    for guard in guards:
        place, _, kind = guard.rpartition(" ")
        node = root
        for step in steps_of(place or guard):
            node = node.inside.setdefault(step, GuardNode(step))
        node.kinds.append(kind)
    return root


def steps_of(place: str) -> list[str]:
    """The way to a place: `local 'self.layers[0].weight'` has four steps."""
    found = PLACE.fullmatch(place)
    if found is None:
        return [place]
    kind, quote, path = found.groups()
    root = ROOT.match(path)
    steps = STEP.findall(path, root.end()) if root is not None else []
    if root is None or f"{quote}, " in path or root.group() + "".join(steps) != path:
        return [place]  # several places, or one that is spelled in another way, are one step
    return [f"{kind} {root.group()}", *steps]


@dataclass(frozen=True)
class Panel:
    """One stage's product: text, a picture, or a table.

    group: the layer or half that made it; its buttons stand together.
    """

    name: str
    group: str = ""
    text: str = ""
    picture: Markup | None = None
    tree: GuardNode | None = None
    kernels: tuple[dict[str, Any], ...] = ()
    roof: float | None = None


@dataclass(frozen=True)
class Card:
    """A version of a function's code, or a graph that belongs to none."""

    anchor: str
    title: str
    where: str
    notes: tuple[str, ...]
    panels: tuple[Panel, ...]
    summary: str = ""


@dataclass(frozen=True)
class Span:
    """A piece of the timeline, in seconds from the process's first event."""

    lane: str
    kind: str
    label: str
    start: float
    length: float
    anchor: str = ""


@dataclass(frozen=True)
class ProcessView:
    """One process's part of the page."""

    name: str
    facts: Mapping[str, Any]
    counts: Mapping[str, Any]
    cards: tuple[Card, ...]
    spans: tuple[Span, ...]
    tables: Mapping[str, tuple[Event, ...]]
    kernels: tuple[KernelTime, ...] = ()
    length: float = 0.0
    lanes: tuple[str, ...] = field(default=())
    ticks: tuple[float, ...] = field(default=())


def view(part: ProcessEvents, number: int) -> ProcessView:
    """The view of one process."""
    cards = _cards(part, number)
    anchors = {graph: card.anchor for card, graphs in cards for graph in graphs}
    spans = _spans(part, anchors)
    tables = {
        "break": with_costs(part.events),
        **{kind: tuple(part.of_kind(kind)) for kind in ("recompile", "fallback", "frame")},
    }
    records = [event["record"] for event in part.of_kind("compiled")]
    counts = {
        "frames": len(tables["frame"]),
        "graphs": len(part.of_kind("graph")),
        "breaks": len(tables["break"]),
        "recompiles": len(tables["recompile"]),
        "kernels": sum(record["kernels"] for record in records),
        "fused operations": sum(record["fused_ops"] for record in records),
        "ran eagerly": len(tables["fallback"]),
        "seconds": round(sum(event["seconds"] for event in tables["frame"]), 3),
    }
    if part.broken:
        counts["unreadable events"] = part.broken
    rank = part.process.get("rank")
    length = max((span.start + span.length for span in spans), default=0.0)
    return ProcessView(
        name=f"{f'rank {rank}, ' if rank else ''}process {part.process['process']}",
        facts=part.process,
        counts=counts,
        cards=tuple(card for card, _ in cards),
        spans=spans,
        tables=tables,
        kernels=by_time_lost(part.events),
        length=length,
        lanes=tuple(dict.fromkeys(span.lane for span in spans)),
        ticks=ticks(length),
    )


def ticks(length: float) -> tuple[float, ...]:
    """Round seconds for the axis of a timeline: four to ten of them, from zero."""
    if length <= 0:
        return ()
    step = 10.0 ** floor(log10(length))
    step = next(step * part for part in (0.1, 0.2, 0.5, 1.0) if length / (step * part) <= 10)
    return tuple(round(step * n, 9) for n in range(int(length / step) + 1))


Key = tuple[int, str]


def _cards(part: ProcessEvents, number: int) -> list[tuple[Card, list[Key]]]:
    by_graph = _by_graph(part)
    installed = {
        (event["owner"], event["installed"]): event["graph"] for event in part.of_kind("graph")
    }
    heads: list[tuple[str, str, list[Key], list[Panel], list[str]]] = []
    for event in part.of_kind("entry"):
        names = [installed.get((event["owner"], name), name) for name in event["graphs"]]
        title = f"{event['function']}: {', '.join(names) or 'no graph'}"
        keys = [(event["owner"], name) for name in names]
        panels, notes = [*_entry_panels(part, event)], [f"{len(event['guards'])} guards"]
        heads.append((title, event["where"], keys, panels, notes))
    shown = {key for head in heads for key in head[2]}
    for key, events in by_graph.items():
        if key not in shown:
            functions = (event["function"] for event in events if event["kind"] == "graph")
            heads.append((key[1], next(functions, ""), [key], [], []))
    made: list[tuple[Card, list[Key]]] = []
    for place, (title, where, keys, panels, notes) in enumerate(heads):
        summary: list[str] = []
        for key in keys:
            panels += _graph_panels(part, by_graph.get(key, []))
            more, short = _notes(by_graph.get(key, []))
            notes, summary = notes + more, summary + short
        text = "; ".join(summary)
        card = Card(f"p{number}-{place}", title, where, tuple(notes), tuple(panels), text)
        made.append((card, keys))
    return made


def _by_graph(part: ProcessEvents) -> dict[Key, list[Event]]:
    found: defaultdict[Key, list[Event]] = defaultdict(list)
    for event in part.events:
        if "graph" in event:
            found[event["owner"], event["graph"]].append(event)
    return dict(found)


def _entry_panels(part: ProcessEvents, event: Event) -> Iterable[Panel]:
    for name, path in event["files"].items():
        if name == "guards":
            yield Panel("guards", CAPTURE, tree=guard_tree(event["guards"]))
        else:
            yield Panel(name, CAPTURE, part.text(path))


CAPTURE, AHEAD = "capture", "ahead of time"
FILES = {
    "0_graph.txt": "primitives",
    "1_rewritten.txt": "rewritten",
    "2_before_fusion.txt": "loops",
    "3_after_fusion.txt": "fused loops",
    "3_fused.svg": "fused loops, drawn",
    "3_merged.txt": "what was joined",
    "3_refused.txt": "what was not joined",
    "4_kernels.cpp": "kernels in C++",
    "4_kernels.py": "kernels in Triton",
    "5_wrapper.py": "wrapper",
    "6_bench.py": "benchmark of the kernels",
    "6_kernels.json": "what the kernels move",
    "report.json": "report",
}
REWRITE = re.compile(r"1_pass_\d+_(\w+)\.txt")


def _graph_panels(part: ProcessEvents, events: list[Event]) -> list[Panel]:
    order = {"graph": 0, "aot": 1, "kernels": 2, "half": 3}
    halves = {"": 0, "inference": 1, "forward": 1, "backward": 2}
    panels: list[Panel] = []
    for event in sorted(
        events, key=lambda e: (halves.get(e.get("half", ""), 3), order.get(e["kind"], 9))
    ):
        for name, path in event.get("files", {}).items():
            group = event.get("half") or (CAPTURE if event["kind"] == "graph" else AHEAD)
            rewrite, text = REWRITE.fullmatch(name), part.text(path)
            title = f"after {rewrite[1].replace('_', ' ')}" if rewrite else FILES.get(name, name)
            drawn = path.endswith(".svg") and text.lstrip().startswith("<svg")
            if drawn and "<script" not in text.lower():
                panels.append(Panel(title, group, picture=Markup(text)))
            else:
                panels.append(Panel(title, group, text))
        if event["kind"] == "half":
            panels += half_panels(event)
    return panels


def half_panels(event: Event) -> Iterable[Panel]:
    """What is shown of one half: the fused graph, its kernels, its memory, its fusions."""
    half, facts = event["half"], event["facts"]
    steps = facts["steps"]
    yield Panel("fused graph", half, picture=fused_picture(steps))
    yield Panel("kernel times", half, kernels=tuple(steps), roof=event["roof"])
    plan = [
        f"{'(a symbol)' if size is None else f'{size:,d}':>14} bytes  {what}"
        for what, size in facts["memory"]["timeline"]
    ]
    picture = memory_picture(facts["memory"]["timeline"])
    yield Panel("memory plan", half, text="\n".join(plan), picture=picture)
    refused = [f"{first} + {second}: {why}" for first, second, why in facts["refused"]]
    made = [f"{first} + {second}" for first, second in facts["fused"]]
    lines = ["Joined:", *(made or ["none"]), "", "Refused:", *(refused or ["none"])]
    yield Panel("fusions", half, text="\n".join(lines))


def _notes(events: list[Event]) -> tuple[list[str], list[str]]:
    """What became of a graph, and the same in short."""
    notes, short = [], []
    for event in events:
        if event["kind"] == "compiled":
            record = event["record"]
            kind, kernels = record["kind"], record["kernels"]
            calls, spent = sum(record["externs"].values()), 1e3 * sum(record["seconds"].values())
            notes.append(
                f"{record['name']}: {kind}, {record['nodes']} operations, {kernels} kernels, "
                f"{calls} library calls, {spent:.0f} ms"
            )
            short.append(f"{kind}, {kernels} kernels, {spent:.0f} ms")
        elif event["kind"] == "fallback":
            notes.append(f"{event['graph']} runs eagerly: {event['stage']}: {event['error']}")
    return notes, short


#: of kinds of events: the kind of span, when it ended, its label
SPANS = {
    "frame": ("frame", "ended", "{function}: {outcome}"),
    "aot": ("aot", "t", "{graph} ahead of time"),
    "kernels": ("inductor", "t", "{graph} {half}: inductor"),
}


def _spans(part: ProcessEvents, anchors: Mapping[Key, str]) -> tuple[Span, ...]:
    spans: list[Span] = []
    for event in part.events:
        if event["kind"] not in SPANS:
            continue
        kind, end, label = SPANS[event["kind"]]
        anchor = anchors.get((event["owner"], event.get("graph", "")), "")
        start, lane = event[end] - event["seconds"], f"thread {event['thread']}"
        spans.append(Span(lane, kind, label.format(**event), start, event["seconds"], anchor))
    zero = min((span.start for span in spans), default=0.0)
    return tuple(replace(span, start=span.start - zero) for span in spans)


@lru_cache(maxsize=1)
def _templates() -> Environment:
    loader = PackageLoader("flambeau.page", "templates")
    made = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(in_bytes=in_bytes, shortened=shortened, brief=brief)
    return made


def shortened(place: str) -> str:
    """A path by its last three parts."""
    parts = place.split("/")
    return place if len(parts) <= 4 else "/".join(["…", *parts[-3:]])


def brief(line: str) -> str:
    """`File "/long/way/f.py", line 3, in fn code` as `…/way/f.py:3 code`."""
    found = re.fullmatch(r'File "(.*)", line (\d+), in \S+ ?(.*)', line)
    return line if found is None else f"{shortened(found[1])}:{found[2]} {found[3]}"


def report_page(folder: Path) -> str:
    """A trace as a page. Raises NoTrace where the folder holds none."""
    views = [view(part, number) for number, part in enumerate(load(folder))]
    return _templates().get_template("report.html.j2").render(processes=views, title=folder.name)


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write a trace's page, into its folder unless another place is named; returns the place."""
    place = out or folder / "report.html"
    place.write_text(report_page(folder), encoding="utf-8")
    return place


def explanation_page(explanation: Explanation) -> str:
    """An explanation as a page."""
    panels: dict[str, list[Panel]] = {}
    for graph in explanation.graphs:
        panels[graph.name] = [Panel("operations", "capture", "\n".join(graph.operations))]
        for half in graph.halves:
            event = {"half": half.half, "facts": asdict(half), "roof": None}
            panels[graph.name] += half_panels(event)
    template = _templates().get_template("explanation.html.j2")
    return template.render(found=explanation, panels=panels, title="flambeau.explain")
