"""A plugin of pytest that makes long test runs cost less: `pytest -p tools.testing`.

In: a process that has collected its tests. Out: the same process, with less to do beside them.
Invariant: no test sees the difference; each passes without the plugin, too.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # `tools`, where pytest is started elsewhere

from tools import starting

gc.disable()  # until all is imported: nothing of it is garbage
programs = starting.Programs()


def run(command: Any, **choices: Any) -> Any:
    """In the place of `subprocess.run`: the same, sooner."""
    return programs.run(command, **choices)


def pytest_configure() -> None:
    """Pytest hook: programs that tests start need not import torch each."""
    if sys.platform == "linux" and importlib.util.find_spec("torch") is not None:
        subprocess.run = run  # type: ignore[assignment]


def pytest_unconfigure() -> None:
    """Pytest hook: those that start them end with the tests."""
    subprocess.run = starting.as_it_is
    programs.close()


def pytest_collection_finish() -> None:
    """Pytest hook: what is here now, a few million objects of torch's and of thousands of tests,
    stays until the end: the garbage collector does not go through it again and again.

    pytest listens to every logger that keeps its records to itself. Torch's trace is one, and
    writes two tracebacks for every symbol as soon as somebody listens.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    logging.getLogger("torch.__trace").propagate = True
