# (the programs under test are written as users write them)
"""Text of objects that their class gives none of their own: it names the object that the program
has, whatever makes it; a program that reads it is left to Python there."""

import contextlib
import hashlib  # noqa: F401 - by the programs
import io
import struct  # noqa: F401
import threading  # noqa: F401

import pytest
import torch
from flambeau_capture.api import compiler_of


class Plain:
    def __init__(self, a):
        self.a = a


class Named(Plain):
    __module__ = "builtins"


class Holder:
    class Inner(Plain):
        __module__ = "builtins"

    class Nowhere(Plain):
        __module__ = None


class Base(Plain):
    def __str__(self):
        return f"text of {super().__str__()}"


GLOBAL, INNER, NOWHERE = Plain(0), Holder.Inner(0), Holder.Nowhere(0)
WAYS = {
    "repr": "repr(o)",
    "str": "str(o)",
    "format": "f'{o}'",
    "converted": "f'a {o!r} b {o!s}'",
    "joined": "f'{n} {o} {t.shape[0]}'",
    "list": "repr([o, n, (o,)])",
    "dict": "str({n: o})",
    "printed": "print(o, n, [o])",
    "method": "o.__repr__()",
    "compared": "repr(o) == 'a'",
    "length": "len(repr(o)[:3])",
    "key": "{repr(o): 1}",
    "wide": "f'{o!r:>60}'",
    "formatted": "format(o)",
    "contained": "'0x' in repr(o), '0x' in f'a {o!r}'",
    "percent": "'%s' % (o,)",
}
BREAKS = {"compared", "length", "wide", "key", "formatted", "percent", "method"}
OBJECTS = {
    "given": "o",
    "global": "GLOBAL",
    "inner": "INNER",
    "nowhere": "NOWHERE",
    "made": "Plain(t + n)",
    "named": "Named(n)",
    "function": "lambda: n",
    "in C": "struct.Struct('i')",
    "a lock": "threading.Lock()",
    "a view": "memoryview(b'ab')",
    "a hash": "hashlib.sha256(b'a')",
    "nested": "(lambda: (lambda k: t))()",
}


def seen(f):
    found = []
    for n in (1, 2, 3):
        given = Plain(n)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            t, o, text = f(torch.ones(n), given, n)
        said = f"{text}{out.getvalue()}"
        found.append((t.tolist(), said.replace(hex(id(o)), "ADDRESS"), type(o).__name__))
    return found


@pytest.mark.parametrize("which", OBJECTS)
@pytest.mark.parametrize("way", WAYS)
def test_text_names_the_object_that_there_is(way, which, capture):
    space = dict(globals())
    exec(
        f"def f(t, o, n):\n    o = {OBJECTS[which]}\n    r = {WAYS[way]}\n    return t * 2, o, r",
        space,
    )
    f = space["f"]
    ours = capture(f)
    assert seen(ours) == seen(f)
    kept = OBJECTS if way != "printed" else ("global",)
    if way not in BREAKS and which in kept and which not in ("given", "inner", "nowhere"):
        assert compiler_of(ours).records.breaks == []


def test_a_class_that_gets_a_text_of_its_own(capture):
    class Late(Plain):
        pass

    def f(t, _):
        return t + 1, repr(o), str(Base(1))[:7]

    ours, o = capture(f), Late(1)
    assert ours(torch.ones(1), o)[1] == repr(o)
    Late.__repr__ = lambda self: "late"
    assert ours(torch.ones(1), o)[1] == "late"


def test_a_name_that_changes_after_the_first_call(capture):
    class Renamed(Plain):
        pass

    def shown():
        pass

    def f(t):
        return t + 1, repr(o), str(shown)

    class Text(str):
        pass

    ours, o = capture(f), Renamed(1)
    for name in ("first", Text("second")):
        Renamed.__qualname__ = shown.__qualname__ = name
        assert ours(torch.ones(1))[1:] == (repr(o), str(shown))


TEXTS = ("super().__repr__()", "super().__str__()", "super().__format__('')",
         "object.__repr__(self)", "object.__format__(self, '')")  # fmt: skip


@pytest.mark.parametrize("base", ["object", "list", "int", "Exception", "threading.local"])
@pytest.mark.parametrize("method", TEXTS)
def test_text_of_a_base_past_the_classs_own(method, base, capture):
    space = dict(globals())
    exec(
        f"class C({base}):\n    def __repr__(self): return 'own'\n"
        f"    def shown(self): return {method}\n"
        "given = C()\ndef f(t):\n    return t + 1, [each.shown() for each in (given, C())]",
        space,
    )
    f = space["f"]
    ours, expected = capture(f)(torch.ones(1))[1], f(torch.ones(1))[1]
    assert [each.partition(" at ")[0] for each in ours] == [
        each.partition(" at ")[0] for each in expected
    ]


MESSAGES = ("raise ValueError(f'bad {o}', n)", "raise ValueError(repr(o)) from KeyError(o)",
            "assert n > 5, f'{o!r} is bad'")  # fmt: skip


@pytest.mark.parametrize("raised", MESSAGES)
@pytest.mark.parametrize("which", ["global", "made"])
def test_text_in_what_is_raised(which, raised, capture):
    space = dict(globals())
    exec(f"def f(t, n):\n    o = {OBJECTS[which]}\n    t = t * n\n    {raised}", space)
    f = space["f"]
    ours, found = capture(f), []
    for run in (f, ours):
        try:
            run(torch.ones(2), 3)
        except (ValueError, AssertionError) as error:
            message = str(error).replace(hex(id(GLOBAL)), "ADDRESS")
            cut = message[: message.index("0x") if "0x" in message else None]
            found.append((type(error), cut, repr(error.__cause__)[:12], len(error.args)))
    assert found[0] == found[1]


def test_text_before_a_break_names_the_object_after_it(capture):
    def f(t):
        o = Plain(t)
        text = f"{o} {(lambda: o)!r}"
        torch.seed()
        return text[: text.index(">")], o

    def g(t):
        def inner():
            return t

        text = repr(inner)
        torch.seed()
        return text, inner

    for fn in (f, g):
        text, o = capture(fn)(torch.ones(2))
        assert hex(id(o)) in text
