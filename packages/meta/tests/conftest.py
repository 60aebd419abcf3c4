"""What the tests compile goes to a folder of the test run, never to the user's cache."""

import os

import pytest

os.environ.setdefault("FLAMBEAU_FAULTS", "raise")  # no test passes by falling back from a fault


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.fixture
def falls_back(monkeypatch):
    """For tests whose subject is what becomes of a fault: it runs eagerly, as it does for users."""
    monkeypatch.delenv("FLAMBEAU_FAULTS", raising=False)
