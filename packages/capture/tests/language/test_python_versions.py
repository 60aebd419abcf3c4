"""What the versions of Python do differently is what the running one does."""

import itertools
import linecache
import random

import pytest
import torch
from flambeau_capture import disable

PROGRAM = "def f(t, xs, opaque):\n{body}\n    return r, t * 2\n"
NUMBERS = (0.1, 0.2, 1e16, -1e16, 1.0, 3, -2, True, 1e-9, float("inf"))

#: sums of floats carry their error along from 3.12 on
SUMS = [
    f"r = sum({numbers!r}{start})"
    for start in ("", ", 0.5", ", 1", ", start=xs[0]")
    for numbers in (random.Random(5).choices(NUMBERS[:-1], k=count) for count in (1, 2, 3, 6, 9))
]
MIXED = (
    "r = sum([0.1] * 10)",
    "r = sum(xs)",
    "r = sum(x * 1.0 for x in xs)",
    "r = sum([0.1, 0.2, t, 0.1, 0.2, 0.3])",
    "r = sum([t, 0.1, 0.2, 0.3])",
    "r = sum([0.1, float('inf'), -1.0])",
)
#: a generator that is closed may give what it returns then, from 3.13 on
CLOSED = [
    f"""def gen():
    try:
        {inside}
    {handler}
    return 3
g = gen()
{advanced}
r = g.close(), g.close(), [*g]"""
    for inside, handler, advanced in itertools.product(
        ("yield 1", "yield from (1, 2)"),
        ("finally: pass", "except GeneratorExit: return 7", "except GeneratorExit: pass"),
        ("pass", "next(g)", "opaque(next(g))", "[*g]"),
    )
]
#: comprehensions are part of their function from 3.12 on
COMPREHENSIONS = (
    "r = [opaque(k) for k in xs if opaque(k) > 0.1]",
    "r = {k: opaque(k) for k in xs}",
    "r = [[opaque(j + k) for j in (1, 2)] for k in (3, 4)]",
    "k = 7\ntry: r = [opaque(1 // (k - 1)) for k in (3, 2, 1)]\nexcept ZeroDivisionError: r = k",
    "r = [f() for f in [lambda: k for k in xs]]",
    "r = [sorted(locals()) for k in (1,)][0][-2:]",
    "r = [(y := k) for k in xs], y",
    "class A:\n    x = 3\n    y = [z for z in range(x)]\nr = A.y",
)
WORDS = (
    "try: max([])\nexcept ValueError as e: r = str(e)",
    "try: min(())\nexcept ValueError as e: r = str(e)",
    "try: max(x for x in xs if x > 9)\nexcept ValueError as e: r = str(e)",
    "try: [].index(xs[0])\nexcept ValueError as e: r = str(e)",
    "try: a, b = xs\nexcept ValueError as e: r = str(e)",
    "try: opaque(1, 2)\nexcept TypeError as e: r = str(e)",
)
PROGRAMS = {
    "sums": SUMS,
    "mixed": MIXED,
    "closed": CLOSED,
    "comprehensions": COMPREHENSIONS,
    "words": WORDS,
}


@disable
def opaque(value):
    return value


def made(source):
    world = {}
    body = "".join("    " + line + "\n" for line in source.splitlines())
    text = PROGRAM.format(body=body)
    linecache.cache["<versions>"] = (len(text), None, text.splitlines(keepends=True), "<versions>")
    exec(compile(text, "<versions>", "exec"), world)
    return world["f"]


@pytest.mark.parametrize("kind", PROGRAMS)
def test_as_the_running_python(capture, same, kind):
    for source in PROGRAMS[kind]:
        given = torch.ones(2), [0.1, 0.2, 0.3], opaque
        expected = made(source)(*given)
        compiled = capture(made(source))
        for _ in range(2):
            got = compiled(*given)
            same(got, expected, source)
            assert repr(got) == repr(expected), source
