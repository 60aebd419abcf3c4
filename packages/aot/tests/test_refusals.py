"""The table of refusals: each row is raised, and what is raised names a row with its facts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot import errors
from flambeau_aot.refusals import refusals

SOURCES = Path(aot.__file__).parent
REFUSING = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, (errors.Unsupported, errors.TraceError))
} | {"DoubleBackwardError"}


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield str(path.relative_to(SOURCES)), node


def test_nothing_is_refused_without_a_row() -> None:
    made = [
        f"{path}:{node.lineno}"
        for path, node in calls()
        if isinstance(node.func, ast.Name)
        and node.func.id in REFUSING
        and any(isinstance(each, (ast.Constant, ast.JoinedStr)) for each in node.args)
    ]
    assert made == []


def test_every_row_is_raised() -> None:
    text = "".join(p.read_text() for p in SOURCES.rglob("*.py") if p.name != "refusals.py")
    assert set(re.findall(r'"(AO\d{4})"', text)) == set(refusals())


@pytest.mark.parametrize("id", refusals())
def test_ids_are_in_order(id: str) -> None:
    assert list(refusals()).index(id) + 1 == int(id.removeprefix("AO"))
    assert refusals()[id].message


def test_each_raise_has_the_facts_of_its_row() -> None:
    for path, node in calls():
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name not in ("refusal", "_refusal") or not node.args:
            continue
        if not isinstance(node.args[0], ast.Constant) or None in (k.arg for k in node.keywords):
            continue
        row = refusals()[node.args[0].value]
        given = {str(keyword.arg) for keyword in node.keywords}
        wanted = set(re.findall(r"\{(\w+)", row.message + row.remedy))
        assert given == wanted, (path, node.lineno, row.id)


def test_an_error_says_its_id() -> None:
    x = torch.zeros(3).expand(2, 3)
    with pytest.raises(aot.Unsupported) as raised:
        aot.aot_function(lambda x: x[0].add_(1), aot.run_as_is)(x)
    assert raised.value.id in refusals()
    assert str(raised.value).startswith(f"{raised.value.id}: ")
    assert aot.AotError("no refusal").id == ""
