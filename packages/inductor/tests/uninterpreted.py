"""Programs in a process where Triton's interpreter is off: they compile kernels, with no GPU there.

In: arguments of Python. Out: what the program prints. Invariant: one that fails fails the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def run(*arguments: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(PACKAGE), *sys.path])
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, env=environment, cwd=PACKAGE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
