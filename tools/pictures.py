"""The pictures of the documentation, drawn from what the stages make of small programs.

    python tools/pages.py [--check]            writes or compares them with the other pages
    python tools/pictures.py report TRACE      a picture of a trace's page, by headless Chromium

In: the packages. Out: SVG. Invariant: all but the road are drawn from a real run; a picture that
was made with another release of torch is not compared, since operators have other names there.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

import flambeau_aot
import flambeau_prims
import torch
from torch import fx

import flambeau
from flambeau.page.pictures import fused_picture, memory_picture

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
MADE_WITH = f"<!-- made by tools/pictures.py with torch {torch.__version__.split('+')[0]} -->"
WIDTH, LINE, MARGIN = 150, 15, 16
SOURCE, PRODUCT, STAGE, PYTHON = "#ffffff", "#cfe3f7", "#f6c667", "#cdeccb"
Place = tuple[float, float, float, float]

ROAD: tuple[tuple[str, str, str, str], ...] = (
    # stage, what it is given, what it does, what goes to the next one
    ("capture", "a Python frame", "interprets bytecode,\nwrites guards", "FX graph\nof Torch IR"),
    ("aot", "", "traces forward and\nbackward, cuts", "two functional\nATen graphs"),
    ("prims", "", "decomposes ATen", "graphs of\nprimitives"),
    ("inductor", "", "fuses loops, plans\nmemory, writes code", "kernels and\na wrapper"),
)


def toy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The function whose branch depends on data."""
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def block(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """A small network with something to fuse and something to save."""
    hidden = torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (32,)) @ w)
    return torch.softmax(hidden @ v, -1).square().mean()


def road() -> str:
    """The layers in the order of one call, and what crosses between them."""
    lines: list[str] = []
    step, top = WIDTH + 150, 70
    for place, (stage, given, does, gives) in enumerate(ROAD):
        x = MARGIN + 130 + place * step
        if given:
            lines.append(_box((MARGIN, top + 8, 110, 34), [given], SOURCE))
            lines.append(_arrow(MARGIN + 110, top + 25, x, top + 25))
        lines.append(_box((x, top - 14, WIDTH, 78), [f"*{stage}", *does.split("\n")], STAGE))
        lines.append(_arrow(x + WIDTH, top + 25, x + WIDTH + 20, top + 25))
        lines.append(_box((x + WIDTH + 20, top, 110, 50), gives.split("\n"), PRODUCT))
        if place + 1 < len(ROAD):
            lines.append(_arrow(x + WIDTH + 130, top + 25, x + step, top + 25))
    right = 2 * MARGIN + 130 + len(ROAD) * step
    lines.append(_text(MARGIN, 22, "the first call", bold=True))
    y = top + 110
    lines.append(_text(MARGIN, y, "every later call", bold=True))
    later = ["the frame begins", "*guards", "new bytecode", "compiled graph", "kernels"]
    for place, label in enumerate(later):
        x = MARGIN + 130 + place * (WIDTH + 40)
        colour = STAGE if label.startswith("*") else PRODUCT
        lines.append(_box((x, y - 4, WIDTH, 34), [label], colour))
        if place:
            lines.append(_arrow(x - 40, y + 13, x, y + 13))
    hold = MARGIN + 130 + WIDTH + 40
    lines.append(_text(hold, y + 48, "none holds: the first call again"))
    return _svg(right, y + 66, lines)


def resuming() -> str:
    """The toy's three graphs, with what stays in Python between them."""
    graphs: list[fx.GraphModule] = []

    def keep(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward

    compiled = flambeau.compile(toy, backend=keep)
    compiled(torch.randn(10), torch.ones(10))
    compiled(torch.randn(10), -torch.ones(10))
    first, positive, negative = (
        [_call(node) for node in gm.graph.nodes if node.op.startswith("call")] for gm in graphs
    )
    source = ["x = a / (torch.abs(a) + 1)", "if b.sum() < 0:", "    b = b * -1", "return x * b"]
    lines = [
        _text(MARGIN, 24, "what you wrote", bold=True),
        _box((MARGIN, 34, 220, 84), source, SOURCE),
    ]
    x, wide = 290, 210
    lines += [
        _text(x, 24, "what runs", bold=True),
        _box((x, 34, wide, 30 + LINE * len(first)), ["*graph 1", *first], PRODUCT),
        _box((x, 34 + 64 + LINE * len(first), wide, 34), ["*Python:  if lt:"], PYTHON),
    ]
    branch = 34 + 64 + LINE * len(first)
    lines.append(_arrow(x + wide / 2, branch - 34, x + wide / 2, branch))
    for title, calls, y, why in (
        ("*graph 2, in a resume function", positive, 40, "false"),
        ("*graph 3, in a resume function", negative, 130, "true"),
    ):
        lines.append(
            _box((x + wide + 100, y, 250, 30 + LINE * len(calls)), [title, *calls], PRODUCT)
        )
        lines.append(_arrow(x + wide, branch + 17, x + wide + 100, y + 22))
        lines.append(_text(x + wide + 62, y + 44, why))
    return _svg(x + wide + 100 + 250 + MARGIN, branch + 60, lines)


def _call(node: fx.Node) -> str:
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "?")
    return f"{node.name} = {target}({', '.join(map(str, node.args))})"


