"""The picture, the passes, and the kernels that run alone; NaN is found where it comes about."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from torch import Tensor, fx


def function(x: Tensor, w: Tensor, rows: Tensor) -> Tensor:
    hidden = torch.log_softmax(x @ w, -1)[rows] * 1.0
    return torch.relu(hidden) + hidden.sum(-1, keepdim=True)


def _inputs() -> list[Tensor]:
    return [torch.randn(32, 16), torch.randn(16, 300), torch.randint(0, 32, (8,))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("debug")
    gm = flambeau_prims.lower(fx.symbolic_trace(function), _inputs())
    flambeau_inductor.compile(gm, _inputs(), options=Options(debug_dir=str(parent)))
    (made,) = parent.iterdir()
    return made


def test_the_picture_has_a_box_for_every_step(folder: Path) -> None:
    root = ElementTree.parse(folder / "3_fused.svg").getroot()
    boxes = [e for e in root if e.tag.endswith("rect")]
    lines = (folder / "5_wrapper.py").read_text().splitlines()
    steps = sum(line.startswith(("    kernel", "    aten_", "    check_index")) for line in lines)
    assert len(boxes) == steps > 2
    assert any(e.tag.endswith("path") for e in root)


def test_every_pass_that_did_something_shows_the_graph_after_it(folder: Path) -> None:
    shown = sorted(p.name for p in folder.glob("1_pass_*.txt"))
    assert shown
    last = (folder / shown[-1]).read_text().split("\n", 1)[1]
    assert last == (folder / "1_rewritten.txt").read_text()


def test_merges_and_refusals_are_told_with_reasons(folder: Path) -> None:
    assert (folder / "3_merged.txt").read_text()
    for line in (folder / "3_refused.txt").read_text().splitlines():
        assert "reason=" in line


def test_kernels_run_alone_and_say_how_fast_they_are(folder: Path) -> None:
    before = json.loads((folder / "6_kernels.json").read_text())
    assert before and all(k["seconds"] is None and k["bytes"] > 0 for k in before)
    done = subprocess.run(
        [sys.executable, str(folder / "6_bench.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("GB/s") == len(before)
    after = json.loads((folder / "6_kernels.json").read_text())
    assert all(k["seconds"] > 0 for k in after)


def test_the_first_nan_is_named() -> None:
    def poisonous(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(torch.log(x) @ w) + 1

    inputs = [torch.ones(4, 4), torch.ones(4, 4)]
    gm = flambeau_prims.lower(fx.symbolic_trace(poisonous), inputs)
    looked = flambeau_inductor.compile(gm, inputs, options=Options(check_values=True))
    torch.testing.assert_close(looked(list(inputs))[0], poisonous(*inputs))
    with pytest.raises(FloatingPointError, match=r"4 of 16 elements are NaN after loop0 \(log"):
        looked([torch.tensor([[-1.0, 1, 1, 1]]).repeat(4, 1), inputs[1]])
