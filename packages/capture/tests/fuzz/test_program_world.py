"""No stale entry runs, whatever is changed of what a program reads."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "program_world", Path(__file__).with_name("program_world.py")
)
assert _SPEC is not None and _SPEC.loader is not None
program_world = importlib.util.module_from_spec(_SPEC)
sys.modules["program_world"] = program_world
_SPEC.loader.exec_module(program_world)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def test_every_change_is_noticed():
    """All of them, a few at a time in one program each."""
    changes = program_world.CHANGES
    groups = [changes[start : start + 8] for start in range(0, len(changes), 8)]
    done = sum(program_world.run(1000 + i, group) for i, group in enumerate(groups))
    assert done >= len(changes) - 6


@pytest.mark.sweep(4)
@pytest.mark.parametrize("block", range(4))
def test_changes_at_random(block):
    """More on request: `python packages/capture/tests/fuzz/program_world.py 5000`."""
    assert sum(program_world.run(seed) for seed in range(block * 5, block * 5 + 5)) >= 40
