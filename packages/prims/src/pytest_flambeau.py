"""A pytest plugin: `pytest --flambeau-backend mypkg:backend` holds a backend to the dialect.

In: pytest's options. Out: with the option, the kit's tests, alone or with the paths given.
Invariant: without the option nothing of `flambeau_prims`, nor torch, is imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Pytest hook: the options."""
    group = parser.getgroup("flambeau", "conformance to the primitives of flambeau")
    group.addoption("--flambeau-backend", metavar="MODULE:FUNCTION", help="the backend to test")
    group.addoption(
        "--flambeau-family", action="append", metavar="NAME", help="a family of primitives"
    )
    group.addoption("--flambeau-seed", type=int, default=0, metavar="N")
    group.addoption(
        "--flambeau-graphs", type=int, default=50, metavar="N", help="how many random graphs"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Pytest hook: the kit's tests join what is collected, or are all if no path was given."""
    if not config.getoption("flambeau_backend"):
        return
    spec = find_spec("flambeau_prims")
    if spec is None or spec.origin is None:
        raise RuntimeError("--flambeau-backend needs flambeau-prims")
    suite = Path(spec.origin).parent / "conformance" / "suite.py"
    given = config.args_source is config.ArgsSource.ARGS
    config.args[:] = [*(config.args if given else []), str(suite)]
