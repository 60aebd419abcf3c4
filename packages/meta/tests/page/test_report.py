"""The report's structure, and the report as a person uses it."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import torch

import flambeau
from flambeau.page.pictures import fused_picture
from flambeau.page.reading import NoTrace, load
from flambeau.page.render import brief, guard_tree, steps_of, ticks

VOID = {"meta", "link", "input", "br", "img", "hr"}


class Structure(HTMLParser):
    """Collects elements, and holds every opening against its closing."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.elements, self.outside = [], [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.elements.append((tag, given))
        if "id" in given:
            self.ids.append(given["id"])
        for name in ("src", "href"):
            if given.get(name) and not given[name].startswith(("#", "data:")):
                self.outside.append(given[name])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-5:], self.getpos())
        self.open.pop()


def parsed(text):
    structure = Structure()
    structure.feed(text)
    assert structure.open == []
    assert len(structure.ids) == len(set(structure.ids))
    assert structure.outside == [], "the page asks for something from elsewhere"
    return structure


def test_the_report_is_one_whole_page(page):
    text = page.read_text(encoding="utf-8")
    structure = parsed(text)
    ids = set(structure.ids)
    pressed = [given["data-panel"] for tag, given in structure.elements if "data-panel" in given]
    assert len(pressed) > 60 and set(pressed) <= ids
    spans = [given for tag, given in structure.elements if "span" in given.get("class", "").split()]
    assert {"frame", "aot", "inductor"} <= {given["class"].split()[1] for given in spans}
    linked = [given["href"][1:] for given in spans if given["href"] != "#"]
    assert linked and set(linked) <= ids


@pytest.mark.parametrize(
    "stage",
    [
        "source", "bytecode before", "bytecode after", "guards", "FX graph", "joint graph",
        "joint graph, drawn", "forward graph", "backward graph", "primitives", "rewritten", "loops",
        "fused loops", "fused graph", "kernels in C++", "wrapper", "kernel times", "memory plan",
        "fusions",
    ],
)  # fmt: skip
def test_every_stage_has_its_panel(page, stage):
    panels = re.findall(r"<h4>(?:[a-z ]+: )?(.*)</h4>", page.read_text(encoding="utf-8"))
    assert stage in panels


def test_the_axis_has_round_seconds():
    assert ticks(0.0) == ()
    assert ticks(23.78) == (0.0, 5.0, 10.0, 15.0, 20.0)
    assert all(4 <= len(ticks(1.3**n)) <= 11 for n in range(-20, 20))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            'File "/a/b/c/d/e.py", line 3, in forward return F.gelu(x)',
            "…/c/d/e.py:3 return F.gelu(x)",
        ),
        ("something else", "something else"),
    ],
)
def test_lines_are_shown_briefly(line, shown):
    assert brief(line) == shown


def test_what_the_program_says_is_escaped(tmp_path):
    def fn(x):
        return x + len("<script>alert(1)</script>")

    with flambeau.trace(tmp_path):
        flambeau.compile(fn, backend="eager")(torch.ones(2))
    from flambeau.page import report_page

    text = report_page(tmp_path)
    parsed(text)
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text


