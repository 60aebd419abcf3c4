"""A plugin of pytest that makes long test runs cost less, and alike: `pytest -p tools.testing`.

In: a process that collects tests and runs them. Out: the same process, with less to do beside them,
whose random numbers depend on a seed and on the test alone, not on what ran before it; of a sweep
a slice runs.
Invariant: no test sees the difference; each passes without the plugin, too.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import importlib.util
import logging
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # `tools`, where pytest is started elsewhere

from tools import built_once, costs, starting

gc.disable()  # until all is imported: nothing of it is garbage
BUILDS = "FLAMBEAU_TEST_BUILDS"
own = None if os.environ.get(BUILDS) else tempfile.TemporaryDirectory(prefix="flambeau-tests-")
builds = Path(os.environ.setdefault(BUILDS, own.name if own else ""))
"""What a compiler made, by what it was given, and processes that fork: of all tests of a run."""
programs = starting.Programs(builds)
GIVEN = os.environ.get("FLAMBEAU_TEST_SEED") or None
SEED = int(GIVEN or 0)
WHOLE = os.environ.get("FLAMBEAU_SWEEPS") == "1"
slices: dict[str, str] = {}
seconds_of: dict[str, float] = {}
HAS = {
    name: importlib.util.find_spec(name) is not None for name in ("numpy", "torch", "hypothesis")
}


def run(command: Any, **choices: Any) -> Any:
    """In the place of `subprocess.run`: the same, sooner."""
    return built_once.run(builds, command, programs.run, **choices)


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
    """Pytest hook: those that start programs end with the folder."""
    subprocess.run = starting.as_it_is
    if note_collection in gc.callbacks:
        gc.callbacks.remove(note_collection)
    if own is not None:
        del os.environ[BUILDS]
        own.cleanup()


def pytest_collection_finish() -> None:
    """Pytest hook: what is here now, a few million objects of torch's and of thousands of tests,
    stays until the end: the garbage collector does not go through it again and again.

    pytest listens to every logger that keeps its records to itself. Torch's trace is one, and
    writes two tracebacks for every symbol as soon as somebody listens.
    """
    if "torch" in sys.modules:
        without_stacks()
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.callbacks.append(note_collection)
    logging.getLogger("torch.__trace").propagate = True


#: seconds of the processor, from which on a collection of everything is long
LONG = 0.02
collecting = {"since": 0.0, "took": 0.0}


def note_collection(phase: str, info: dict[str, int]) -> None:
    """Callback of the garbage collector: how long the last collection of everything took."""
    if info["generation"] == 2:
        now = time.thread_time()
        collecting["since" if phase == "start" else "took"] = (
            now if phase == "start" else now - collecting["since"]
        )


def keep_what_stays() -> None:
    """After a long collection, what it has left is not gone through again: caches, modules that
    tests have loaded, what pytest keeps of each. A test's own objects come after this."""
    if collecting["took"] > LONG:
        gc.freeze()
        collecting["took"] = 0.0


def without_stacks() -> None:
    """torch writes down the stack, sixty frames under pytest, where a program sets a seed (once for
    each kind of device that is not there) and where a fake mode is made: for errors of its own. Its
    database of operations looks there, at each list of samples, for a test of unittest's."""
    import torch._subclasses.fake_tensor  # here: it is not installed everywhere
    import torch.mtia
    import torch.xpu

    none = {"format_stack": list, "extract_stack": traceback.StackSummary}
    for module in (torch.cuda, torch.xpu, torch.mtia, torch._subclasses.fake_tensor):
        module.traceback = types.SimpleNamespace(**vars(traceback) | none)  # type: ignore[attr-defined]
    tools_of_tests = sys.modules.get("torch.testing._internal.common_utils")
    if "flambeau_prims.sweep.database" in sys.modules:
        tools_of_tests = sys.modules["flambeau_prims.sweep.database"].tools_of_tests()
    if tools_of_tests is not None:
        tools_of_tests.extract_test_fn = lambda: None  # type: ignore[attr-defined]


