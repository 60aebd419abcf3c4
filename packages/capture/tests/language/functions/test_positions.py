"""Positions and counts that methods of the built-in sequences are given: what is one, what is not,
what is too large, each in the words of the method that was given it."""

import collections
import functools
import random
import re

import pytest
import torch

SEQUENCES = {
    "list": ("[3, 4, 3]", "3"), "tuple": ("(3, 4, 3)", "3"), "str": ("'abca'", "'a'"),
    "bytes": ("b'abca'", "b'a'"), "range": ("range(3, 9)", "3"),
    "deque": ("collections.deque([3, 4, 3])", "3"),
    "bytearray": ("bytearray(b'abca')", "b'a'"),
}  # fmt: skip
TEXTS = [
    "a.find(v, P)", "a.rfind(v, 0, P)", "a.rindex(v, P)", "a.count(v, P)", "a.startswith(v, P)",
    "a.endswith(v, 0, P)", "a.split(v, P)", "a.replace(v, v, P)", "a.center(P)", "a.rjust(P, v)",
    "a.zfill(P)", "a.expandtabs(P)", "a.splitlines(P)",
]  # fmt: skip
ALL = ["a.index(v, P)", "a.index(v, 0, P)", "a[P]", "a[P:]", "a[::P]", "a * P", "P * a",
       "a.__getitem__(P)", "a.__mul__(P)"]  # fmt: skip
WRITES = ["a[P] = v", "del a[P]", "a[:P] = a", "a *= P", "a.insert(P, v)", "a.pop(P)"]
USES = {
    "list": ALL + WRITES, "tuple": ALL, "range": ALL, "str": ALL + TEXTS, "bytes": ALL + TEXTS,
    "deque": [*ALL, *WRITES, "a.rotate(P)"], "bytearray": ALL + TEXTS + WRITES,
}  # fmt: skip
GIVEN = [
    "None", "1.0", "'1'", "functools.partial(len, 1)", "collections.OrderedDict()", "o",
    "lambda: 1", "Own", "len", "re", "[1]", "True", "slice(1)", "one", "huge", "-1", "wrong",
    "{1}", "{}.keys()", "iter([1])", "ValueError(1)", "1j", "1 << 70", "number", "pair",
]  # fmt: skip


class Own:
    pass


class Position:
    def __init__(self, answer):
        self.answer = answer

    def __index__(self):
        return self.answer


class Number(int):
    pass


WORLD = {
    "collections": collections, "functools": functools, "re": re, "o": Own(), "Own": Own,
    "one": Position(1), "huge": Position(1 << 70), "wrong": Position("x"), "number": Number(1),
    "pair": collections.namedtuple("Pair", "a b")(1, 2),
}  # fmt: skip


def program(kind, drawn):
    made, value = SEQUENCES[kind]
    lines = [f"def f(x):\n    R, v = [], {value}"]
    for use, given in drawn:
        spelt = use.replace("P", f"({given})")
        told = spelt if use in WRITES else f"R.append(repr({spelt}))"
        lines += [
            f"    a = {made}",
            f"    try:\n        {told}\n        R.append(repr(a))",
            "    except Exception as error: R.append((type(error).__name__, str(error)))",
        ]
    return "\n".join([*lines, "    return x + 1, R"])


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("kind", SEQUENCES)
def test_what_is_no_position_is_refused_in_the_words_of_its_method(kind, capture):
    draw = random.Random(kind)
    every = [(use, given) for use in USES[kind] for given in GIVEN]
    source = program(kind, draw.sample(every, 60))
    space = dict(WORLD)
    exec(compile(source, "<positions>", "exec"), space)
    expected = space["f"](torch.ones(1))[1]
    assert capture(space["f"])(torch.ones(1))[1] == expected
