"""The page of the documentation that lists every construct with its state.

In: the states that were kept. Out: `docs/language.md`. Invariant: what is kept is all that is read.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

from integration_tests.conformance.running import BREAKS, ONE_GRAPH, ORDER, WRONG, kept

HEAD = """\
# Python's reference

What capture makes of Python {python}, construct by construct: syntax by the classes of `ast`, the
special methods of the data model, built-in functions, the methods of built-in types, modules of the
library. Small programs use each next to tensor operations, as they are and compiled: results,
effects, output and errors have to be the same.

*one graph*: all programs of the row are captured whole. *breaks*: one of them ends a graph, for the
[reasons](breaks.md) that stand there, and goes on after it; results are eager's. *wrong*: a defect.
`nox -s conformance` draws the table again.

"""
MOST_REASONS = 2


def render() -> str:
    """The page: counts, then a table a chapter."""
    data = kept()
    rows = [(*key.partition(": ")[::2], state) for key, state in data["states"].items()]
    parts = [HEAD.format(python=data["python"])]
    parts.append(_counts(rows))
    for chapter, group in groupby(rows, key=lambda row: row[0]):
        listed = [*group]
        parts.append(f"\n## {chapter}\n")
        whole = [f"`{_text(name)}`" for _, name, state in listed if state["state"] == ONE_GRAPH]
        if whole:
            parts.append(f"\nOne graph ({len(whole)}): {', '.join(whole)}.\n")
        others = [row for row in listed if row[2]["state"] != ONE_GRAPH]
        if others:
            parts.append("\n| construct | state | reason |\n| --- | --- | --- |\n")
            parts += [
                f"| `{_text(name)}` | {_state(s)} | {_reasons(s)} |\n" for _, name, s in others
            ]
    return "".join(parts)


def _counts(rows: list[tuple[str, str, dict[str, Any]]]) -> str:
    lines = ["| chapter | one graph | breaks | wrong |", "| --- | --- | --- | --- |"]
    for chapter in dict.fromkeys(row[0] for row in rows):
        lines.append(_line(chapter, [row[2] for row in rows if row[0] == chapter]))
    lines.append(_line("**all**", [row[2] for row in rows]))
    return "\n".join(lines) + "\n"


def _line(title: str, states: list[dict[str, Any]]) -> str:
    counts = Counter(state["state"] for state in states)
    return f"| {title} | {' | '.join(str(counts[state]) for state in ORDER)} |"


def _state(state: dict[str, Any]) -> str:
    if state["state"] == BREAKS:
        return f"breaks in {len(state['not'])} of {state['of']}"
    return WRONG


def _reasons(state: dict[str, Any]) -> str:
    texts = []
    for reason in state["why"][:MOST_REASONS]:
        id, _, what = reason.partition(" ")
        link = f"[{id}](breaks.md#{id.lower()}) " if id.startswith("FB") else f"{id} "
        texts.append(link + f"`{_text(what)}`" if what else link)
    if len(state["why"]) > MOST_REASONS:
        texts.append(f"and {len(state['why']) - MOST_REASONS} more")
    return "; ".join(texts)


def _text(text: str) -> str:
    """In a cell of a table, between back quotes."""
    line = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return line if len(line) <= 100 else line[:99] + "…"
