"""Fixtures of the tests of the whole: a cache folder of their own, a torchvision that imports."""

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("FLAMBEAU_FAULTS", "raise")  # no test passes by falling back from a fault

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

BACKENDS = ("eager", "aot_eager", "aot_eager_prims", "inductor")


def pytest_configure(config):
    if config.getoption("dist", "no") != "no":
        return  # the process that those report to which run the tests
    # transformers imports torchvision where it finds one
    from importlib.util import find_spec

    if find_spec("torchvision") is not None:
        from benchmarks.zoo.torchvision_cpu import torchvision

        torchvision()


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory):
    """Kernels of the tests are kept for the session, apart from the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Every backend that is built in, in the order of the road."""
    return request.param


class Counting:
    """A backend that keeps the graphs it is given and runs them as they are."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return gm.forward


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def falls_back(monkeypatch):
    """For tests whose subject is what becomes of a fault: it runs eagerly, as it does for users."""
    monkeypatch.delenv("FLAMBEAU_FAULTS", raising=False)
