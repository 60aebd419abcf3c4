"""The debug folder holds every stage's product, also of a compile that fails."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import CompilerFailed, Options
from torch import fx


def graph(inputs: list[torch.Tensor]) -> fx.GraphModule:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.relu(x @ w), -1)

    return flambeau_prims.lower(fx.symbolic_trace(function), inputs)


FILES = [
    "0_graph.txt",
    "1_rewritten.txt",
    "2_before_fusion.txt",
    "2_pass_0_materialize.txt",
    "2_pass_1_fuse.txt",
    "3_after_fusion.txt",
    "3_fused.svg",
    "3_merged.txt",
    "3_pass_11_plan_lifetimes.txt",
    "3_refused.txt",
    "4_kernels.cpp",
    "5_wrapper.py",
    "6_bench.py",
    "6_kernels.json",
    "6_kernels.so",
]


def test_every_stage_leaves_its_product(tmp_path: Path):
    inputs = [torch.randn(5, 6), torch.randn(6, 7)]
    for _ in range(2):
        options = Options(debug_dir=str(tmp_path))
        compiled = flambeau_inductor.compile(graph(inputs), inputs, options=options)
    first, second = sorted(tmp_path.iterdir())
    assert first.name.startswith("graph-") and first != second
    assert sorted(p.name for p in first.iterdir()) == [*FILES, "report.json"]
    assert "flambeau_prims.mm.default" in (first / "0_graph.txt").read_text()
    assert "float32[5, 7] strides [7, 1]" in (first / "0_graph.txt").read_text()
    unfused, fused = (
        (first / name).read_text() for name in ("2_before_fusion.txt", "3_after_fusion.txt")
    )
    assert unfused.count("    loop ") > fused.count("    loop ") == compiled.report.kernels
    assert (first / "4_kernels.cpp").read_text() == compiled.report.sources["kernels.cpp"]
    ast.parse((first / "5_wrapper.py").read_text())
    assert json.loads((first / "report.json").read_text())["externs"] == {"aten.mm.out": 1}


def test_the_environment_asks_for_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FLAMBEAU_DEBUG_DIR", str(tmp_path / "here"))
    inputs = [torch.randn(5, 6), torch.randn(6, 7)]
    flambeau_inductor.compile(graph(inputs), inputs)
    assert len(list((tmp_path / "here").iterdir())) == 1


def test_a_compile_that_fails_leaves_what_came_before(tmp_path: Path):
    broken = tmp_path / "c++"
    broken.write_text('#!/bin/sh\ncase "$*" in *-c*) exit 1;; esac\nexec g++ "$@"\n')
    broken.chmod(0o755)
    inputs = [torch.randn(5, 6), torch.randn(6, 8)]
    options = Options(
        debug_dir=str(tmp_path / "out"), compiler=str(broken), cache_dir=str(tmp_path / "cache")
    )
    with pytest.raises(CompilerFailed):
        flambeau_inductor.compile(graph(inputs), inputs, options=options)
    (folder,) = (tmp_path / "out").iterdir()
    assert sorted(p.name for p in folder.iterdir()) == FILES[:-4]


def test_the_users_lines_are_shown(tmp_path: Path):
    x = torch.randn(4)
    made = fx.Graph()
    node = made.placeholder("x")
    node.meta["val"] = x
    called = made.call_function(torch.ops.flambeau_prims.exp.default, (node,))
    called.meta["stack_trace"] = '  File "model.py", line 12, in forward\n    return x.exp()\n'
    made.output((called,))
    module = fx.GraphModule(torch.nn.Module(), made)
    flambeau_inductor.compile(module, [x], options=Options(debug_dir=str(tmp_path)))
    (folder,) = tmp_path.iterdir()
    text = (folder / "0_graph.txt").read_text()
    assert '# File "model.py", line 12, in forward\n# return x.exp()\n' in text
