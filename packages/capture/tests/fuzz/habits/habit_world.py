"""Small functions that each read the world in a way of their own, and what may change of it.

In: a seed. Out: the number of changes made. Invariant: after every change the compiled function and
the plain one give the same: bits, dtype, `requires_grad`, or class of exception; a stale entry
would not.

    python packages/capture/tests/fuzz/habits/habit_world.py 2000 [seed]    # that many changes

A habit is made anew for each run: nothing that a change does outlives it.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

import habit_modules
import habit_objects
import habit_repeated
import habit_values
from habit import HABITS, Case

assert habit_modules and habit_objects and habit_repeated and habit_values  # each registers


def _kept(value: torch.Tensor) -> torch.Tensor:
    return value if value.is_meta else value.detach().clone()


def answer(fn: Callable[..., Any], case: Case) -> Any:
    """What a call gives, as something to compare."""
    with ExitStack() as stack:
        for mode in case.modes:
            stack.enter_context(mode())
        try:
            out = fn(*case.arguments)
        except Exception as error:  # what the function raises is part of its behaviour
            return type(error).__name__
    return _leaves(out)


def _leaves(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        bits = _kept(value)
        layout = (tuple(bits.shape), str(bits.dtype), value.requires_grad, type(value).__name__)
        return ("tensor", layout, bits)
    if isinstance(value, tuple | list):
        return (type(value).__name__, [_leaves(item) for item in value])
    return (type(value).__name__, repr(value))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        if one.is_meta:
            return True  # the layout has been compared
        if one.dtype.is_complex:
            return same(
                torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
            )
        close = torch.allclose(one, other, rtol=1e-6, atol=0, equal_nan=True)
        return close and torch.equal(torch.signbit(one), torch.signbit(other))
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def run(seed: int, names: list[str] | None = None, steps: int = 10) -> int:
    """Try some habits in one function; the number of changes made."""
    from flambeau_capture import Options, optimize

    pick = random.Random(seed)
    chosen = names or pick.sample(sorted(HABITS), pick.choice((1, 1, 2, 3)))
    cases = [HABITS[name](pick) for name in chosen]
    case = cases[0] if len(cases) == 1 else _together(cases)
    dynamic = pick.choice((None, None, False, True))
    options = Options(cache_size_limit=64, raise_internal_errors=True, dynamic=dynamic)
    compiled = optimize("eager", options=options)(case.fn)
    trail: list[str] = []
    try:
        for turn in range(3):  # what can be watched is watched by then
            _agree(case, compiled, (seed, chosen, dynamic, turn))
        for _ in range(steps):
            name = pick.choice(sorted(case.changes))
            trail.append(name)
            try:
                case.changes[name]()
            except (AttributeError, TypeError, RuntimeError, LookupError):
                pass  # earlier changes left nothing for it to change, or a part of it
            for _ in range(pick.choice((1, 3))):
                _agree(case, compiled, (seed, chosen, dynamic, trail))
    finally:
        for undo in reversed(case.undo):
            undo()
    return len(trail)


def _agree(case: Case, compiled: Callable[..., Any], told: Any) -> None:
    case.rewind()
    plain = answer(case.fn, case)
    case.rewind()
    ours = answer(compiled, case)
    assert same(plain, ours), (*told, "plain", plain, "compiled", ours)


def _together(cases: list[Case]) -> Case:
    """One function that does what each does, on its own arguments."""
    counts = [len(case.arguments) for case in cases]
    functions = tuple(case.fn for case in cases)

    def fn(*arguments: Any) -> list[Any]:
        found, start = [], 0
        for function, count in zip(functions, counts):
            found.append(function(*arguments[start : start + count]))
            start += count
        return found

    whole = Case(fn)
    for number, case in enumerate(cases):
        whole.parts.append(case)
        whole.changes.update({f"{number}: {k}": v for k, v in case.changes.items()})
    return whole


def main(wanted: int, first: int = 0) -> None:
    """Try changes until that many were made; what disagrees is printed."""
    warnings.simplefilter("ignore")
    done, seed = 0, first
    wrong = 0
    while done < wanted:
        try:
            done += run(seed)
        except Exception as error:  # a disagreement, or capture's own failure: both are findings
            wrong += 1
            print(seed, type(error).__name__, str(error)[:700], flush=True)
        seed += 1
    print(f"{done} changes in {seed - first} functions of {len(HABITS)} habits, {wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
