# (the programs under test are written as users write them)
"""Attributes that a program gives members of its enumerations: each way to read one sees what each
way to set it has set, in the frame and after it."""

import copy
import enum

import pytest
import torch

SETS = (
    "pass", "o.a = n", "o.a = t", "setattr(o, 'a', n)", "object.__setattr__(o, 'a', n)",
    "o.__dict__['a'] = n", "vars(o).update(a=n)", "o.a = n; del o.a", "o.name = 'Z'",
    "o._name_ = 'Z'", "o._value_ = 9",
)  # fmt: skip
READS = (
    "o.a", "o.__dict__.get('a')", "vars(o).get('a')", "'a' in o.__dict__", "hasattr(o, 'a')",
    "object.__getattribute__(o, 'a')", "sorted(o.__dict__)", "kept.get('a')", "o.name", "o.value",
    "repr(o)", "str(o)", "copy.copy(o).__dict__.get('a')",
)  # fmt: skip
KINDS = {"plain": "enum.Enum", "number": "enum.IntEnum", "flag": "enum.IntFlag"}


def program(kind, how, kept):
    tried = "".join(
        f"    try: said.append({read})\n"
        "    except Exception as e: said.append((type(e), str(e)))\n"
        for read in READS if kept or "kept" not in read
    )  # fmt: skip
    space = {"enum": enum, "copy": copy}
    exec(
        f"class C({KINDS[kind]}):\n    A = 1\n    B = 2\n"
        f"def f(t, n):\n    o, said = C.B, []\n    {'kept = o.__dict__' if kept else ''}\n"
        f"    try: {how}\n    except Exception as e: said.append((type(e), str(e)))\n"
        f"{tried}    return t * n, said\n",
        space,
    )
    return space


def seen(space, by):
    f, found = by(space["f"]), []
    for n in (1, 2):
        t, said = f(torch.ones(2), n)
        found += [t.tolist(), repr(said), repr([*vars(space["C"].B).items()][-2:])]
    return found


@pytest.mark.parametrize("kept", [False, True], ids=["", "kept"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_way_sees_what_was_set(kind, kept, capture):
    for how in SETS:
        ours, theirs = (seen(program(kind, how, kept), by) for by in (capture, lambda f: f))
        assert ours == theirs, how
