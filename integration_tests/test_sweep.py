"""The model sweep on a few models of each family; `python -m integration_tests.sweep` has all."""

import os

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("timm", reason="timm is not installed")

from integration_tests.sweep.cases import Case, Subject, families
from integration_tests.sweep.forking import run_case
from integration_tests.sweep.judging import Counts, judge
from integration_tests.sweep.systems import captured
from integration_tests.sweep.tables import markdown

SOME = {
    "torchvision": ("resnet18", "mobilenet_v3_small"),
    "timm": ("mobilevit_xs", "starnet_s1"),
    "transformers": ("GPT2Model", "T5Model", "ViTModel", "LlamaModel"),
}
MODES = ("inference", "training")


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