# --- what tests cost ---------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Pytest hook: the processor's seconds of a test, its fixtures and the processes it starts."""
    before = costs.seconds() + programs.seconds
    seconds_of.setdefault("before the first test", before)
    done = yield
    seconds_of[name_of(item)] = costs.seconds() + programs.seconds - before
    return done


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Pytest hook: kept where FLAMBEAU_TEST_COSTS names a folder."""
    if costs.FOLDER in os.environ and seconds_of:
        costs.keep(Path(os.environ[costs.FOLDER]), seconds_of)


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
    seed("collection", name_of(collector))
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Pytest hook: what a test and its fixtures draw depends on its name."""
    keep_what_stays()
    seed("test", name_of(item))


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
    given = number_of(*names)
    random.seed(given)
    if HAS["numpy"]:
        import numpy  # here, and torch: not installed everywhere

        numpy.random.seed(given)
    if HAS["torch"]:
        import torch

        torch.default_generator.manual_seed(given)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(given)


def number_of(*names: str) -> int:
    """A number of 32 bits that depends on `SEED` and on names, in every process the same."""
    text = "\0".join((str(SEED), *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


def name_of(node: pytest.Item | pytest.Collector) -> str:
    """Its place in the repository, whatever folder pytest's own names begin at."""
    return f"{_place_of(node.path)}::{node.nodeid.partition('::')[2]}"


@functools.cache
def _place_of(path: Path) -> str:
    return os.path.relpath(path, ROOT)


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


# --- slices of sweeps -----------------------------------------------------------------------------


MOST = 20
"""Cases of a product of kinds that all run, marked or not."""
TIMES, FEWEST = 2, 12
"""Of a larger one: how often a kind is among those that run, and how many do."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Pytest hook: of a family marked `sweep(n)` one case in n runs, and one at least; of a product
    of kinds that has no mark, those that show a kind for the first time or the second. All where
    FLAMBEAU_SWEEPS is set or a test is called by its name.

    The hash of a case's name and the seed choose, first among what shows a kind that none before it
    does: a new case leaves most others where they are, and another seed runs others.
    """
    families: defaultdict[tuple[str, int | None], list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("sweep")
        if mark is None or mark.args:
            families[name_of(item).partition("[")[0], mark and mark.args[0]].append(item)
    taken, left = 0, set[pytest.Item]()
    for (_, one_in), family in families.items():
        number = taken_of(family, one_in)
        if len(number) < len(family) or one_in:
            taken, left = taken + len(number), left.union(family).difference(number)
    yield
    if WHOLE or config.option.keyword or any("::" in given for given in config.args):
        return
    left &= set(items)
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=list(left))
    if left:
        told = getattr(config, "workeroutput", slices)  # of a process beside others, or this one's
        told["slices"] = f"{taken} and left {len(left)}"


def taken_of(family: list[pytest.Item], one_in: int | None) -> list[pytest.Item]:
    """The cases that run. A product that is not marked is marked here, for who asks for sweeps."""
    if one_in is not None:
        first, others = spread(family, 1)
        return (first + others)[: math.ceil(len(family) / one_in)]
    if len(family) <= MOST:
        return family
    first, others = spread(family, TIMES)
    if not others:
        return family
    for item in family:
        item.add_marker("sweep")
    return (first + others)[: max(FEWEST, len(first))]


def spread(family: list[pytest.Item], times: int) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Cases in the order of their hashes: those with a kind that fewer than so many before have,
    and the others."""
    seen: Counter[tuple[str, object]] = Counter()
    orders: tuple[list[pytest.Item], list[pytest.Item]] = [], []
    for item in sorted(family, key=lambda item: number_of("slice", name_of(item))):
        values = item.callspec.params.items()  # type: ignore[attr-defined]
        kinds = {(name, one if isinstance(one, str) else id(one)) for name, one in values}
        orders[all(seen[kind] >= times for kind in kinds)].append(item)
        seen.update(kinds)
    return orders


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hook of pytest-xdist: every process collects the same."""
    slices["slices"] = getattr(node, "workeroutput", {}).get("slices", "")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Pytest hook: how much of the sweeps ran."""
    if slices.get("slices"):
        terminalreporter.write_line(f"sweeps: took {slices['slices']} cases to FLAMBEAU_SWEEPS=1")
