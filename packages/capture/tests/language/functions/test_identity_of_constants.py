"""`is` between numbers and text: where Python has one object of a value, or the program has.

The pairs are generated: every kind of constant, from every kind of place."""

import itertools

import pytest
import torch

#: expressions of each kind: a constant of the code, the same computed in some ways
KINDS = {
    "small": ("7", "int('7')", "n + 2"),
    "large": ("1000", "int('1000')", "n * 200", "500 * 2"),
    "negative": ("-6", "int('-6')", "-5 - 1"),
    "float": ("0.0", "float('0')", "y - y", "-0.0", "abs(-0.0)"),
    "nan": ("float('nan')", "y * float('nan')", "NAN"),
    "complex": ("1j", "complex('1j')", "n * 0.2j"),
    "text": ("'ab c'", "''.join(['ab', ' c'])", "'ab c'.strip()", "'AB C'.lower()"),
    "letter": ("'a'", "'ba'[1]", "'A'.lower()", "chr(97)", "'a' * 1"),
    "far": ("'\u1234'", "chr(0x1234)", "'\u1234'.strip()"),
    "bytes": ("b'abc'", "b'ABC'.lower()", "b'abc'[:]"),
    "byte": ("b'a'", "b'A'.lower()", "b'ba'[1:]"),
    "range": ("range(3)", "range(n)", "range(0, 3)"),
    "device": ("torch.device('cpu')", "torch.device(type='cpu')"),
    "single": ("None", "True", "...", "not 0", "torch.float32", "x.dtype", "bool(n)"),
}
PAIRS = [
    pair for made in KINDS.values() for pair in itertools.combinations_with_replacement(made, 2)
]
NAN = float("nan")


def function(text):
    space = {"torch": torch, "NAN": NAN}
    exec(compile(text, "<made>", "exec"), space)
    return space["f"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asked", ["({}) is ({})", "({}) in [{}]", "[{}] == [{}]"])
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_made_in_the_function(check, kind, asked):
    pairs = itertools.product(KINDS[kind], repeat=2)
    answers = ", ".join(asked.format(one, other) for one, other in pairs)
    check(function(f"def f(x, n, y):\n    return x + 1, {answers}"), torch.ones(2), 5, 0.5)


GIVEN = [
    (1000, int("1000")), (7, int("7")), (1.5, float("1.5")), (NAN, float("nan")), (NAN, NAN),
    ("ab c", "".join(["ab", " c"])), ("a", "ba"[1]), (range(3), range(3)), (2j, complex("2j")),
    (b"abc", b"ABC".lower()), (None, None), (1, True), (0.0, -0.0),
]  # fmt: skip


@pytest.mark.parametrize("one, other", GIVEN, ids=map(repr, GIVEN))
@pytest.mark.parametrize("first", [0, 1])
def test_given_ones_are_told_apart_in_later_calls(capture, one, other, first):
    """That two places hold one object, or two, is guarded."""

    def f(x, a, b):
        return x + 1, a is b, a is not b, a in [b], a is HELD

    HELD = one
    compiled = capture(f)
    calls = [(one, one), (one, other), (other, other), (other, one), (one, one)]
    for a, b in calls[first:]:
        assert compiled(torch.ones(2), a, b)[1:] == f(torch.ones(2), a, b)[1:]


@pytest.mark.parametrize("text", ["a.strip()", "a.lower()", "a[:]", "a + ''", "str(a)", "a * 1"])
def test_what_a_method_answers_with_the_object_itself(capture, text):
    f = function(f"def f(x, a):\n    return x + 1, ({text}) is a")
    compiled = capture(f)
    for a in ("ab c", " ab", "".join(["ab", " c"]), "AB"):
        assert compiled(torch.ones(2), a)[1] == f(torch.ones(2), a)[1]


#: where two of them are once a graph has ended, or the frame
LATER = {
    "after a break": "breaks(); return x, a is b, a is a",
    "in a list": "c = [a, b]; breaks(); return x, c[0] is c[1], c[0] is a",
    "in a closure": "g = lambda: (a is b, a)\n    breaks(); r = g(); return x, r[0], r[1] is b",
    "returned": "return x, (a, b)",
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("kind", [*KINDS, "tuple", "nested"])
@pytest.mark.parametrize("later", LATER)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_made_apart_they_stay_apart(capture, kind, later):
    """Equal ones share no place in the code that is made of the frame."""
    tuples = {"tuple": ("(1, 2)", "tuple([1, 2])", "(n - 4, 2)")}
    tuples["nested"] = ("(1, (2.5, 'a'))", "(1, (y * 5, 'a'))")
    texts = {**KINDS, **tuples}[kind]
    for one, other in itertools.product(texts[:3], repeat=2):
        f = function(f"def f(x, n, y):\n    a, b, x = {one}, {other}, x + 1\n    {LATER[later]}")
        f.__globals__["breaks"] = lambda: print("", end="")
        seen = []
        for target in (f, capture(f)):
            found = target(torch.ones(2), 5, 0.5)[1:]
            seen.append(found if later != "returned" else found[0][0] is found[0][1])
        assert seen[0] == seen[1], (one, other)
