"""Enumerations that a frame makes: what the library lets a program set or delete, the flags that it
computes and keeps, members under any name. Generated: every kind, each step, in one frame; results,
their classes and what the enumeration keeps are eager's.
"""

import enum

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of

KINDS = ("Enum", "IntEnum", "Flag", "IntFlag")
STEPS = (
    "C.A = 3", "C.AA = 3", "C.value = 3", "C.new = 3", "C.new = t", "setattr(C, 'B', 1)", "del C.A",
    "del C.AA", "del C.new", "delattr(C, 'm')", "del C.zz", "C.m = lambda self: 5",
    "out.append(C.B | C.A)", "out.append(C.B & C.A)", "out.append(C.B ^ C.A)", "out.append(~C.B)",
    "out.append(~(C.A | C.B))", "out.append(C(3))", "out.append(C(0))", "out.append(C(8))",
    "out.append(C(-1))", "str(C.A | C.B)", "out.append((C.A | C.B) is C(3))",
    "out.append({C.A | C.B: [C(1)]})", "out.append(C.A | 4)", "out.append(4 | C.A)",
    "out.append(C['A'])", "out.append(C['name'])", "out.append(list(C))", "out.append(C.AA)",
    "out.append(max(C, key=lambda m: m.value))", "out.append(C.A + 1)", "out.append(C.B.m())",
    "out.append(type(C(3) | C.A) is C)", "out.append((C.A | C.B) in C)", "out.append(C.zz)",
    "out.append(list(C.__members__))", "out.append(C.__members__['AA'])", "enum.unique(C)",
    "out.append({**C.__members__})", "C.__members__['new'] = 1",
)  # fmt: skip
PROGRAM = """
def f(t):
    out = []
    class C(enum.{kind}):
        A = 1
        B = 2
        name = 4
        AA = 1
        def m(self): return self.value
{steps}
    return t + len(out), C, out
"""
STEP = """
    try:
        {step}
        out.append('done')
    except Exception as error:
        out.append((type(error).__name__, str(error)))
"""


def program(kind, steps):
    """A class statement in a frame, and some steps."""
    text = "".join(STEP.format(step=step) for step in steps)
    space = {"enum": enum, "__name__": "program"}
    exec(PROGRAM.format(kind=kind, steps=text), space)
    return space["f"]


def told(run):
    """What a program gives, and what is left in the class."""
    t, C, out = run(torch.ones(2))
    parts = [part for one in out for part in (one if isinstance(one, list | dict) else [one])]
    own = [type(part) is C for part in parts]
    kept = [(value, repr(one), type(one) is C) for value, one in C._value2member_map_.items()]
    left = {name: str(vars(C).get(name)) for name in ("A", "B", "AA", "value", "new")}
    return t.tolist(), repr(out), own, kept, list(C.__members__), left, "m" in vars(C)


def compare(kind, steps):
    f = program(kind, steps)
    run = optimize("eager", raise_internal_errors=True)(f)
    assert told(f) == told(run), (kind, steps)
    records = compiler_of(run).records
    assert not records.faults
    return len(records.breaks)


@pytest.mark.filterwarnings("ignore:in 3.12:DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_steps_alone_and_in_order(kind):
    broken = [step for step in STEPS if compare(kind, [step])]
    assert all("~" in step or "4" in step for step in broken)  # by the library's code in Python
    for number in range(0, len(STEPS), 4):
        compare(kind, [*STEPS[number:], *STEPS[:number]][:12])


def test_flags_that_leave_in_containers_and_twice():
    """A computed flag is the class's one object under its value, however it leaves."""

    def f(t):
        class C(enum.Flag):
            A = 1
            B = 2

        both = C.A | C.B
        return t + 1, both, {both: [both]}, C.B | C.A, C

    _, both, entries, again, C = optimize("eager", raise_internal_errors=True)(f)(torch.ones(2))
    assert both is again is C(3)
    assert [*entries] == [both] and entries[both][0] is both


class Permission(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


@pytest.mark.parametrize("first", ["~p", "p.note", "setattr(p, 'note', t.shape[0])", "p.value"])
def test_attributes_of_members_that_the_program_has(first):
    """What is set on a member, by the program or by the library, is there later, and in the member
    itself; what the class says of it cannot be set."""
    lines = [first, "setattr(p, 'note', 5)", "p.note", "~p", "~p is ~p", "setattr(p, 'value', 3)",
             "hasattr(p, 'zz')", "p.value", "[q.name for q in ~p]"]  # fmt: skip
    text = "def f(t, p):\n    out = []\n"
    for line in lines:
        text += (
            f"    try: out.append({line})\n    except Exception as error: out.append(str(error))\n"
        )
    space = {}
    exec(text + "    return t + 1, out, p\n", space)
    found = []
    for run in (space["f"], optimize("eager", raise_internal_errors=True)(space["f"])):
        for member in (Permission.READ, Permission.READ, Permission.RUN):
            vars(member).pop("note", None)
        members = (Permission.READ, Permission.READ, Permission.RUN)
        found.append(
            [(run(torch.ones(2), member)[1], vars(member).get("note")) for member in members]
        )
    assert found[0] == found[1]


MISSING = """
def f(t):
    told, out = [], []
    class C(enum.{kind}):
        A = 1
        B = 2
        @classmethod
        def _missing_(cls, value):
            told.append(value)
            if value == 7: raise KeyError(value)
            return {{9: cls.A, 10: 'else'}}.get(value)
{steps}
    return t + len(told), C, [*out, told]
"""


@pytest.mark.parametrize("kind", KINDS)
def test_the_programs_own_answer_for_a_value_that_is_missing(kind):
    steps = [f"out.append(C({value}))" for value in (1, 3, 7, 8, 9, 10)]
    steps = "".join(STEP.format(step=step) for step in [*steps, "out.append(C.A | C.B)"])
    space = {"enum": enum, "__name__": "program"}
    exec(MISSING.format(kind=kind, steps=steps), space)
    f = space["f"]
    run = optimize("eager", raise_internal_errors=True)(f)
    rows = [
        [t.tolist(), repr(out), repr(C)] for t, C, out in (f(torch.ones(2)), run(torch.ones(2)))
    ]
    assert rows[1] == rows[0]
    assert not compiler_of(run).records.faults
