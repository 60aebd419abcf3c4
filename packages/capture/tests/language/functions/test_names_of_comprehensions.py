"""Names that a comprehension and the function around it both have, and that closures hold.

From Python 3.12 on a comprehension is a part of the function, and borrows the name's place.
"""

import itertools
import random

import pytest
import torch

STEPS = (
    "seen.append([(lambda: j)() for j in xs])",
    "made = [lambda: j for j in xs]",
    "seen.append([one() for one in made])",
    "seen.append(j)",
    "outer = lambda: j",
    "seen.append(outer())",
    "j = 'kept'",
    "del j",
    "seen.append([[(lambda: j * i)() for j in xs] for i in xs])",
    "seen.append([j for j in xs if print(end='') is None])",
    "seen.append([(lambda: (j, print(end='')))() for j in xs])",
    "for j in xs: pass",
)


def program(number):
    draw = random.Random(number)
    lines = ["def fn(t, xs):", "    seen, made, outer = [], [], int"]
    for step in draw.choices(STEPS, k=6):
        lines += ["    try:", f"        {step}"]
        lines += ["    except Exception as error:", "        seen.append(repr(error))"]
        lines += ["    t = t + 1"]
    space: dict = {}
    exec("\n".join([*lines, "    return t, seen"]), space)
    return space["fn"]


@pytest.mark.parametrize("start", range(0, 12, 4))
def test_each_has_its_own_variable(capture, start):
    for number in itertools.islice(itertools.count(start), 4):
        fn = program(number)
        compiled = capture(fn)
        for xs in ([5, 4], [], [1, 2, 3]):
            ours, theirs = compiled(torch.zeros(2), xs), fn(torch.zeros(2), xs)
            assert torch.equal(ours[0], theirs[0]) and ours[1] == theirs[1], number
