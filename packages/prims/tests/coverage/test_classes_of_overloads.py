"""The classification of ATen's overloads: nothing is left over, and each kind is what it says."""

import json

import pytest
import torch
from flambeau_prims.coverage import classify, is_inert, leaf_reason, survey
from flambeau_prims.coverage.__main__ import main
from flambeau_prims.coverage.leaves import LEAVES
from flambeau_prims.decomposition_choice import decompositions

aten = torch.ops.aten
SURVEY = survey()


def test_no_silent_rest():
    assert [item.op for item in SURVEY if item.kind == "rest"] == []
    assert len(SURVEY) == len({item.op for item in SURVEY}) > 3000


@pytest.mark.parametrize(
    ("op", "kind", "note"),
    [
        (aten.mul.Tensor, "prim twin", ""),
        (aten.gelu.default, "decomposed", ""),
        (aten.gelu_.default, "through functional form", "aten.gelu.default"),
        (aten._fused_adam_.default, "through functional form", "aten._fused_adam.default"),
        (aten.conv2d.default, "composite", ""),
        (aten.is_pinned.default, "inert", ""),
        (aten.poisson.default, "leaf", "random"),
        (aten.quantize_per_tensor.default, "leaf", "quantized"),
        (aten.upper.default, "scripting only", ""),
    ],
)
def test_kinds(op, kind, note):
    found = classify(op, decompositions(random="philox"))
    assert (found.kind, found.note) == (kind, note)


def test_a_missing_decomposition_shows():
    table = {k: v for k, v in decompositions().items() if k is not aten.gelu.default}
    assert classify(aten.gelu.default, table).kind == "rest"
    assert classify(aten.gelu_.default, table).kind == "rest"


def test_leaves_are_neither_unused_nor_inert():
    used = {item.note for item in SURVEY if item.kind == "leaf"}
    beside = {"other namespaces", "named dimensions"}  # met in programs, in older ATen
    assert {family.family for family in LEAVES} == used | beside
    assert leaf_reason("aten.poisson.default") and leaf_reason("aten.add.Tensor") is None
    assert is_inert("aten.sym_size.int") and not is_inert("aten.add.Tensor")


def test_command(capsys):
    assert main(["--strict"]) == 0
    assert "through functional form" in capsys.readouterr().out
    assert main(["--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["overloads"]["aten.gelu.default"] == ["decomposed", ""]
    assert main(["--kind", "inert"]) == 0
    assert "aten.is_pinned.default" in capsys.readouterr().out
