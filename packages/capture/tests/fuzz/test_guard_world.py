"""Watched guards and the plain-Python reference agree after every change of a world of objects."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "guard_world", Path(__file__).with_name("guard_world.py")
)
assert _SPEC is not None and _SPEC.loader is not None
guard_world = importlib.util.module_from_spec(_SPEC)
sys.modules["guard_world"] = guard_world
_SPEC.loader.exec_module(guard_world)


def test_a_thousand_changes():
    assert sum(guard_world.run(seed) for seed in range(150)) > 1000


@pytest.mark.parametrize("change", guard_world.CHANGES, ids=lambda change: change.__name__)
def test_each_change_alone(change):
    """The change is seen by both at once, and what both say stays what they say."""
    import random

    for seed in range(6):
        world = guard_world.World(seed)
        for _ in range(4):
            assert world.native()
        assert world.guards.native.witnesses()["armed"] > 0
        change(world, random.Random(seed))
        for _ in range(3):
            assert world.native() == world.reference(), seed
