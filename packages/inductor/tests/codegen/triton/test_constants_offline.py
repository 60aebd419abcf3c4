"""Functions with a constant among their operands, compiled for a GPU with none there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3]


@pytest.mark.sweep
def test_every_function_takes_a_constant() -> None:
    """A constant is one element, and the other operand a block: neither may lead.

    Of a dtype of each kind; of all with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`).
    """
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(PACKAGE), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "tests.codegen.triton.compile_constants", "90"],
        env=environment,
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["functions"] > 50
    assert report["refused"] == {}
