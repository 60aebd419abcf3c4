"""Pictures of a joint graph with its cut, and of the curve of memory and recomputation.

In: a `Joint` and the values saved; points of the curve. Out: an SVG, or text.
Invariant: every operator and input of a graph is in the picture once, below all it reads, coloured
by what becomes of it; each box and point has its numbers as text; no script and no font is needed.

Layers are longest paths from the inputs; within a layer, boxes are ordered by the mean place of
what they read, sweeping down and up a few times (Sugiyama, Tagawa and Toda 1981).

Joint graphs as runnable Python text. In: a `Joint` and, where it was cut, its halves. Out: text.
Invariant: the text of a graph is valid Python; each line names the class of its operator, and
whether its value crosses from forward to backward.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import is_operator
from flambeau_aot.interface import Classifier
from flambeau_aot.joint.trace import Joint
from flambeau_aot.partition.budget import CurvePoint
from flambeau_aot.partition.cost import classify, nbytes
from flambeau_aot.partition.problem import problem_of
from flambeau_aot.partition.split import backward_only


def show_graph(graph: fx.Graph, name: str = "graph") -> str:
    """One graph as a Python function, with the metadata of every value as a comment."""
    inputs = ", ".join(node.name for node in graph.nodes if node.op == "placeholder")
    lines = ["import operator", "import torch", "", f"def {name}({inputs}):"]
    lines.extend(f"    {_statement(node)}" for node in graph.nodes if node.op == "call_function")
    end = next((node for node in reversed(graph.nodes) if node.op == "output"), None)
    if end is not None:
        lines.append(f"    return {_argument(end.args[0])}")
    return "\n".join(lines) + "\n"


def show_joint(joint: Joint, saved: Iterable[fx.Node] = (), known: Classifier | None = None) -> str:
    """The joint graph with its cut: which part a line is in, its class, what is saved."""
    late = backward_only(joint)
    crossing = set(saved)
    inputs = ", ".join(node.name for node in (*joint.primals, *joint.late_inputs))
    lines = ["import operator", "import torch", "", f"def joint({inputs}):"]
    for node in joint.graph.nodes:
        if node.op != "call_function":
            continue
        marks = ["backward" if node in late else "forward", classify(node.target, known)]
        if node in crossing:
            marks.append("saved")
        lines.append(f"    {_statement(node)}  [{', '.join(marks)}]")
    lines.append(f"    return {_argument(joint.outputs)}, {_argument(joint.grads)}")
    return "\n".join(lines) + "\n"


def _statement(node: fx.Node) -> str:
    parts = [_argument(item) for item in node.args]
    parts.extend(f"{name}={_argument(item)}" for name, item in node.kwargs.items())
    return f"{node.name} = {_target(node.target)}({', '.join(parts)})  # {_metadata(node)}"


def _target(target: Any) -> str:
    if is_operator(target):
        return f"torch.ops.{target}"
    return f"{target.__module__.lstrip('_')}.{target.__name__}"


def _argument(value: Any) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, tuple):
        inner = ", ".join(_argument(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return "[" + ", ".join(_argument(item) for item in value) + "]"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if (isinstance(value, float) and value in (float("inf"), float("-inf"))) or value != value:
        return f"float({str(value)!r})"
    return repr(value)


def _metadata(node: fx.Node) -> str:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    name = str(value.dtype).removeprefix("torch.")
    return f"{name}{list(value.shape)} stride {list(value.stride())}"


_WIDTH, _HEIGHT, _FRAME = 640, 360, 64


def draw_curve(points: Sequence[CurvePoint], title: str = "memory for work") -> str:
    """Bytes saved from left to right, the part of work done twice from bottom to top."""
    most_bytes = max((point.saved_bytes for point in points), default=1) or 1
    most_share = max((point.share for point in points), default=1.0) or 1.0

    def place(point: CurvePoint) -> tuple[float, float]:
        x = _FRAME + (_WIDTH - 2 * _FRAME) * point.saved_bytes / most_bytes
        y = _HEIGHT - _FRAME - (_HEIGHT - 2 * _FRAME) * point.share / most_share
        return round(x, 1), round(y, 1)

    bottom, right = _HEIGHT - _FRAME, _WIDTH - _FRAME
    lines = [
        f'<text x="{_FRAME}" y="28" font-size="15">{title}</text>',
        f'<path d="M{_FRAME} {_FRAME}V{bottom}H{right}" fill="none" stroke="black"/>',
        f'<text x="{right}" y="{bottom + 32}" text-anchor="end">saved for backward, up to '
        f"{in_units(most_bytes)}</text>",
        f'<text x="{_FRAME}" y="{_FRAME - 12}">work done twice, up to {most_share:.1%}</text>',
    ]
    if len(points) > 1:
        path = " ".join(f"{x},{y}" for x, y in map(place, points))
        lines.append(f'<polyline points="{path}" fill="none" stroke="#1f6fb4" stroke-width="2"/>')
    for point in points:
        x, y = place(point)
        lines.append(
            f'<circle cx="{x}" cy="{y}" r="4" fill="#1f6fb4">'
            f"<title>{in_units(point.saved_bytes)} saved, {point.share:.1%} of the work twice"
            "</title></circle>"
        )
    return _drawing(lines, _WIDTH, _HEIGHT, f'viewBox="0 0 {_WIDTH} {_HEIGHT}"', "sans-serif", 12)


def _drawing(
    lines: Sequence[str], width: float, height: float, place: str, font: str, size: int
) -> str:
    """These elements on white."""
    style = f'font-family="{font}" font-size="{size}"'
    first = f'<svg xmlns="http://www.w3.org/2000/svg" {place} {style}>'
    ground = f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>'
    return "\n".join([first, ground, *lines, "</svg>"]) + "\n"


def in_units(size: int) -> str:
    """Bytes as people read them."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


