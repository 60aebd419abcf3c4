"""A program of modules, functions and containers, compiled, and ways to change what it reads.

In: a seed. Out: the number of changes made. Invariant: after every change the compiled program and
the plain one give the same: result, `requires_grad`, or class of exception; a stale entry would
not.

    python packages/capture/tests/fuzz/program_world.py 2000 [seed]    # that many changes
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import program_changes
import program_changes_names
from fuzzed_program import CHANGES, Change, Program

assert program_changes and program_changes_names  # each registers its changes


def run(seed: int, changes: list[Change] | None = None, steps: int = 12) -> int:
    """Try one program; the number of changes made. Raises AssertionError at a stale answer."""
    pick = random.Random(seed)
    program = Program(seed)
    done = 0
    trail: list[str] = []
    try:
        for _ in range(3):  # what can be watched is watched by then
            wrong = program.agree()
            assert wrong is None, (seed, "before any change", wrong)
        for chosen in changes or [pick.choice(CHANGES) for _ in range(steps)]:
            try:
                chosen(program, pick)
            except (AttributeError, TypeError, RuntimeError, ValueError):
                continue  # earlier changes left nothing for it to change
            trail.append(chosen.__name__)
            done += 1
            for _ in range(pick.choice((1, 3))):
                wrong = program.agree()
                assert wrong is None, (seed, trail, wrong)
    finally:
        program.close()
    return done


def main(wanted: int, first: int = 0) -> None:
    """Try changes until that many were made; what disagrees is printed."""
    done, seed = 0, first
    wrong: list[AssertionError] = []
    while done < wanted:
        try:
            done += run(seed)
        except AssertionError as error:
            wrong.append(error)
            print(error, flush=True)
        seed += 1
    print(f"{done} changes in {seed - first} programs, {len(wrong)} stale answers")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:] or ["1000"]))