def test_a_line_that_was_cut_short_is_counted(traced, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(traced, copy)
    (place,) = copy.glob("*/events.jsonl")
    whole = place.read_text()
    place.write_text(whole[: len(whole) - 20])
    (part,) = load(copy)
    assert part.broken == 1 and len(part.events) == whole.count("\n") - 1


def test_an_event_cannot_name_files_outside_of_the_trace(traced):
    (part,) = load(traced)
    assert "outside of the trace" in part.text("../../../../../../etc/passwd")


def test_no_trace_is_said_in_one_sentence(tmp_path):
    with pytest.raises(NoTrace, match="FLAMBEAU_TRACE"):
        load(tmp_path)
    command = [sys.executable, "-m", "flambeau", "report", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "holds no trace" in done.stderr


def test_guards_become_a_tree():
    texts = [
        "local 'self' TYPE_MATCH",
        "local 'self.a.b' TENSOR_MATCH",
        "local 'self.a' ID_MATCH",
        "local \"self.a._modules['0']\" ID_MATCH",
        "local 'a', local 'b' NO_ALIASING",
        "held '<Net>' CLASS_SPECIALS",
        "global state GLOBAL_STATE",
    ]
    root = guard_tree(texts)
    assert root.count == len(texts)
    self_ = root.inside["local self"]
    assert self_.kinds == ["TYPE_MATCH"]
    assert self_.inside[".a"].kinds == ["ID_MATCH"]
    assert self_.inside[".a"].inside[".b"].kinds == ["TENSOR_MATCH"]
    assert self_.inside[".a"].inside["._modules"].inside["['0']"].kinds == ["ID_MATCH"]
    assert root.inside["local 'a', local 'b'"].kinds == ["NO_ALIASING"]
    assert steps_of("local 'x[0].weight'") == ["local x", "[0]", ".weight"]


def test_the_guards_of_a_module_nest(tmp_path):
    layer = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with flambeau.trace(tmp_path):
        flambeau.compile(layer, backend="eager")(torch.ones(1, 2))
    (part,) = load(tmp_path)
    (entry,) = part.of_kind("entry")
    root = guard_tree(entry["guards"])
    assert root.count == len(entry["guards"])
    assert any(node.inside for node in root.inside.values())


def test_the_fused_picture_holds_every_step_once():
    steps = [
        {"kind": "kernel", "name": f"loop{n}", "origins": [f"op<{n}>"], "lines": [],
         "reads": [f"b{n - 1}"] if n else [], "writes": [f"b{n}"]}
        for n in range(4)
    ]  # fmt: skip
    picture = str(fused_picture(steps))
    parsed(picture)
    assert picture.count("<rect") == 4 and picture.count("<path") == 3
    assert "op&lt;2&gt;" in picture


def test_a_person_clicks_through(page, chromium, tmp_path):
    with chromium.Browser(tmp_path / "profile") as browser:
        browser.open(page)
        cards = browser.run("document.querySelectorAll('.card').length")
        assert cards >= 3
        browser.click(".card summary")
        assert browser.run("document.querySelector('.card').open")
        for name in ("guards", "joint graph, drawn", "kernel times"):
            browser.run(
                "(() => { const b = [...document.querySelectorAll('.card button')].find("
                f"b => b.textContent === {json.dumps(name)}); b.id = 'now'; }})()"
            )
            browser.click("#now")
            shown = browser.run(
                "(() => { const b = document.getElementById('now'); const p ="
                "document.getElementById(b.dataset.panel); b.id = '';"
                "return !p.hidden && p.getBoundingClientRect().height > 30; })()"
            )
            assert shown, name
        side = browser.run(
            "[...document.querySelectorAll('.card')[0].querySelectorAll('.panel:not([hidden])')]"
            ".map(p => p.getBoundingClientRect().x)"
        )
        assert len(side) == 5 and side == sorted(side)  # side by side
        picture = tmp_path / "report.png"
        browser.screenshot(picture)
        assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000
        assert browser.errors == []


def test_breaks_say_what_they_cost(page, chromium, tmp_path):
    with chromium.Browser(tmp_path / "profile") as browser:
        browser.open(page)
        heads, cells = browser.run(
            "['th', 'td'].map(kind => [...document.querySelectorAll(`table.breaks ${kind}`)]"
            ".map(cell => cell.innerText))"
        )
    figures = dict(zip(heads, cells))
    assert float(figures["in Python"].removesuffix(" ms")) > 0
    assert float(figures["to capture"].removesuffix(" ms")) > 0
    assert figures["through memory"] == "480 B"  # 30 by 4 numbers leave a graph for the next


def test_a_narrow_screen_shows_it_without_scrolling_sideways(page, chromium, tmp_path):
    with chromium.Browser(tmp_path / "profile") as browser:
        narrow = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        browser.page("Emulation.setDeviceMetricsOverride", narrow)
        browser.open(page)
        browser.click(".card summary")
        assert browser.run("document.documentElement.scrollWidth") == 400


def test_a_person_searches(page, chromium, tmp_path):
    with chromium.Browser(tmp_path / "profile") as browser:
        browser.open(page)
        everything = browser.run("document.querySelectorAll('[data-searched]').length")
        browser.click("#search")
        browser.type("cumsum")
        shown = browser.run("document.querySelectorAll('[data-searched]:not([hidden])').length")
        assert 0 < shown < everything
        assert browser.run("document.getElementById('found').textContent") == (
            f"{shown} of {everything}"
        )
        assert browser.run("document.querySelectorAll('button.hit').length") > 3
        browser.type(" nothinglikeit")
        assert browser.run("document.querySelectorAll('[data-searched]:not([hidden])').length") == 0
        assert browser.errors == []


def test_the_timeline_leads_to_the_graph(page, chromium, tmp_path):
    with chromium.Browser(tmp_path / "profile") as browser:
        browser.open(page)
        browser.click("a.span.aot")
        target = browser.run("document.querySelector('a.span.aot').getAttribute('href').slice(1)")
        assert browser.run(f"document.getElementById('{target}').open")


def test_an_explanation_is_a_page_too(chromium, tmp_path):
    def toy(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    text = flambeau.explain(toy, torch.randn(10), torch.ones(10)).to_html()
    parsed(text)
    place = tmp_path / "explained.html"
    place.write_text(text, encoding="utf-8")
    with chromium.Browser(tmp_path / "profile") as browser:
        browser.open(place)
        assert "b.sum() < 0" in browser.run("document.querySelector('table.breaks').innerText")
        browser.run("document.querySelectorAll('.stages button')[1].click()")
        assert browser.run("document.querySelectorAll('.panel:not([hidden]) svg').length") == 1
        assert browser.errors == []