COLOURS: dict[str, tuple[str, str]] = {
    "input": ("#ffffff", "an input or cotangent"),
    "forward": ("#cfe3f7", "runs forward"),
    "saved": ("#f6c667", "saved for backward"),
    "recomputed": ("#d9c2ee", "runs forward, and again in backward"),
    "backward": ("#cdeccb", "runs backward"),
}
_BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN, _LETTER = 26, 14, 28, 24, 6.8
_SWEEPS = 4


@dataclass(frozen=True)
class Box:
    """One node of the picture; x and y are its upper left corner."""

    node: fx.Node
    role: str
    label: str
    x: float
    y: float
    width: float


def draw_joint(
    joint: Joint, saved: Iterable[fx.Node] = (), form: str = "svg", known: Classifier | None = None
) -> str:
    """The joint graph with its cut; `form` is "svg" or "text" (Python that runs)."""
    if form == "text":
        return show_joint(joint, saved, known)
    if form != "svg":
        raise ValueError(f"a joint graph is drawn as 'svg' or 'text', not {form!r}")
    crossing = set(saved)
    roles = roles_of(joint, crossing, known)
    layers = _layers([node for node in joint.graph.nodes if node in roles])
    boxes = _placed(_ordered(layers), roles)
    return _svg(joint, boxes, crossing, known)


def roles_of(
    joint: Joint, saved: set[fx.Node], known: Classifier | None = None
) -> dict[fx.Node, str]:
    """What each node is, a key of `COLOURS`; parts of several results count as their operator."""
    late = backward_only(joint)
    again = set(problem_of(joint, known).again(saved)) if saved or joint.training else set()
    roles: dict[fx.Node, str] = {}
    for node in joint.graph.nodes:
        if node.op == "placeholder":
            roles[node] = "saved" if node in saved else "input"
        elif node in late:
            roles[node] = "backward"
        elif node in saved:
            roles[node] = "saved"
        else:
            roles[node] = "recomputed" if node in again else "forward"
    return roles


