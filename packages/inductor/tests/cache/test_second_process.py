"""A second process does not compile again; a broken library is built again, not loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
import flambeau_inductor, flambeau_prims, torch
from torch import fx

def function(x):
    return torch.tanh(x).sum(1)

x = torch.randn(31, 47)
graph = flambeau_prims.lower(fx.symbolic_trace(function), [x])
run = flambeau_inductor.compile(graph, [x])
torch.testing.assert_close(run([x])[0], function(x), rtol=1e-5, atol=1e-5)
print(json.dumps({"hit": run.report.cache_hit, "build": run.report.seconds["build"]}))
"""


def process(folder: Path, **environment: str) -> dict[str, object]:
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(folder), **environment}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a first process leaves."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    assert process(folder)["hit"] is False
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "cache"))


def test_the_second_process_does_not_compile(folder: Path):
    assert process(folder)["hit"] is True
    (library,) = folder.rglob("kernels.so")
    library.write_bytes(library.read_bytes()[:100])
    assert process(folder)["hit"] is False
    assert process(folder)["hit"] is True


def test_a_hit_needs_the_same_compiler(folder: Path, tmp_path: Path):
    other = tmp_path / "other-c++"
    other.write_text(
        '#!/bin/sh\ncase "$*" in --version) echo "another 1.0";; *) exec g++ "$@";; esac\n'
    )
    other.chmod(0o755)
    assert process(folder, CXX=str(other))["hit"] is False


def test_a_warm_start_needs_the_compiler_only_to_be_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The entry of one working directory serves another: paths of the sources are not in it."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert process(folder)["hit"] is True


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no users on this system")
def test_the_folder_is_private(filled: Path):
    assert filled.stat().st_mode & 0o777 == 0o700
    assert all(p.stat().st_mode & 0o022 == 0 for p in filled.rglob("*") if p.is_dir())
