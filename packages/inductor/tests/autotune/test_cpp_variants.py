"""Choosing the forms of kernels: outcomes are kept, the budget holds, faults cost nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.autotune import Budget, Candidate, Tuner, cpp_variants
from flambeau_inductor.autotune.cpp_variants import RULED, Chosen, choose_forms
from flambeau_inductor.cache import open_values
from flambeau_inductor.codegen.cpp.toolchain import Toolchain, find_toolchain
from flambeau_inductor.ir.loops import Load, Loop, Store
from torch import Tensor, fx

from tests.autotune.test_benchmark import Told

ROWS, COLUMNS = 700, 600


def function(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


@lru_cache
def scheduled(shape: tuple[int, ...] = (ROWS, COLUMNS)) -> Any:
    """A compilation of `function`, as far as its program."""
    seen: list[Any] = []
    x = torch.randn(shape)
    gm = flambeau_prims.lower(fx.symbolic_trace(function), [x])
    flambeau_inductor.compile(
        gm, [x], options=Options(observer=lambda stage, work: seen.append(work))
    )
    return seen[-1]


def _renamed(loop: Loop, name: str) -> Loop:
    """The loop under another name, on buffers of other names."""
    body = tuple(
        replace(i, buffer=f"{name} {i.buffer}") if isinstance(i, Load | Store) else i
        for i in loop.body
    )
    return replace(loop, name=name, body=body)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def fastest(monkeypatch: pytest.MonkeyPatch) -> str:
    """The form that is said to be the fastest of all; nothing is built."""
    best = "accumulators_2"
    for shape in ((ROWS, COLUMNS), (2 * ROWS, COLUMNS), (30, 500)):
        scheduled(shape)

    def candidates(race: Any, *others: object) -> Sequence[Candidate]:
        return [
            Candidate(name, lambda name=name: 1.0 if name == best else 2.0)  # type: ignore[misc]
            for name in race.forms
        ]

    monkeypatch.setattr(cpp_variants, "_candidates", candidates)
    monkeypatch.setattr(Toolchain, "build", lambda toolchain, text, where: where)
    return best


def chosen(work: Any, folder: Path, clock: Told, seconds: float = 60.0, **changes: Any) -> Chosen:
    values = open_values(str(folder), "autotune")
    layouts = {b.name: b.layout for b in work.scheduled().buffers}
    toolchain = replace(find_toolchain(), **changes)
    made = choose_forms(work.loops(), layouts, Tuner(values, clock, Budget(seconds)), toolchain)
    made.words |= {"faults": " ".join(values.faults)} if values.faults else {}
    return made


def test_the_fastest_is_taken_and_kept(folder: Path, fastest: str) -> None:
    work, clock = scheduled(), Told()
    first = chosen(work, folder, clock)
    ((loop, form),) = first.forms.items()
    assert form.accumulators == 2 and clock.samples > 0
    assert first.words[loop].startswith(fastest)
    assert f"{fastest} takes 0.50 of the time of {RULED}" in first.words[loop]
    again = Told()
    assert chosen(work, folder, again) == first
    assert again.samples == 0


def test_without_time_the_rules_stand_and_nothing_is_kept(folder: Path, fastest: str) -> None:
    work, clock = scheduled(), Told()
    made = chosen(work, folder, clock, seconds=0.0)
    assert made.forms == {} and clock.samples == 0
    (told,) = made.words.values()
    assert "no time was left" in told
    assert chosen(work, folder, clock).forms != {}


def test_the_budget_is_for_building_too(
    folder: Path, fastest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    built: list[object] = []

    def slow(toolchain: object, text: str, where: Path) -> Path:
        built.append(text)
        now[0] += 10.0
        return where

    work, other = scheduled(), scheduled((2 * ROWS, COLUMNS))
    (loop,) = work.loops()
    loops = [loop, *(_renamed(each, "other") for each in other.loops())]
    layouts = {f"other {b.name}": b.layout for b in other.scheduled().buffers}
    layouts |= {b.name: b.layout for b in work.scheduled().buffers}
    monkeypatch.setattr(Toolchain, "build", slow)
    monkeypatch.setattr(cpp_variants.os, "cpu_count", lambda: 1)
    budget = Budget(5.0, now=lambda: now[0])
    tuner = Tuner(open_values(str(folder), "autotune"), Told(), budget)
    made = choose_forms(loops, layouts, tuner, find_toolchain())
    assert len(built) == 1 and made.forms == {}
    assert sorted(made.words) == sorted([loop.name, "other"])


def test_a_broken_choice_is_said_and_made_anew(folder: Path, fastest: str) -> None:
    work = scheduled()
    first = chosen(work, folder, Told())
    (kept,) = folder.rglob("value.json")
    kept.chmod(0o600)
    kept.write_text(kept.read_text()[:9])
    clock = Told()
    second = chosen(work, folder, clock)
    assert second.forms == first.forms and clock.samples > 0
    assert "broken" in second.words["faults"]
    assert chosen(work, folder, Told()) == first


def test_a_choice_that_is_offered_no_more_is_made_anew(folder: Path, fastest: str) -> None:
    work = scheduled()
    chosen(work, folder, Told())
    (kept,) = folder.rglob("value.json")
    values = open_values(str(folder), "autotune")
    asked = json.loads((kept.parent / "key.json").read_text())["parts"]["asked"]
    assert values.put(asked, {"winner": "no such form", "seconds": {}})
    clock = Told()
    assert chosen(work, folder, clock).forms != {} and clock.samples > 0


def test_what_cannot_be_built_is_said(folder: Path) -> None:
    made = chosen(scheduled(), folder, Told(), compiler="/bin/false")
    assert made.forms == {}
    (told,) = made.words.values()
    assert told.startswith(RULED) and "cannot be built" in told


def test_loops_over_little_memory_are_not_asked(folder: Path, fastest: str) -> None:
    assert chosen(scheduled((30, 500)), folder, Told()) == Chosen()


def test_compiling_measures_and_reports(folder: Path, tmp_path: Path) -> None:
    x = torch.randn(ROWS, COLUMNS)
    gm = flambeau_prims.lower(fx.symbolic_trace(function), [x])
    options = Options(
        max_autotune=True,
        autotune_seconds=1e4,  # a busy machine is to measure, too
        cache_dir=str(folder),
        debug_dir=str(tmp_path / "debug"),
    )
    compiled = flambeau_inductor.compile(gm, [x], options=options)
    torch.testing.assert_close(compiled([x])[0], function(x))
    (told,) = compiled.report.chosen.values()
    assert "of the time of" in told and told in str(compiled.report)
    (report,) = (tmp_path / "debug").rglob("report.json")
    assert json.loads(report.read_text())["chosen"] == dict(compiled.report.chosen)
    again = flambeau_inductor.compile(gm, [x], options=options)
    assert again.report.chosen == compiled.report.chosen
    assert again.report.sources == compiled.report.sources


@pytest.mark.parametrize("changes", [{"deterministic": True}, {"max_autotune": False}])
def test_unasked_nothing_is_measured(folder: Path, changes: dict[str, Any]) -> None:
    x = torch.randn(ROWS, COLUMNS)
    gm = flambeau_prims.lower(fx.symbolic_trace(function), [x])
    options = Options(**{"max_autotune": True, "cache_dir": str(folder), **changes})
    assert flambeau_inductor.compile(gm, [x], options=options).report.chosen == {}
    assert not list(folder.rglob("value.json"))
