"""The tests of `within_torchs_own_compiler.py`, in a process of their own: torch's compiler changes
classes of torch, every optimizer among them, until the process ends.
"""

import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "within_torchs_own_compiler.py"


def test_in_a_process_of_their_own():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PROGRAMS)]
    done = subprocess.run(command, cwd=PROGRAMS.parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
