"""The benchmark of several ranks runs, eager and compiled, on two of gloo."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "programs" / "distributed.py"


WRAPS = ("ddp of compiled", "fsdp2", "tp")


def test_ways_to_wrap_are_measured(tmp_path):
    out = tmp_path / "out.json"
    arguments = ["--ranks", "2", "--size", "tiny", "--steps", "3", "--systems", "eager,flambeau"]
    arguments += ["--wraps", ",".join(WRAPS)]
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments, "--json", str(out)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = json.loads(out.read_text())["rows"]
    assert tuple(dict.fromkeys(row["wrap"] for row in rows)) == WRAPS
    assert len(rows) == 2 * len(WRAPS)
    for row in rows:
        assert row["error"] is None, row
        assert row["step"] > 0
        assert row["loss_distance"] < 1e-4, row
