"""Minifier: the graph of a script, shrunk while it still fails.

In: a script. Out: a smaller script beside it. Invariant: a graph that ends the process is run in a
process of its own, each time.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import fx

from flambeau.repro.check import GraphCheck, GraphFailure
from flambeau.repro.function_text import CannotWrite
from flambeau.repro.script import Script, read_script, write_script
from flambeau.repro.shrink import shrink

SECONDS = 120.0


def minify(path: Path, most_tests: int = 400) -> Script | None:
    """Write `NAME_min.py` beside a script; None where its graph does not fail (any more)."""
    kind = re.search(r"^FAILURE = '(\w+)'", path.read_text(encoding="utf-8"), re.MULTILINE)
    if kind is None:
        raise CannotWrite(f"{path} holds no graph that fails (one of calls is short already)")
    gm, inputs, backend = read_script(path)
    ends = kind.group(1) == "ended"
    test = _IsolatedRun(backend) if ends else GraphCheck(backend, accuracy=kind.group(1) == "wrong")
    smaller = shrink(gm, inputs, test, most_tests)
    if smaller is None:
        return None
    place = path.with_name(f"{path.stem}_min.py")
    return write_script(place, smaller.gm, smaller.inputs, smaller.failure, backend, test)


class _IsolatedRun:
    """Runs a graph's script in another process; it fails where a signal ends that."""

    def __init__(self, backend: str | Callable[..., Any]) -> None:
        self.backend = backend

    def __call__(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> GraphFailure | None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "candidate.py"
            write_script(path, gm, inputs, GraphFailure("ended", ""), self.backend)
            command = [sys.executable, str(path)]
            done = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)
        if done.returncode >= 0:
            return None
        return GraphFailure("ended", f"the process ended by signal {-done.returncode}")
