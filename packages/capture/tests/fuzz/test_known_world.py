"""Small integers written to and read in any order, captured and in eager: every result, every list,
every tensor afterwards. `FLAMBEAU_KNOWN_PROGRAMS=5000` tries more programs."""

import contextlib
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import torch
from known_world import program

COUNT = int(os.environ.get("FLAMBEAU_KNOWN_PROGRAMS", "60"))
MODES = (contextlib.nullcontext, torch.no_grad, torch.inference_mode)
VALUES = ([1, 2, 3, 0], [1, 2, 3, 0], [2, 0, 1, 3], [1, 2, 3, 0])


def arguments(values, aliased):
    first = torch.tensor(values)
    other = first[:] if aliased else torch.tensor(values[::-1])
    return torch.full((1,), 1.5), first, other


@pytest.mark.sweep(4)
@pytest.mark.parametrize("part", range(4))
def test_what_is_known_is_what_eager_finds(capture, same, part):
    judged = 0
    for seed in range(part, COUNT, 4):
        namespace = {"torch": torch}
        exec(compile(program(seed), f"<program {seed}>", "exec"), namespace)
        run = namespace["run"]
        fn = capture(run)
        for values in VALUES:
            theirs, ours = (arguments(values, seed % 5 == 0) for _ in range(2))
            with MODES[seed % 3]():
                want = run(*theirs)
                got = fn(*ours)
                same(got, want, f"program {seed} on {values}:\n{program(seed)}\n")
                same(ours, theirs, f"arguments of program {seed} on {values}")
        judged += 1
    assert judged == len(range(part, COUNT, 4))
