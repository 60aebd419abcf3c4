"""Programs that tests start are forked from processes that all test processes share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.starting import Programs

SAYS = "import os, sys, torch\nprint(os.getppid(), sys.argv[1], os.environ['FLAMBEAU_ASKED'])\n"


@pytest.fixture
def folder() -> Path:
    if "FLAMBEAU_TEST_BUILDS" not in os.environ:
        pytest.skip("needs the plugin tools.testing")
    return Path(os.environ["FLAMBEAU_TEST_BUILDS"])


def run(programs: Programs, *command: str, **choices) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"FLAMBEAU_ASKED": "yes"}
    asked = [sys.executable, "-W", "ignore", *command]
    return programs.run(asked, env=environment, capture_output=True, text=True, **choices)


def test_programs_of_several_processes_have_one_parent(folder: Path) -> None:
    parents = []
    run(Programs(folder), "-c", SAYS, "first")  # as users start it, if nobody has before
    for programs in (Programs(folder), Programs(folder)):
        parent, given, asked = run(programs, "-c", SAYS, "word").stdout.split()
        assert (given, asked) == ("word", "yes")
        parents.append(int(parent))
    assert parents[0] == parents[1] != os.getpid()


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("import torch, sys; sys.exit(3)", 3, ""),
        ("import torch, os; os.abort()", -6, ""),
        ("import torch; torch.nothing", 1, "has no attribute 'nothing'"),
    ],
)
def test_a_program_ends_as_it_would(text: str, status: int, told: str, folder: Path) -> None:
    done = run(Programs(folder), "-c", text)
    assert done.returncode == status and told in done.stderr


def test_a_program_that_takes_too_long_is_killed(folder: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run(Programs(folder), "-c", "import torch, time; time.sleep(600)", timeout=0.5)
    assert caught.value.timeout == 0.5


@pytest.mark.parametrize("text", ["print(1)", "import sys, torch; print(len(sys.modules))"])
def test_what_needs_no_torch_or_asks_for_modules_starts_as_it_is(text: str, tmp_path: Path) -> None:
    assert Programs(tmp_path).starter_for([sys.executable, "-c", text], {}) is None
    assert list(tmp_path.iterdir()) == []