def _layers(nodes: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """Nodes by their longest path from an input; inputs stand just above their first reader."""
    depth: dict[fx.Node, int] = {}
    for node in nodes:
        depth[node] = max((depth[source] + 1 for source in node.all_input_nodes), default=0)
    for node in reversed(nodes):
        readers = [depth[user] for user in node.users if user in depth]
        if node.op == "placeholder" and readers:
            depth[node] = min(readers) - 1
    layers: list[list[fx.Node]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        layers[depth[node]].append(node)
    return layers


def _ordered(layers: list[list[fx.Node]]) -> list[list[fx.Node]]:
    """Each layer in an order that crosses few lines."""
    place = {node: float(index) for layer in layers for index, node in enumerate(layer)}

    def sort(layer: list[fx.Node], downward: bool) -> None:
        def mean(node: fx.Node) -> float:
            others = node.all_input_nodes if downward else [u for u in node.users if u in place]
            return sum(place[item] for item in others) / len(others) if others else place[node]

        layer.sort(key=mean)
        for index, node in enumerate(layer):
            place[node] = index - len(layer) / 2

    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            sort(layer, sweep % 2 == 0)
    return layers


def _placed(layers: list[list[fx.Node]], roles: dict[fx.Node, str]) -> list[Box]:
    labels = {node: _label(node) for layer in layers for node in layer}
    widths = {node: max(46.0, len(label) * _LETTER + 14) for node, label in labels.items()}
    totals = [sum(widths[node] + _GAP_X for node in layer) for layer in layers]
    widest = max(totals, default=0.0)
    boxes: list[Box] = []
    for row, (layer, total) in enumerate(zip(layers, totals, strict=True)):
        x = _MARGIN + (widest - total) / 2
        for node in layer:
            y = _MARGIN + 34 + row * (_BOX_HEIGHT + _GAP_Y)
            boxes.append(Box(node, roles[node], labels[node], round(x, 1), y, widths[node]))
            x += widths[node] + _GAP_X
    return boxes


def _label(node: fx.Node) -> str:
    if node.op == "placeholder":
        return node.name
    if node.target is operator.getitem:
        return f"[{node.args[1]}]"
    name = getattr(node.target, "_schema", None)
    return str(name.name).split("::")[-1] if name is not None else node.name


def _svg(joint: Joint, boxes: list[Box], saved: set[fx.Node], known: Classifier | None) -> str:
    width = max((box.x + box.width for box in boxes), default=400.0) + _MARGIN
    width = max(width, 900.0)  # the legend's
    height = max((box.y for box in boxes), default=0.0) + _BOX_HEIGHT + _MARGIN
    at = {box.node: box for box in boxes}
    edges = [
        _edge(at[source], box, source in saved and box.role == "backward")
        for box in boxes
        for source in box.node.all_input_nodes
    ]
    lines = [*_legend(), *edges, *(_box(box, joint, known) for box in boxes)]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return _drawing(lines, width, height, size, "monospace", 11)


def _legend() -> list[str]:
    lines: list[str] = []
    x = float(_MARGIN)
    for colour, meaning in COLOURS.values():
        lines.append(
            f'<rect x="{x:.0f}" y="14" width="14" height="14" fill="{colour}" stroke="#555"/>'
            f'<text x="{x + 19:.0f}" y="25">{meaning}</text>'
        )
        x += 36 + len(meaning) * _LETTER
    return lines


def _edge(start: Box, end: Box, crosses: bool) -> str:
    x1, y1 = start.x + start.width / 2, start.y + _BOX_HEIGHT
    x2, y2 = end.x + end.width / 2, end.y
    middle = (y1 + y2) / 2
    look = 'stroke="#c8780a" stroke-width="1.8"' if crosses else 'stroke="#888"'
    path = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
    return f'<path d="{path}" fill="none" {look}/>'


def _box(box: Box, joint: Joint, known: Classifier | None) -> str:
    node = box.node
    result = node in joint.outputs or node in joint.grads
    value = node.meta["val"]
    told = [node.name, COLOURS[box.role][1]]
    if node.op == "call_function":
        told.append(str(classify(node.target, known)))
    if hasattr(value, "shape"):
        told.append(f"{value.dtype} {list(value.shape)}, {in_units(nbytes(value))}")
    if result:
        told.append("returned")
    lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
    told.extend(line.strip() for line in lines[-2:])
    edge = "#000" if result else "#555"
    return (
        f'<g><title>{escape(chr(10).join(told))}</title><rect x="{box.x}" y="{box.y}" '
        f'width="{box.width:.1f}" height="{_BOX_HEIGHT}" rx="4" fill="{COLOURS[box.role][0]}" '
        f'stroke="{edge}" stroke-width="{2 if result else 1}"/>'
        f'<text x="{box.x + box.width / 2:.1f}" y="{box.y + 17}" text-anchor="middle">'
        f"{escape(box.label)}</text></g>"
    )
