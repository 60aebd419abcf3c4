"""Parts of coroutines and generators as functions of their own: the frame does what it did.

The family: generated bodies of a generator, of each construct that a `yield` may stand in; every
part that is found is taken out at once.
"""

from __future__ import annotations

import random
import types
from textwrap import indent

import pytest
from flambeau_capture.bytecode import assemble
from flambeau_capture.bytecode.outlining import code_of, find_parts, outlined

STATEMENTS = (
    "a = b + n",
    "b = [a, b][n % 2] * 2",
    "log.append((a, b))",
    "a, b = b, a",
    "c = sum(i * a for i in range(3))",
    "c = [i + b for i in range(n)]\nb = len(c)",
    "if n % 2: a += 1\nelse: b -= 1",
    "for j in range(2): a = a * 2 + j",
    "while a > 50: a //= 3",
    "try: a = log[99]\nexcept IndexError as e: log.append(str(e))",
    "d = {'a': a, **{'b': b}}\na = d.get('b', 1)",
    "get = lambda: a + b\nb = get()",
    "a = (b := a + 1) * 2",
    "a = b if n > 2 and a or b else n",
    "log.append(f'{a} {b!r:>4}')",
    "with held(log) as h: a = h + 1",
    "e = a\ndel e",
    "match log:\n    case [x, *rest]: a = a + len(rest)\n    case _: b = 1",
    "a, *c = a, b, n",
)
CONSTRUCTS = (
    "{0}\n{1}\nlog.append((yield a))\n{2}",
    "for i in range(n):\n    {0}\n    b = yield b\n    b = b or 1\n    {1}\n{2}",
    "try:\n    {0}\n    yield a\n    {1}\n    if n > 2: raise KeyError(n)\n"
    "except KeyError as error:\n    {2}\n    yield str(error)\nfinally:\n    {0}\n    yield 3\n{1}",
    "with held(log):\n    {0}\n    yield a\n    {1}\n{2}\nyield b",
    "if n > 2:\n    {0}\n    return a\nelse:\n    {1}\n    yield b\n{2}",
    "c = a\ndef read(): return c\n{0}\nyield read()\n{1}\nc = b\n{2}\nyield read()",
    "{0}\nyield from (a, b)\n{1}\nlog.append((yield from inner(log)))\n{2}",
)


class held:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return 7

    def __exit__(self, *error):
        self.log.append(error[0])


def inner(log):
    log.append((yield 5))
    return 6


def program(construct, draw):
    lines = []
    for line in construct.splitlines():
        depth = len(line) - len(line.lstrip())
        text = line.lstrip().format(*(draw.choice(STATEMENTS) for _ in range(3)))
        lines.append(indent(text, " " * depth))
    return "def f(n, log):\n    a, b = n, 1\n" + indent("\n".join([*lines, "return a, b"]), "    ")


def taken_out(function):
    """The function, its parts being calls; how many they are."""
    code = function.__code__

    def plain(body, given):
        free = (*code.co_freevars, *code.co_cellvars)
        flags = code.co_flags & ~(0x20 | 0x04 | 0x08) | (0x10 if free else 0)
        return assemble(
            body, name="part", flags=flags, argcount=len(given), posonlyargcount=0,
            kwonlyargcount=0, varnames=given, cellvars=(), freevars=free,
        )  # fmt: skip

    def made(own):
        def with_cells(cells):
            return types.FunctionType(own, function.__globals__, "part", None, cells)

        return with_cells if own.co_freevars else with_cells(None)

    body, parts = find_parts(code)
    calls = [(part, made(code_of(part, body, plain))) for part in parts]
    new = assemble(outlined(body, calls))
    return types.FunctionType(new, function.__globals__), len(parts)


def outcome(function, n, sent):
    log, found = [], []
    made = function(n, log)
    try:
        found.append(next(made))
        for each in sent:
            names = dict(made.gi_frame.f_locals)
            found.append((names.get("a"), names.get("b"), names.get("n")))
            thrown = isinstance(each, BaseException)
            found.append(made.throw(each) if thrown else made.send(each))
    except StopIteration as error:
        found.append(error.value)
    except Exception as error:
        found.append((type(error), str(error)))
    made.close()
    return found, log


@pytest.mark.parametrize("place", range(len(CONSTRUCTS)))
def test_what_is_taken_out_does_what_it_did(place):
    draw, taken = random.Random(place), 0
    for _ in range(40):
        source = program(CONSTRUCTS[place], draw)
        exec(source, world := {"held": held, "inner": inner})
        function, count = taken_out(world["f"])
        taken += count
        for n in (1, 2, 4):
            for sent in ([None] * 9, [1, 2, KeyError("k"), 3], [ValueError("v")]):
                assert outcome(function, n, sent) == outcome(world["f"], n, sent), source
    assert taken > 40
