"""Variables that are bound on one road into a graph break and unbound on another.

The family: every statement that binds a name or takes its value away, before and after breaks of
every place, in functions that look at their variables by name and in those that do not.
"""

import itertools
import linecache
import random

import pytest
import torch
from flambeau_capture import disable

#: `{v}` is the variable; each binds it, and all but the last leave it bound
BINDINGS = {
    "assignment": "{v} = k",
    "walrus": "LOG.append({v} := k)",
    "augmented": "{v} = 1\n{v} += k",
    "unpacking": "{v}, *w = k, n, n",
    "match": "match k:\n    case 0 | 1 | 2 as {v}: pass",
    "match sequence": "match [k, n]:\n    case [{v}, *w]: pass",
    "class": "class {v}:\n    a = k",
    "def": "def {v}(): return n",
    "lambda": "{v} = lambda a=k: a",
    "import": "import math as {v}",
    "from": "from math import floor as {v}",
    "for": "for {v} in (k, n):\n    t = t + 1",
    "with": "with Held(k) as {v}:\n    t = t * 2",
    "closure": "{v} = k\ndef read(): return {v}\nLOG.append(read())",
    "comprehension": "{v} = k\nw = [{v} + t.dim() for {v} in (1, 2)]\nLOG.append(w)",
    "borrowed": "w = [opaque({v}) for {v} in (1, 2)]\nLOG.append(w)\n{v} = k",
    "except": "try: raise ValueError(k)\nexcept ValueError as {v}: opaque(LOG.append(str({v})))",
    "del": "{v} = k\nLOG.append({v})\ndel {v}",
}
#: where the graph breaks, between the binding and the read
BREAKS = {
    "call": "opaque(k)",
    "callee": "t = below(t)",
    "try": "try:\n    t = t + opaque(k)\nfinally:\n    opaque(k)",
    "handler": "try: opaque(LOG).missing\nexcept AttributeError as error: opaque(k)",
    "with": "with Held(k):\n    t = below(t)",
    "branch": "if t.sum() > 0: t = t - 1",
    "loop": "for j in opaque([1, 2]):\n    t = below(t) + j",
    "comprehension": "w = [opaque(j) for j in (1, 2)]",
}
#: what makes all variables count, and where it stands
LOOKS = {
    "none": "pass",
    "dir": "LOG.append(sorted(dir()))",
    "locals": "LOG.append(sorted(locals()))",
    "vars": "look = vars\nopaque(k)\nLOG.append(sorted(look()))",
}
READ = (
    "try: LOG.append(shown({v}))\nexcept NameError as error: LOG.append((type(error), str(error)))"
)

PROGRAM = """
def f(t, n):
    k = 3
{first}
    for k in range(3):
        if k == n:
{binding}
{break_1}
        if k >= 1:
{read}
{break_2}
{last}
    return t, n
"""


class Held:
    def __init__(self, value):
        self.value = value

    def __enter__(self):
        return self.value

    def __exit__(self, *error):
        return False


@disable
def opaque(value):
    return value


def below(t):
    t = t + 1
    opaque(t)
    return t * 2


def shown(value):
    return value if isinstance(value, int | str) else type(value).__name__


def indented(text, depth):
    return "\n".join("    " * depth + line for line in text.replace("{v}", "v").splitlines())


def program(binding, break_1, break_2, first, last):
    return PROGRAM.format(
        first=indented(LOOKS[first], 1),
        binding=indented(BINDINGS[binding], 3),
        break_1=indented(BREAKS[break_1], 2),
        read=indented(READ, 3),
        break_2=indented(BREAKS[break_2], 2),
        last=indented(LOOKS[last], 2),
    )


def made(source, name):
    world = {"LOG": [], "Held": Held, "opaque": opaque, "below": below, "shown": shown}
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), world)
    return world["f"], world["LOG"]