@lru_cache(maxsize=1)
def _inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(16, 32), (32, 64), (64, 8)]
    return [torch.randn(shape, requires_grad=n > 0) for n, shape in enumerate(shapes)]


def joint() -> str:
    """The joint graph of the block, with the cut that saves least."""
    found = flambeau_aot.export_joint(block, _inputs())
    return flambeau_aot.draw_joint(found.joint, flambeau_aot.min_cut_partition(found.joint))


def curve() -> str:
    """Memory for work, of a deeper network."""

    def network(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for w in weights:
            x = torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (64,)) @ w) + x
        return x.square().mean()

    weights = [torch.randn(64, 64, requires_grad=True) for _ in range(6)]
    found = flambeau_aot.export_joint(network, [torch.randn(32, 64), *weights])
    return flambeau_aot.draw_curve(flambeau_aot.memory_curve(found.joint))


def prims() -> str:
    """One softmax as primitives, each with its shape."""

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    lowered = flambeau_prims.lower(fx.symbolic_trace(softmax), [torch.randn(16, 32)])
    steps = [
        {
            "kind": "library" if node.op == "placeholder" else "kernel",
            "name": node.name if node.op == "placeholder" else str(node.target).split(".")[-2],
            "origins": [str(tuple(node.meta["val"].shape))],
            "lines": [],
            "reads": [source.name for source in node.all_input_nodes],
            "writes": [node.name],
        }
        for node in lowered.graph.nodes
        if node.op != "output"
    ]
    return str(fused_picture(steps))


@lru_cache(maxsize=1)
def _forward() -> dict[str, Any]:
    explained = flambeau.explain(block)(*_inputs())
    return asdict(explained.graphs[0].halves[0])


def fused() -> str:
    """The kernels and library calls of the block's forward half."""
    return str(fused_picture(_forward()["steps"]))


def memory() -> str:
    """The memory plan of the same half."""
    return str(memory_picture(_forward()["memory"]["timeline"]))


PICTURES: dict[str, Callable[[], str]] = {
    "road": road,
    "resuming": resuming,
    "joint": joint,
    "curve": curve,
    "prims": prims,
    "fused": fused,
    "memory": memory,
}


def made(name: str) -> str:
    """A picture's text, with files as they are named in the repository, and a note of what it was
    made with."""
    text = PICTURES[name]().replace(f"{ROOT}/", "")
    return f"{text.rstrip()}\n{MADE_WITH}\n"


def comparable(text: str) -> bool:
    """Whether a picture that is there was made with this release of torch."""
    return text.rstrip().endswith(MADE_WITH)


def _box(place: Place, lines: Sequence[str], colour: str) -> str:
    x, y, width, height = place
    first = y + (height - LINE * len(lines)) / 2 + 11
    texts = [
        _text(x + 8, first + LINE * row, line.removeprefix("*"), bold=line.startswith("*"))
        for row, line in enumerate(lines)
    ]
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{colour}" '
        f'stroke="#555"/>{"".join(texts)}'
    )


def _text(x: float, y: float, text: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" xml:space="preserve"{weight}>{escape(text)}</text>'


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    line = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
    return f'<line {line} stroke="#555" marker-end="url(#head)"/>'


def _svg(width: float, height: float, lines: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="monospace" font-size="11">'
    )
    marker = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>'
    )
    return "\n".join([head, marker, *lines, "</svg>"])


def report(trace: Path, out: Path, without: str = "") -> None:
    """Writes a picture of a trace's page as a person sees it, its largest graph opened.

    without: what is left out of the text, as the folder of the program that was traced.
    """
    from flambeau.page.render import report_page  # not among the drawn pictures

    spec = importlib.util.spec_from_file_location(
        "chromium", ROOT / "packages/meta/tests/page/chromium.py"
    )
    assert spec is not None and spec.loader is not None
    chromium = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(chromium)
    with tempfile.TemporaryDirectory() as profile, chromium.Browser(profile) as browser:
        page = Path(profile) / "report.html"
        text = report_page(trace)
        page.write_text(text.replace(without, "") if without else text, encoding="utf-8")
        browser.open(page)
        height = browser.run(OPEN)
        metrics = {"width": 1400, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.page("Emulation.setDeviceMetricsOverride", metrics)
        browser.screenshot(out)


OPEN = """(() => {
  const cards = [...document.querySelectorAll(".card")];
  const size = (card) => card.querySelectorAll("button").length;
  const card = cards.reduce((best, each) => (size(each) > size(best) ? each : best));
  card.open = true;
  for (const button of card.querySelectorAll("button[aria-pressed=true]")) { button.click(); }
  for (const name of ["guards", "fused graph", "kernel times"]) {
    [...card.querySelectorAll("button")].find((each) => each.textContent === name).click();
  }
  return Math.ceil(window.scrollY + card.getBoundingClientRect().bottom) + 10;
})()"""


def main() -> int:
    """Write the pictures, or one of a trace's page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["drawn", "report"], default="drawn")
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--without", default="", help="left out of the text, as a folder is")
    given = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    if given.what == "report":
        if given.trace is None:
            parser.error("report needs the folder of a trace")
        report(given.trace, FOLDER / "report.png", given.without)
        return 0
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(made(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
