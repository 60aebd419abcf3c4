"""Programs that run in processes of their own, one after the other, with one cache."""

import json
import os
import subprocess
import sys

import pytest
from flambeau_inductor.kernels import generate


@pytest.fixture(autouse=True)
def no_headers(monkeypatch):
    """No thread precompiles a header beside, whose entry would come at any moment."""
    monkeypatch.setattr(generate._PrecompiledHeader, "make", lambda self: None)


@pytest.fixture
def twice(tmp_path):
    """A function: what a program prints as JSON on its last line, cold and warm."""

    def run(program):
        env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache")}
        env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        found = []
        for _ in range(2):
            command = [sys.executable, "-c", program]
            done = subprocess.run(command, env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
            found.append(json.loads(done.stdout.splitlines()[-1]))
        return found

    return run
