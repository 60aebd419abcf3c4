"""No stale entry runs: functions that read the world in many ways, whatever of it is changed."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import habit_world
from habit import HABITS

pytestmark = [
    pytest.mark.filterwarnings("ignore")  # the programs' own, and limits that are reached
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("seed", (1, 2))
@pytest.mark.parametrize("name", sorted(HABITS))
def test_each_habit_alone(name, seed):
    """More on request: `python packages/capture/tests/fuzz/habits/habit_world.py 5000`."""
    assert habit_world.run(seed, [name]) == 10


@pytest.mark.sweep(2)
@pytest.mark.parametrize("seed", range(500, 512))
def test_habits_together(seed):
    assert habit_world.run(seed) == 10


def test_every_habit_answers_and_changes_are_told_apart():
    """The comparison finds a difference where there is one, in every habit."""
    for name, maker in HABITS.items():
        case = maker(random.Random(0))
        case.rewind()
        found = habit_world.answer(case.fn, case)
        assert habit_world.same(found, found), name
        assert not habit_world.same(found, ("tensor", (), None)), name
