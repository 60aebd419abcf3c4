"""An object that a variable holds lives until the variable is bound again or deleted, or its frame
ends, across graph breaks too; one that only an expression holds ends with it.

The family: every way to come by an object, every end of the variable, in each kind of frame, for
objects whose end is seen by a reference, by `__del__`, or by neither of which they are the holder.
"""

import collections
import gc
import itertools
import random
import threading
import weakref
from textwrap import indent

import pytest
import torch
from flambeau_capture import disable


class Plain:
    def __init__(self, log):
        self.log = log


class Ending(Plain):
    def __del__(self):
        self.log.append("ended")


class Seen(list):
    """A container whose item is what ends."""


class Slots:
    __slots__ = ("__weakref__", "log")

    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("ended")


class Local(threading.local):
    def __init__(self, log):
        self.log = log


class Failure(Exception):
    def __init__(self, log):
        super().__init__("failed")
        self.log = log

    __del__ = Ending.__del__


class Mapping(dict):
    __del__ = Ending.__del__


class Deque(collections.deque):
    __del__ = Ending.__del__


def with_log(kind):
    def make(log):
        made = kind()
        made.log = log
        return made

    return make


def suspended(log):
    def generate():
        try:
            yield
        finally:
            log.append("ended")

    next(made := generate())
    return made


KINDS = {
    "object": Plain,
    "ending": Ending,
    "tensor": lambda log: torch.ones(2),
    "container": lambda log: Seen([Ending(log)]),
    "slots": Slots,
    "thread's local": Local,
    "exception": Failure,
    "dict": with_log(Mapping),
    "deque": with_log(Deque),
    "generator": suspended,
}
HELD = {
    "called": "a = made()",
    "stored": "a = W.o\ndrop()",
    "argument": "a = y\ny = None\ndrop()",
    "untouched": "a = made()\nnote()\nnote()",
    "own tensor": "a = x + 3\ntrack(a)",
    "own object": "a = Plain(LOG)\na.v = x * 2\ntrack(a)",
    "referred to": "a = Plain(LOG)\nLOG.append(weakref.ref(a))",
    "in a list": "a = [made(), 3]",
    "in a new list": "a = [x + 3]\ntrack(a[0])",
    "cell": "a = made()\ndef inner(): return a",
    "unpacked": "a, b = made(), 3",
    "loop": "for a in [made()]: t = t + 1",
    "temporary": "track(made())\na = 1",
    "callee": "a = 1\nt = callee(t)",
}
ENDS = {
    "none": "t = t * 2",
    "bound again": "a = t * 2",
    "deleted": "del a",
    "read": "track(a)",
    "given on": "t = given(t, a)",
}
FRAMES = {
    "called": "def f(x, y):\n    t = x + 1\n{1}\n    return t",
    "inlined": "def g(x, y):\n    t = x + 1\n{1}\n    return t\n"
    "def f(x, y):\n    t = g(x * 2, y)\n    note()\n    return t + 1",
    "generator": "def g(x, y):\n    t = x + 1\n{1}\n    yield t\n    note()\n"
    "def f(x, y):\n    for t in g(x * 2, y):\n        note()\n    return t + 1",
    "loop": "def f(x, y):\n    t = x + 1\n    for _ in range(2):\n{2}\n        note()\n"
    "    return t",
}
CALLEES = """
def callee(t):
    held = made()
    t = t * 2
    note()
    t = t + 2
    note()
    return t

def given(t, p):
    t = t + 1
    note()
    t = t * 2
    note()
    return t
"""


def program(held, end, frame):
    body = [HELD[held], "note()\nt = t * 2\nnote()", ENDS[end], "note()\nt = t + 1\nnote()"]
    by_depth = [indent("\n".join(body), "    " * depth) for depth in range(3)]
    return CALLEES + FRAMES[frame].format(*by_depth)


def seen(source, kind, by):
    """What the program notices, call by call."""
    log, refs = [], []
    world = type("World", (), {"o": None})

    def track(thing):
        if not isinstance(thing, list | int | None):
            refs.append(weakref.ref(thing))

    def made():
        track(thing := KINDS[kind](log))
        return thing

    def note():
        log.append([ref() is not None for ref in refs])

    names = {each.__name__: disable(each) for each in (track, made, note)}
    names |= {"W": world, "LOG": log, "Plain": Plain, "weakref": weakref}
    names["drop"] = disable(lambda: setattr(world, "o", None))
    exec(compile(source, "<lifetimes>", "exec"), names)
    call, found = by(names["f"]), []
    for _ in range(2):
        world.o = None
        log.clear()
        refs.clear()
        world.o = made()
        call(torch.ones(2), world.o)
        note()
        told = [one() is not None if isinstance(one, weakref.ref) else one for one in log]
        found.append(told)
    return found


