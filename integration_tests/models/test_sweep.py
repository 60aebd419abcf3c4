"""The model sweep on a few models of each family; `python -m integration_tests.sweep` has all."""

import argparse
import json
import os

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("timm", reason="timm is not installed")

from benchmarks.sweep import keep_costs, latest
from integration_tests.sweep.__main__ import choose, longest_first, run
from integration_tests.sweep.cases import Case, Subject, families
from integration_tests.sweep.forking import run_case
from integration_tests.sweep.judging import Counts, judge
from integration_tests.sweep.systems import captured
from integration_tests.sweep.tables import markdown
from integration_tests.sweep.transformers_models.recipes import RECIPES

SOME = {
    "torchvision": ("resnet18", "mobilenet_v3_small"),
    "timm": ("mobilevit_xs", "starnet_s1"),
    "transformers": ("GPT2Model", "T5Model", "ViTModel", "LlamaModel"),
}
MODES = ("inference", "training")


@pytest.mark.sweep(8)
@pytest.mark.parametrize(("family", "name"), [(f, n) for f, names in SOME.items() for n in names])
def test_a_model_is_one_graph_and_right(family, name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    cases = {case.name: case for case in families()[family](False)}
    if name not in cases:
        pytest.skip(f"{family} has no {name} in this version")
    subject = cases[name].build()
    for mode in MODES:
        verdict = judge(subject, mode == "training", captured("eager"))
        assert verdict.status == "one graph", (mode, verdict)


class Breaking(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x - 1


class Lying(torch.nn.Module):
    """Something else when it is compiled."""

    def forward(self, x):
        return x + 1 if torch.compiler.is_compiling() else x


def subject(module):
    return Subject(module, ({"x": torch.ones(3)}, {"x": -torch.ones(3)}))


def test_breaks_and_a_models_own_branch_are_told_apart():
    assert judge(subject(Breaking()), False, captured("eager")).status == "breaks"
    assert judge(subject(Lying()), False, captured("eager")).status == "own branch"


def test_a_wrong_system_is_found_out():
    def wrong(module):
        return lambda **inputs: module(**inputs) + 1e-3, Counts

    def broken(module):
        def call(**inputs):
            raise ValueError("no")

        return call, Counts

    assert judge(subject(Breaking()), False, broken).status == "crashed"
    assert judge(subject(Breaking()), False, wrong).status == "wrong"


@pytest.mark.parametrize(("seconds", "status"), [(60, "crashed"), (0.2, "not built")])
def test_a_child_that_dies_or_hangs_is_a_row(seconds, status):
    def build():
        if seconds > 1:
            os._exit(3)
        return torch.ones(1) if os.read(os.pipe()[0], 1) else None

    (row,) = run_case(Case("bad", "none", build), ["inference"], captured("eager"), seconds)
    assert row["status"] == status
    assert "| none | inference | 0 |" in markdown([row], "command")


def test_what_takes_long_begins_first(tmp_path):
    costs = tmp_path / "costs.json"
    keep_costs([{"name": "quick", "seconds": 2.0}, {"name": "slow", "seconds": 90.0}], costs)
    keep_costs([{"name": "quick", "seconds": 3.0}], costs)
    assert json.loads(costs.read_text()) == {"quick": 3.0, "slow": 90.0}
    cases = [Case(name, "none", dict) for name in ("quick", "new", "slow")]
    assert [case.name for case in longest_first(cases, costs)] == ["slow", "new", "quick"]


def test_a_sweep_that_was_cut_is_resumed(tmp_path, monkeypatch):
    cases = [Case(name, "torchvision", lambda: subject(Breaking())) for name in "abc"]
    monkeypatch.setattr("integration_tests.sweep.__main__.families", lambda: _only(cases))
    rows = tmp_path / "rows.jsonl"
    arguments = argparse.Namespace(
        family=["torchvision"], only=None, every=False, limit=2, part="1/1", skip=None, json=rows,
        resume=True, order=tmp_path / "none", modes=["inference"], timeout=60.0, jobs=2,
        seconds=None,
    )  # fmt: skip
    run(arguments, captured("eager"))
    assert sorted(row["name"] for row in latest([rows])) == ["a", "b"]
    arguments.limit = None
    assert [case.name for case in choose(arguments)] == ["c"]
    run(arguments, captured("eager"))
    assert [row["status"] for row in latest([rows])] == ["breaks"] * 3


def _only(cases):
    return {"torchvision": lambda every: cases}


def test_recipes_name_classes_and_draw_inputs():
    for name, recipe in RECIPES.items():
        drawn = recipe.draw()
        assert name.isidentifier() and drawn
        tensors = [value for value in drawn.values() if isinstance(value, torch.Tensor)]
        assert tensors and all(tensor.numel() for tensor in tensors), name
