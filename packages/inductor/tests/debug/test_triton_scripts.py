"""Triton kernels as scripts that run alone, under the interpreter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import flambeau_inductor, flambeau_prims, torch
from flambeau_inductor import Options
from torch import fx

def function(x, w, words):
    again = torch.softmax(torch.softmax(x, -1) @ w, -1) @ w
    return again[words].sum(0)

inputs = [torch.randn(8, 64), torch.randn(64, 64), torch.zeros(3, dtype=torch.int64)]
gm = flambeau_prims.lower(fx.symbolic_trace(function), inputs)
options = Options(debug_dir=sys.argv[1], kernels="triton")
flambeau_inductor.compile(gm, inputs, options=options)
"""
INTERPRETED = {**os.environ, "TRITON_INTERPRET": "1"}


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, *command]
    return subprocess.run(line, env=INTERPRETED, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("debug")
    done = _run("-c", PROGRAM, str(parent))
    assert done.returncode == 0, done.stderr
    (made,) = parent.iterdir()
    return made


def test_each_kernel_is_a_script_once(folder: Path) -> None:
    facts = json.loads((folder / "6_gpu_kernels.json").read_text())
    scripts = {p.name for p in folder.glob("6_gpu_loop*.py")}
    assert scripts == {f"6_gpu_{each['function']}.py" for each in facts}
    assert len(scripts) < len(facts)  # both softmaxes are one kernel
    assert all(each["bytes"] > 0 and each["seconds"] is None for each in facts)


def test_a_script_tells_the_kernel_beside_a_copy(folder: Path) -> None:
    script = min(folder.glob("6_gpu_loop*.py"))
    done = _run(str(script))
    assert done.returncode == 0, done.stderr
    assert re.search(r"loop0 x2 .* us .* GB/s .* % of a copy .* us lost", done.stdout)


def test_a_script_that_was_changed_runs_as_it_is(folder: Path, tmp_path: Path) -> None:
    script = min(folder.glob("6_gpu_loop*.py"))
    changed = tmp_path / script.name
    name = script.stem.removeprefix("6_gpu_")
    changed.write_text(re.sub(rf"(def {name}\(.*\):\n)", r"\1    changed\n", script.read_text()))
    done = _run(str(changed))
    assert done.returncode != 0 and "changed" in done.stderr


def test_all_are_a_table_those_first_that_lose_most(folder: Path) -> None:
    done = _run(str(folder / "6_gpu_bench.py"))
    assert done.returncode == 0, done.stderr
    lost = [float(found) for found in re.findall(r"([\d.]+) us lost", done.stdout)]
    facts = json.loads((folder / "6_gpu_kernels.json").read_text())
    assert len(lost) == len({each["function"] for each in facts}) > 1
    assert lost == sorted(lost, reverse=True)
    assert all(each["seconds"] > 0 for each in facts)


def test_a_kernel_that_is_not_there_is_named(folder: Path) -> None:
    done = _run(str(folder / "6_gpu_bench.py"), "loop99")
    assert done.returncode == 1 and "no kernel is called loop99; there are loop0" in done.stderr
