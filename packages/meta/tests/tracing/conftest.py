import importlib.util
from pathlib import Path

import pytest


def module(name):
    place = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"flambeau_traced_{name}", place)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="session")
def programs():
    return module("programs")
