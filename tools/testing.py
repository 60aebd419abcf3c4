"""A plugin of pytest that makes long test runs cost less, and alike: `pytest -p tools.testing`.

In: a process that collects tests and runs them. Out: the same process, with less to do beside them,
whose random numbers depend on a seed and on the test alone, not on what ran before it.
Invariant: no test sees the difference; each passes without the plugin, too.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib.util
import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # `tools`, where pytest is started elsewhere

from tools import starting

gc.disable()  # until all is imported: nothing of it is garbage
programs = starting.Programs()
GIVEN = os.environ.get("FLAMBEAU_TEST_SEED")
SEED = int(GIVEN or 0)
HAS = {
    name: importlib.util.find_spec(name) is not None for name in ("numpy", "torch", "hypothesis")
}


def run(command: Any, **choices: Any) -> Any:
    """In the place of `subprocess.run`: the same, sooner."""
    return programs.run(command, **choices)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Pytest hook: programs that tests start need not import torch each; hypothesis' own seed."""
    if sys.platform == "linux" and HAS["torch"]:
        subprocess.run = run  # type: ignore[assignment]
    if HAS["hypothesis"] and GIVEN is None:
        from hypothesis import settings  # here: it is not installed everywhere

        settings.register_profile("alike", derandomize=True)
        settings.load_profile("alike")
    elif HAS["hypothesis"] and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = GIVEN


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


# --- random numbers -------------------------------------------------------------------------------


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Pytest hook: the seed by which a failure can be drawn again, quiet or not."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        terminal.write_line(f"random numbers: FLAMBEAU_TEST_SEED={SEED}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Pytest hook: what a module draws while it is imported depends on its path, in any process."""
    seed("collection", collector.nodeid)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Pytest hook: what a test and its fixtures draw depends on its name."""
    seed("test", item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[Any]:
    """Pytest hook: what a fixture of several tests draws does not depend on which of them is first.

    Nor do the first test's own numbers depend on the fixture's having been there already."""
    if fixturedef.scope == "function":
        return (yield)
    with as_before():
        seed("fixture", fixturedef.baseid, fixturedef.argname, str(request.param_index))
        return (yield)


def seed(*names: str) -> None:
    """Seeds the global generators by `SEED` and names."""
    text = "\0".join((str(SEED), *names))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
    random.seed(number)
    if HAS["numpy"]:
        import numpy  # here, and torch: not installed everywhere

        numpy.random.seed(number)
    if HAS["torch"]:
        import torch

        torch.default_generator.manual_seed(number)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(number)


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """Whatever is drawn inside, the global generators go on where they were."""
    kept: list[tuple[Callable[[Any], object], Any]] = [(random.setstate, random.getstate())]
    if HAS["numpy"]:
        import numpy

        kept.append((numpy.random.set_state, numpy.random.get_state()))
    if HAS["torch"]:
        import torch

        kept.append((torch.set_rng_state, torch.get_rng_state()))
    try:
        yield
    finally:
        for put_back, state in kept:
            put_back(state)
