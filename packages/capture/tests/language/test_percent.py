# (the programs under test are written as users write them)
"""`%` of text: what objects of the program's classes, lists of them and mappings are formatted to,
in which order their methods are called, and what is raised, are eager's, in one graph."""

import pytest
import torch
from flambeau_capture.api import compiler_of

ONE_GRAPH = [
    "%s", "%r", "%a", "%s-%r", "%5s|%-6r|%.1s", "%%", "s", "", "%(k)s %(k)r", "%s%%", "% s",
    "%08.3s", "%ls",
]  # fmt: skip
BREAKS = ["%d %s", "%", "%s %", "%z", "%5%", "%c", "%*s"]
GIVEN = [
    "C(n)", "(C(n),)", "(C(n), C(1))", "(n, C(n))", "(C(1), n)", "Keyed(n)", "Reflected(n)",
    "{'k': C(n)}", "[C(n), (C(2),), {1: C(3)}]", "(C(n), C(2), C(3))", "()", "Bad()", "(Keyed(1),)",
    "{C: 1}", "(n, [C(2)])",
]  # fmt: skip


class C:
    def __init__(self, a):
        self.a = a

    def __str__(self):
        LOG.append(("str", self.a))
        return f"C{self.a}"

    def __repr__(self):
        LOG.append(("repr", self.a))
        return f"<C{self.a}\u00e9>"


class Keyed(C):
    def __getitem__(self, key):
        return key


class Reflected(C):
    def __rmod__(self, text):
        return "reflected"

    def __index__(self):
        return 3


class Bad:
    def __str__(self):
        return 1

    __repr__ = __str__


LOG = []


def formatted(form, given):
    text = "def f(t, n):\n    r = []\n"
    for each in given:
        text += f"    try: r.append({form!r} % {each})\n"
        text += "    except Exception as error: r.append((type(error).__name__, str(error)))\n"
    space = dict(globals())
    exec(f"{text}    return t * 2, r\n", space)
    return space["f"]


def seen(f):
    LOG.clear()
    return [f(torch.ones(2), n)[1] for n in (1, 2, 3)], LOG[:]


@pytest.mark.parametrize("form", [*ONE_GRAPH, *BREAKS], ids=ascii)
def test_text_is_formatted_as_in_eager(form, capture):
    f = formatted(form, GIVEN)
    ours = capture(f)
    assert seen(ours) == seen(f)
    assert bool(compiler_of(ours).records.breaks) == (form in BREAKS)
