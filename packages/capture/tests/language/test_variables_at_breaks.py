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
READ = "try: LOG.append(shown({v}))\nexcept NameError: LOG.append('unbound')"

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
