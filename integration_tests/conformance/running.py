"""Constructs judged: what becomes of each when its programs are compiled.

In: constructs. Out: a state a construct, as plain data that is kept beside the code. Invariant: the
worst of a construct's programs is its state; what is kept has no address, time or path.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flambeau_capture.breaks import REASONS

from integration_tests.campaign.__main__ import warm
from integration_tests.campaign.program import Program
from integration_tests.campaign.serving import Conditions, answered
from integration_tests.campaign.verdicts import BAD
from integration_tests.conformance import builtin_types, library, special_methods, syntax
from integration_tests.conformance.construct import Construct

KEPT = Path(__file__).parent / "states.json"
ONE_GRAPH, BREAKS, WRONG = "one graph", "breaks", "wrong"
ORDER = (ONE_GRAPH, BREAKS, WRONG)
LIMIT = 60.0
State = dict[str, Any]


def constructs() -> Iterator[Construct]:
    """All rows, in the order of the page."""
    for part in (syntax, special_methods, builtin_types, library):
        yield from part.constructs()


def state_of(row: dict[str, Any]) -> State | None:
    """The state that one program's row of the campaign shows; None where eager has none."""
    if row["verdict"] == "not drawn":
        return None
    if row["verdict"] in BAD or row.get("kind") == "message":
        return {"state": WRONG, "why": [_steady(str(row.get("text") or row.get("where")))]}
    reasons = [_steady(text) for text in row.get("reasons", ())]
    if row.get("raised"):  # the end of the frame, by the program's own doing
        reasons = [text for text in reasons if not text.startswith("FB0010")]
    if reasons:
        return {"state": BREAKS, "why": list(dict.fromkeys(reasons))}
    return {"state": ONE_GRAPH, "why": []}


def _steady(text: str) -> str:
    """A reason without the title that its id stands for, the program's line, paths, addresses."""
    text = text.split(" / ")[0]
    id, _, rest = text.partition(" ")
    if id in REASONS:
        text = f"{id} {rest.removeprefix(REASONS[id].title + ': ')}"
    text = re.sub(r"<[^<>]*\b(line|program|function|setup|before)\b[^<>]*>", "<program>", text)
    text = re.sub(r"(?<=['\"])/[^'\"]*", "<path>", text)
    return re.sub(r"0x[0-9a-f]*", "0x", text).strip()


def joined(states: list[State]) -> State:
    """The worst of a construct's programs, with all that was met."""
    worst = max((state["state"] for state in states), key=ORDER.index)
    why = [text for state in states if state["state"] == worst for text in state["why"]]
    programs = [at for at, state in enumerate(states) if state["state"] != ONE_GRAPH]
    return {"state": worst, "why": list(dict.fromkeys(why)), "of": len(states), "not": programs}


def judged(wanted: list[Construct]) -> Iterator[tuple[Construct, Program, dict[str, Any]]]:
    """Every program's row. A crash or a hang of one is a row as others are."""
    made = {}
    for construct in wanted:
        for program in construct.programs():
            made[f"{construct.key} [{program.seed}]"] = construct, program
    warm(["language"])  # before the fork
    tasks = ({"label": label, "program": p.to_json()} for label, (_, p) in made.items())
    for task, row in answered(iter(tasks), 1, Conditions(limit=LIMIT)):
        yield *made[task["label"]], row


def states_of(wanted: list[Construct]) -> dict[str, State]:
    """States by key, in the order of the constructs; none of what no program could be drawn for."""
    found: dict[str, list[State]] = {}
    for construct, _, row in judged(wanted):
        state = state_of(row)
        if state is not None:
            found.setdefault(construct.key, []).append(state)
    return {c.key: joined(found[c.key]) for c in wanted if c.key in found}


def kept() -> dict[str, Any]:
    """What was kept: `python`, the version it is of, and `states`."""
    data: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return data


def keep(states: dict[str, State]) -> None:
    """Keep the states of this Python; of constructs that were not judged, what was kept."""
    known = kept()["states"] if KEPT.exists() else {}
    known = {**known, **states}
    states = {c.key: known[c.key] for c in constructs() if c.key in known}
    python = "{}.{}".format(*sys.version_info)
    lines = [f"  {json.dumps(key)}: {json.dumps(state)}" for key, state in states.items()]
    body = ",\n".join(lines)
    KEPT.write_text(f'{{"python": "{python}", "states": {{\n{body}\n}}}}\n', encoding="utf-8")
