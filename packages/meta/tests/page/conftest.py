import importlib.util
from pathlib import Path

import pytest

import flambeau

HERE = Path(__file__).parent


def load(name, place):
    spec = importlib.util.spec_from_file_location(name, place)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="session")
def chromium():
    made = load("flambeau_chromium", HERE / "chromium.py")
    if made.find() is None:
        pytest.skip("no chromium")
    return made


@pytest.fixture(scope="session")
def traced(tmp_path_factory):
    programs = load("flambeau_paged", HERE.parent / "tracing" / "programs.py")
    folder = tmp_path_factory.mktemp("trace")
    with flambeau.trace(folder):
        programs.run()
    return folder


@pytest.fixture(scope="session")
def page(traced):
    from flambeau.__main__ import main

    assert main(["report", str(traced)]) == 0
    return traced / "report.html"
