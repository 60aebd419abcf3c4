"""Kernels that tests build go to a folder of the test run, never to the user's cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("kernels", numbered=True)
    folder.chmod(0o700)
    before = os.environ.get("FLAMBEAU_CACHE_DIR")
    os.environ["FLAMBEAU_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["FLAMBEAU_CACHE_DIR"]
    else:
        os.environ["FLAMBEAU_CACHE_DIR"] = before
