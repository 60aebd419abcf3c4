"""Kernels by the time they lose to a copy: on the page, and as text."""

import re

import pytest

from flambeau.__main__ import main
from flambeau.page.reading import NoTrace, by_time_lost, load


def step(name, seconds, size):
    origins, lines = ["exp"], []
    return {"name": name, "seconds": seconds, "bytes": size, "origins": origins, "lines": lines}


def half(*steps, roof=1e9):
    facts = {"steps": list(steps)}
    return {"kind": "half", "graph": "graph0", "half": "forward", "roof": roof, "facts": facts}


def test_those_that_lose_most_are_first():
    events = [
        half(step("near", 1.1e-3, 1_000_000), step("far", 2e-3, 100_000)),
        half(step("faster", 0.5e-3, 1_000_000)),
        half(step("library", None, 10), step("open", 1e-3, None)),
        half(step("untimed", 1.0, 1), roof=None),
        {"kind": "end"},
    ]
    rows = by_time_lost(events)
    assert [row.timed.name for row in rows] == ["far", "near", "faster"]
    assert [row.timed.lost for row in rows] == pytest.approx([1.9e-3, 0.1e-3, 0.0])


def test_the_page_has_them_with_lines(page, traced):
    (part,) = load(traced)
    rows = by_time_lost(part.events)
    text = page.read_text(encoding="utf-8")
    table = text[text.index("by the time they lose to a copy") :]
    table = table[: table.index("</table>")]
    assert table.count("<tr data-searched>") == min(len(rows), 20) > 3
    assert rows[0].lines and f"{1e6 * rows[0].timed.lost:.1f} us" in table


def test_they_are_printed(traced, capsys):
    assert main(["report", str(traced), "--kernels", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    lost = [float(re.search(r"([\d.]+) us lost", line)[1]) for line in lines]
    assert lost == sorted(lost, reverse=True)


def test_without_a_trace_there_is_a_reason(tmp_path, capsys):
    assert main(["report", str(tmp_path), "--kernels", "2"]) != 0
    assert capsys.readouterr().err
    with pytest.raises(NoTrace):
        load(tmp_path)
