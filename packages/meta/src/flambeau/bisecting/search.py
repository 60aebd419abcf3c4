"""Binary search for the first failing step.

In: how many steps there are, a test of the first n of them. Out: the smallest n that fails.
Invariant: the answer was itself seen to fail, and the one before it to pass.
"""

from __future__ import annotations

from collections.abc import Callable


def first_bad(count: int, is_bad: Callable[[int], bool]) -> int | None:
    """The smallest n in 1..count with `is_bad(n)`, by halving; None where `count` steps are fine.

    Nothing is asked twice. Where steps interact (bad, then good again), it is one of the places
    where good turns bad.
    """
    if count < 1 or not is_bad(count):
        return None
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_bad(middle):
            bad = middle
        else:
            good = middle
    return bad
