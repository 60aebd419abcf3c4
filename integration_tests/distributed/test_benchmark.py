"""The benchmark of several ranks runs: every way to wrap, eager and compiled, on two of gloo."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "distributed.py"


def test_every_way_to_wrap_is_measured(tmp_path):
    out = tmp_path / "out.json"
    arguments = ["--ranks", "2", "--size", "tiny", "--steps", "3", "--systems", "eager,flambeau"]
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments, "--json", str(out)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = json.loads(out.read_text())["rows"]
    wraps = dict.fromkeys(row["wrap"] for row in rows)
    assert len(wraps) == 5
    assert len(rows) == 2 * len(wraps)
    for row in rows:
        assert row["error"] is None, row
        assert row["step"] > 0
        assert row["loss_distance"] < 1e-4, row