def outcome(function, log, n):
    try:
        result = function(torch.ones(2), n)
    except Exception as error:
        result = type(error), str(error)
    return result, log


def drawn(binding, count):
    chosen = random.Random(binding)
    every = list(itertools.product(BREAKS, BREAKS, LOOKS, LOOKS))
    return chosen.sample(every, count)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("binding", BINDINGS)
def test_bound_on_one_road_only(capture, same, binding):
    for places in drawn(binding, 2):
        source = program(binding, *places)
        compiled = None
        for n in (1, 5, 0):
            eager, expected_log = made(source, "<variables, eager>")
            expected = outcome(eager, expected_log, n)
            if compiled is None:
                fn, log = made(source, "<variables>")
                compiled = capture(fn)
            log.clear()
            same(outcome(compiled, log, n), expected, f"n = {n} in\n{source}")


#: places that something is set in and deleted from: what sets, what deletes, what reads
PLACES = {
    "global": ("tmp = {v}", "del tmp", "tmp"),
    "globals": ("globals()['tmp'] = {v}", "del globals()['tmp']", "globals()['tmp']"),
    "attribute": ("o.tmp = {v}", "del o.tmp", "o.tmp"),
    "delattr": ("setattr(o, 'tmp', {v})", "delattr(o, 'tmp')", "o.tmp"),
    "attributes": ("vars(o)['tmp'] = {v}", "del vars(o)['tmp']", "o.tmp"),
    "slot": ("s.tmp = {v}", "del s.tmp", "s.tmp"),
    "class": ("C.tmp = {v}", "del C.tmp", "C.tmp"),
    "item": ("d['tmp'] = {v}", "d.pop('tmp')", "d['tmp']"),
    "module": ("net.tmp = {v}", "del net.tmp", "net.tmp"),
}
STEPS = [
    "S",
    "D",
    *("S" + "".join(more) for n in (1, 2) for more in itertools.product("SDR", repeat=n)),
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_set_and_deleted_need_not_have_been_there(place, there, capture):
    for steps in STEPS:
        expected, found = (outcomes(place, there, steps, by) for by in (lambda f: f, capture))
        assert found == expected, steps


@pytest.mark.sweep(3)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_set_and_deleted_may_be_there_at_another_call(place, capture):
    for steps in ("SD", "SDS", "SDSD", "SRD", "DS", "RSD"):
        for there in itertools.product([False, True], repeat=3):
            if len({*there}) > 1:
                expected, found = (
                    outcomes(place, there, steps, by) for by in (lambda f: f, capture)
                )
                assert found == expected, (steps, there)


def outcomes(place, there, steps, by):
    """there: whether something is there to begin with, or before each call."""
    set_, *others = PLACES[place]
    spelt = {"S": set_, "D": others[0], "R": f"r.append({others[1]})"}
    lines = "".join(
        f"    try: {spelt[step].format(v=('x * 2', at)[at % 2])}\n"
        "    except Exception as error: r.append((type(error).__name__, str(error)))\n"
        for at, step in enumerate(steps)
    )
    space = {"C": type("C", (), {}), "d": {}, "net": torch.nn.Linear(1, 1)}
    space |= {"o": type("O", (), {})(), "s": type("S", (), {"__slots__": ("tmp",)})()}
    if there is True:
        exec(set_.format(v=5), space)
    exec(f"def f(x):\n    global tmp\n    r = []\n{lines}    return x + 1, r", space)
    call, seen = by(space["f"]), []
    for now in (None, None) if isinstance(there, bool) else there:
        if now is not None:
            exec(f"try: {others[0]}\nexcept Exception: pass", space)
        if now:
            exec(set_.format(v=5), space)
        try:
            seen.append(repr(call(torch.ones(1))))
        except Exception as error:
            seen.append(repr(error))
        exec(f"try: now = {others[1]}\nexcept Exception as error: now = str(error)", space)
        seen.append(repr(space["now"]))
    return seen
