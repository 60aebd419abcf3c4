# (the programs under test are written as users write them)
"""`o.__class__ = ...`: what the object is from then on, in the frame and after it."""

import pytest
import torch
from flambeau_capture.api import compiler_of


class Before:
    shared = 1

    def __init__(self, a):
        self.a = a

    def told(self):
        return "before", self.a

    def __len__(self):
        return 2


class After:
    shared = 2

    def told(self):
        return "after", self.a * 2

    def __getattr__(self, name):
        return f"no {name}"


class Derived(Before):
    def told(self):
        return "derived", *super().told()


class Slotted:
    __slots__ = ("a",)


class Shadowing:
    @property
    def a(self):
        return "shadow"


class Watched:
    def __setattr__(self, name, value):
        NOTED.append((name, str(value)))
        object.__setattr__(self, name, value)


class Counted:
    def __del__(self):
        LOG.append("end")


LOG, NOTED = [], []
SETS = {
    "other": "o.__class__ = After",
    "derived": "o.__class__ = Derived",
    "same": "o.__class__ = type(o)",
    "back": "o.__class__ = After; r.append(o.told()); o.__class__ = Before",
    "by setattr": "setattr(o, '__class__', After)",
    "by object": "object.__setattr__(o, '__class__', After)",
    "written": "o.a = 7; o.__class__ = After; o.b = 3; o.a += 1",
    "deleted": "o.b = 1; o.__class__ = After; del o.b",
    "caught": "\n    try: o.__class__ = int\n    except TypeError as e: r.append(str(e))",
    "no class": "\n    try: o.__class__ = 3\n    except TypeError as e: r.append(str(e))",
    "slots": "\n    try: o.__class__ = Slotted\n    except TypeError as e: r.append(str(e))",
    "shadow": "o.__class__ = Shadowing",
    "watched": "o.__class__ = Watched; o.b = n; o.__class__ = After; r.append(len(NOTED))",
    "counted": "o.__class__ = Counted",
    "raises": "o.__class__ = After\n    if n > 2: raise KeyError(n)",
    "branches": "o.__class__ = After if n > 1 else Derived",
}
BREAKS = {"caught", "slots", "shadow", "counted"}
OBJECTS = {"given": "", "made": "o = Before(n)", "kept": "o = KEPT"}
KEPT = Before(5)
USED = (
    "r += [type(o).__name__, isinstance(o, Before), hasattr(o, '__len__'), sorted(vars(o))]\n"
    "    for name in ('a', 'b', 'shared'):\n"
    "        try: r.append(getattr(o, name))\n"
    "        except AttributeError as e: r.append(str(e))\n"
    "    try: r.append(o.told())\n"
    "    except AttributeError as e: r.append(str(e))"
)


def program(how, which):
    space = dict(globals())
    head = f"def f(t, o, n):\n    r = []\n    {OBJECTS[which]}\n    {SETS[how]}\n    {USED}\n"
    exec(f"{head}    return t * n, o, r\n", space)
    return space["f"]


def seen(f):
    found = []
    KEPT.__class__ = Before
    vars(KEPT).clear()
    KEPT.a = 5
    for n in (1, 2, 3, 2):
        o = Before(n)
        try:
            t, back, r = f(torch.ones(2), o, n)
            found.append((t.tolist(), type(back).__name__, dict(vars(back)), r))
        except KeyError as error:
            found.append(str(error))
        found += [(type(each).__name__, dict(vars(each))) for each in (o, KEPT)]
        KEPT.__class__ = Before
    found.append([*NOTED])
    LOG.clear()
    NOTED.clear()
    return found


@pytest.mark.parametrize("which", OBJECTS)
@pytest.mark.parametrize("how", SETS)
def test_an_object_of_another_class(how, which, capture):
    f = program(how, which)
    ours = capture(f)
    assert seen(ours) == seen(f)
    assert bool(compiler_of(ours).records.breaks) == (how in BREAKS)
