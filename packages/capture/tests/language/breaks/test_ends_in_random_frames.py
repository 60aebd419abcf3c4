"""Objects end between the same two lines as uncompiled, in random frames with breaks; variables
that a frame lets go of at its end go in their order."""

import contextlib
import functools
import itertools
import random
import weakref

import pytest
import torch
from flambeau_capture import disable, optimize

#: its backend keeps nothing of what it is given
compiled = optimize("eager", raise_internal_errors=True)


class Thing:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def __del__(self):
        self.log.append(f"end {self.name}")


class Box:
    def __init__(self, item):
        self.item = item


class Own(Exception):
    pass


#: v: a variable; b: one that has a value; n, m: names of what is made
STATEMENTS = (
    "{v} = make('{n}')",
    "{v} = t * 2\nwatch({v}, '{n}')",
    "{v} = Thing(LOG, '{n}')",
    "note()",
    "use(make('{n}'), note())",
    "{v} = (make('{n}'), t * 3)\nwatch({v}[1], '{m}')",
    "try:\n    raise Own(make('{n}'))\nexcept Own as error:\n    note()\nnote()",
    "{v} = [note() or make('{n}') for _ in range(2)]",
    "t = t * 2\nwatch(t, '{n}')\nnote()",
    "if t.sum() > -1e30:\n    {v} = make('{n}')\n    note()\nelse:\n    {v} = 1",
    "for q in [make('{n}'), make('{m}')]:\n    note()\n    t = t + 1\nnote()\ndel q",
    "try:\n    {v} = make('{n}')\n    note()\nfinally:\n    t = t + 1\nnote()",
    "{v} = Box(make('{n}'))\n{v}.more = t * 5\nnote()",
)
OF_BOUND = (
    "{v}, {b} = {b}, make('{n}')",
    "del {b}",
    "{b} = None",
    "use({b})\nt = t * 1",
    "{v} = [{b}]",
)
OUTERMOST = (
    "with entered(make('{n}')) as {v}:\n    t = t + 1\n    note()\nnote()",
    "{v} = g(t, make('{n}'))",
    "t = g(t, None)",
    "for q in yielding(t, make('{n}')):\n    note()\n    t = t + q\nnote()\nq = None",
)
YIELDING = """
def yielding(t, p):
    held = make('held')
    yield t + 1
    note()
    held = p
    yield t * 2
    note()
"""


def block(draw, names, count, choice, loops=True):
    made, bound = [], set()
    while len(made) < count:
        if loops and draw.random() < 0.12:
            body = block(draw, names, 3, choice, loops=False)
            made.append("for _ in range(2):\n" + indented(body))
            continue
        chosen = draw.choice(choice + OF_BOUND * bool(bound))
        name, has = draw.choice(names), draw.choice([*sorted(bound), None][: len(bound) or 1])
        n, m = draw.sample(range(1000), 2)
        made.append(chosen.format(v=name, b=has, n=n, m=m))
        if chosen.startswith("{v}"):
            bound.add(name)
        if chosen == "del {b}":
            bound.discard(has)
    return "\n".join(made)


def indented(text):
    return "\n".join("    " + line for line in text.splitlines())


def program(seed):
    draw = random.Random(seed)
    g = block(draw, "mno", draw.randint(1, 4), STATEMENTS)
    f = block(draw, "abcd", draw.randint(4, 9), STATEMENTS + OUTERMOST)
    whole = "def {0}(t, p):\n{1}\n    return t\n"
    return YIELDING + whole.format("g", indented(g)) + whole.format("f", indented(f))


def seen(source, by):
    """What happens, call by call. The arguments are held by who calls."""
    log, refs = [], []

    @contextlib.contextmanager
    def entered(thing):
        try:
            yield thing
        finally:
            log.append("left")

    def watch(tensor, name):
        refs.append(weakref.ref(tensor, lambda _: log.append(f"end {name}")))

    world = {"LOG": log, "Thing": Thing, "Box": Box, "Own": Own, "entered": entered}
    world["make"] = disable(lambda name: Thing(log, name))
    world["note"] = disable(lambda: log.append("note"))
    world["use"] = disable(lambda *given: log.append("use"))
    world["watch"] = disable(watch)
    exec(compile(source, "<ends>", "exec"), world)
    call, found = by(world["f"]), []
    for _ in range(2):
        log.clear()
        call(torch.ones(2), None)
        found.append([*log, "returned"])
        refs.clear()
    return found


def by_line(events):
    """What ends between two lines does so in one step of what is compiled: in any order."""
    groups = itertools.groupby(events, lambda event: event.startswith("end"))
    return [sorted(group) if ends else list(group) for ends, group in groups]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("seed", range(8))
def test_objects_end_between_the_same_lines(seed):
    source = program(seed)
    wanted, got = seen(source, functools.partial), seen(source, compiled)
    assert [*map(by_line, got)] == [*map(by_line, wanted)], source


@pytest.mark.parametrize("names", ["abc", "cba", "bca"])
def test_variables_are_let_go_of_in_their_order(names):
    first, second, third = names
    source = (
        f"def f(t, p):\n    {first} = make('1')\n    {second} = make('2')\n    t = t + 1\n"
        f"    {third} = make('3')\n    note()\n    t = t * 2\n    note()\n    return t\n"
    )
    assert seen(source, compiled) == seen(source, functools.partial)


LOOPS = {
    "untouched in the loop": "with entered(make('1')) as a:\n    note()\n"
    "for _ in range(2):\n    note()\n    t = t + 1\n    note()",
    "bound in the loop": "for _ in range(2):\n    note()\n    a = make('1')\n"
    "    t = t + 1\n    note()",
    "bound in a loop in the loop": "for _ in range(2):\n    note()\n"
    "    for a in [make('1'), make('2')]:\n        note()\n    t = t + 1\n    note()",
    "a list of such": "for _ in range(2):\n    note()\n    a = [make('1'), t]\n"
    "    t = t + 1\n    note()",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_what_runs_code_at_its_end_lasts_in_loops(loop):
    source = f"def f(t, p):\n{indented(LOOPS[loop])}\n    note()\n    return t\n"
    assert seen(source, compiled) == seen(source, functools.partial)