def drawn(held):
    draw = random.Random(held)
    ends = ["none"] if held == "callee" else list(ENDS)
    frames = list(itertools.product(ends, FRAMES, KINDS))
    return draw.sample(frames, 3)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("held", HELD)
def test_an_object_ends_where_it_does_uncompiled(held, capture):
    for end, frame, kind in drawn(held):
        source = program(held, end, frame)
        assert seen(source, kind, capture) == seen(source, kind, lambda f: f), (kind, source)


def test_a_graphs_results_are_held_by_the_programs_variables_alone(capture):
    refs = []
    track = disable(lambda t: refs.append(weakref.ref(t)))
    alive = disable(lambda log: log.append([ref() is not None for ref in refs]))

    def fn(x, log):
        a, b = x + 1, x * 2
        track(a)
        track(b)
        a = a.sum()
        alive(log)
        del b
        alive(log)
        return a

    compiled = capture(fn)
    compiled(torch.ones(3), [])  # the backend keeps what it has been compiled for
    for by in (fn, compiled):
        refs.clear()
        log = []
        by(torch.ones(3), log)
        assert log == [[False, True], [False, False]]


def test_an_argument_that_ends_is_not_kept_by_the_frame_that_was_called(capture):
    log = []
    note = disable(lambda ref: log.append(ref() is None))

    def fn(box):
        held = box.pop()
        ref = weakref.ref(held)
        note(ref)
        held = held.sum()
        note(ref)
        return held

    compiled = capture(fn)
    compiled([torch.ones(3)])
    for by in (fn, compiled):
        log.clear()
        by([torch.ones(3)])
        assert log == [False, True]


#: how a function comes by an object and by a reference to it that it asks itself, not another
ASKED = {
    "given": "ref = W.ref",
    "referred to here": "ref = weakref.ref(k)",
    "in a cell": "ref = W.ref\n    read = lambda: k",
    "in a cell, referred to here": "ref = weakref.ref(k)\n    read = lambda: k",
}
LETS_GO = {"bound again": "k = 2", "deleted": "del k"}


@pytest.mark.parametrize("last", LETS_GO)
@pytest.mark.parametrize("asked", ASKED)
def test_a_reference_that_the_function_asks_itself(capture, asked, last):
    for where in ("pass", "note()"):
        source = f"""
def f(x, box):
    k = box.pop()
    {ASKED[asked]}
    y = x + 1
    {where}
    {LETS_GO[last]}
    there = ref() is not None
    note()
    return y, there, ref() is not None
"""
        world = type("World", (), {"ref": None})
        names = {"W": world, "weakref": weakref, "note": disable(lambda: None)}
        exec(source, names)

        def answers(by, world=world):
            box = [Plain([])]
            world.ref = weakref.ref(box[0])
            return by(torch.ones(2), box)[1:]

        compiled = capture(names["f"])
        expected = answers(names["f"])
        assert [answers(compiled) for _ in range(2)] == [expected] * 2, source


#: what stands around a call that raises: `{call}` is the next frame's
AROUND = {
    "returned": "return {call}",
    "kept": "a = {call}\n    return a",
    "in a handler of another": "try: return {call}\n    except KeyError: return 1",
    "before a finally": "try: return {call}\n    finally: k = 2",
    "raised again": "try: return {call}\n    except Failure: raise",
    "raised as another": "try: return {call}\n    except Failure as e: raise Failure([k]) from e",
    "in a context": "with torch.no_grad(): return {call}",
    "in a comprehension": "return [{call} for _ in (1,)]",
    "in a generator": "return sum({call} for _ in (1,))",
    "beside a tensor": "y = x + k\n    return {call} + y",
}


@pytest.mark.parametrize("depth", (1, 2, 3))
@pytest.mark.parametrize("name", AROUND)
def test_what_is_raised_keeps_no_frame_alive(capture, name, depth):
    """Once it is handled, with the collector off: neither the caller's objects nor the frames'."""
    frames = [*list(AROUND)[:: depth + 1], name][-depth:]
    lines = ["def frame0(x, k):\n    a = Plain([])\n    track(a)\n    raise Failure([])"]
    for number, each in enumerate(frames, 1):
        body = AROUND[each].format(call=f"frame{number - 1}(x, k)")
        lines.append(f"def frame{number}(x, k):\n    b = x * 2\n    {body}")
    refs = []
    names = {"Plain": Plain, "Failure": Failure, "torch": torch}
    names["track"] = disable(lambda thing: refs.append(weakref.ref(thing)))
    exec("\n".join(lines), names)

    def caller(by):
        mine = Plain([])
        refs.append(weakref.ref(mine))
        try:
            by(torch.ones(2), 1)
        except Failure as error:
            refs.append(weakref.ref(error))

    gc.disable()
    try:
        for by in (names[f"frame{depth}"], capture(names[f"frame{depth}"])):
            for _ in range(3):
                refs.clear()
                caller(by)
                assert [ref() for ref in refs] == [None] * 3
    finally:
        gc.enable()
