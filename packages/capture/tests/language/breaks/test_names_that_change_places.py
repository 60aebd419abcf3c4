"""Where a graph ends, every variable has its value, whether in a cell or not, and whichever other
variable had that value at first: generated from assignments among names, arguments included."""

import random

import pytest
import torch

NAMES = "abcd"
ENDS = ("stop()", "pass", "held = lambda: d; stop()")


def program(seed):
    rng = random.Random(seed)
    lines = ["c, d = a, b"]
    for _ in range(rng.randint(1, 5)):
        to, of, other = rng.choice(NAMES), rng.choice(NAMES), rng.choice(NAMES)
        lines.append(
            rng.choice(
                (
                    f"{to} = {of}",
                    f"{to}, {of} = {of}, {to}",
                    f"{to} = [{of}, {other}]",
                    f"{to} = lambda: {of}",
                    f"{to} = (lambda {of}: lambda: ({of}, {other}))({to})",
                    f"if isinstance({of}, torch.Tensor): {to} = {of} + 1",
                )
            )
        )
    lines.append(rng.choice(ENDS))
    closed = "".join(rng.sample(NAMES, rng.randint(0, 3)))
    lines.append(f"return {', '.join(NAMES)}, (lambda: ({''.join(f'{one}, ' for one in closed)}))")
    return "def f(a, b):\n    " + "\n    ".join(lines) + "\n"


def told(value, depth=0):
    """What a value holds, functions called: to a depth, as they may hold themselves."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if depth > 4:
        return "deeper"
    if callable(value):
        return ["function", told(value(), depth + 1)]
    return [told(each, depth + 1) for each in value]


def run(seed, wrap):
    names = {"torch": torch, "stop": torch.compiler.disable(lambda: None)}
    exec(program(seed), names)
    fn = wrap(names["f"])
    return [told(fn(torch.ones(1) * at, torch.ones(1) * 7)) for at in range(2)]


@pytest.mark.sweep(60)
@pytest.mark.parametrize("seed", range(600))
def test_names_that_change_places(seed, capture):
    assert run(seed, capture) == run(seed, lambda fn: fn), program(seed)
