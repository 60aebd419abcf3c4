"""Where Python looks for a special method: in the type of the object and those it derives from, not
in the object itself, and each time anew. Generated: every special method of the data model, in
every place where a program may put it, asked by its uses; then put elsewhere, and asked again.
"""

import linecache
import re

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from special_uses import LIKE_MANY, USES, is_statement, plain

ANSWERS = {
    "bool": "False", "len": "1", "index": "1", "int": "3", "float": "2.5", "complex": "1j",
    "contains": "True", "hash": "5", "iter": "iter([1, 2])", "next": "4", "reversed": "iter([2])",
    "str": "'s'", "repr": "'r'", "format": "'f'", "bytes": "b'b'", "length_hint": "2",
    "fspath": "'p'", "dir": "['z']", "setattr": "None", "delattr": "None", "init": "None",
    "instancecheck": "True", "sizeof": "9",
}  # fmt: skip
#: what stands in the body of a class, by where its method is
PLACES = {
    "absent": "pass",
    "present": "def {m}({args}): LOG.append('{m}'); return {answer}",
    "none": "{m} = None",
    "static": "@staticmethod\ndef {m}(*args): LOG.append('{m}'); return {answer}",
    "of_class": "@classmethod\ndef {m}({args}): LOG.append('{m}'); return {answer}",
    "callable": "{m} = Callable(lambda *args: {answer})",
    "builtin": "{m} = len",
    "partial": "{m} = functools.partial(lambda *args: {answer})",
    "descriptor": "{m} = Getter(lambda *args: {answer})",
    "refusing": "{m} = Refusing()",
    "property": "{m} = property(lambda self: lambda *args: {answer})",
    "slot": "__slots__ = ('{m}',)",
    "number": "{m} = 3",
    "fallback": "def __getattr__(self, name): LOG.append(name); return lambda *args: {answer}",
}
OF_OBJECTS = ("instance", "filled_slot", "metaclass", "inherited", "class_itself")
CHANGES = {
    "again": "pass",
    "gained": "C.{m} = lambda {args}: (LOG.append('gained'), {answer})[1]",
    "lost": "del C.{m}",
    "emptied": "C.{m} = None",
    "base": "Base.{m} = lambda {args}: (LOG.append('base'), {answer})[1]",
    "instance": "vars(o)['{m}'] = lambda *args: {answer}",
    "meta": "type(C).{m} = lambda {args}: (LOG.append('meta'), {answer})[1]",
    "class": "o.__class__ = Other",
}
HEAD = """
import cmath, functools, math, operator, os
class Callable:
    def __init__(self, inner): self.inner = inner
    def __call__(self, *args): LOG.append('called'); return self.inner(*args)
class Getter:
    def __init__(self, inner): self.inner = inner
    def __get__(self, owner, kind): LOG.append('get'); return self.inner
class Refusing:
    def __get__(self, owner, kind): raise AttributeError('refused')
def f_star(*args): return len(args)
class DictOf(dict):
    def __init__(self, o): self.o = o
    def __missing__(self, key): return type(self.o).__missing__(self.o, key)
"""


def filled(text, method):
    answer = ANSWERS.get(method.strip("_"), "(1, 2)")
    return text.format(m=method, answer=answer, args="self, *args")


def classes(method, place, base):
    """A class of the place, and an object of it."""
    body = filled(PLACES.get(place, "pass"), method)
    present = filled(PLACES["present"], method)
    inherits = f"{base}, Base" if base else "Base"
    lines = [
        "class Meta(type):",
        f"    {present}" if place == "metaclass" else "    pass",
        "class Base:",
        f"    {present}" if place == "inherited" else "    pass",
        f"class Other({inherits}, metaclass=Meta): pass",
    ]
    if place == "slot" or place == "filled_slot":
        lines[3] = "    __slots__ = ()"
        body = filled(PLACES["slot"], method)
    lines += [f"class C({inherits}, metaclass=Meta):"]
    lines += [f"    {line}" for line in body.splitlines()]
    lines += ["o = C()"]
    if place in ("instance", "filled_slot"):
        lines.append(filled("object.__setattr__(o, '{m}', lambda *args: {answer})", method))
    if place == "class_itself":
        lines[1] = f"    {present}"
        lines.append("o, C = C, Meta")
    return lines


def program(method, place, base=""):
    lines = [HEAD, "LOG = []", *classes(method, place, base), "def f(t):", "    out = []"]
    for use in USES[method]:
        if place == "class_itself" and not use.endswith(("o", ")", "]", "1")):
            continue
        lines.append("    try:")
        if is_statement(use):
            kept = "k = o; " if "= 1" in use and use.startswith("o ") else ""
            text = f"{kept}k{use[1:]}" if kept else use
            lines += [f"        {text}", f"        found = {'k' if kept else repr('done')}"]
        else:
            lines.append(f"        found = {use}")
        lines += [
            f"        out.append(({use!r}, 'answers', found))",
            "    except Exception as error:",
            f"        out.append(({use!r}, 'raises', type(error), str(error)))",
        ]
    text = "\n".join([*lines, "    return t + 1, out", ""])
    path = f"/lookups/{method}_{place}_{base}.py"
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    return compile(text, path, "exec")


def steady(part):
    """Without addresses, and hashes made of them."""
    return part if type(part) is not tuple else re.sub(r"0x\w+|\d{9,}", "address", str(part))


def told(space, run, change):
    """What a run answers and notes, after a change."""
    try:
        exec(change, space)
    except Exception as error:
        return [type(error)]
    space["LOG"].clear()
    try:
        found = [[steady(plain(part)) for part in one] for one in run(torch.ones(2))[1]]
    except Exception as error:
        found = [[type(error), str(error)]]
    return [*found, space["LOG"][:]]


def differences(method, place, base="", changes=tuple(CHANGES)):
    found, faults = [], []
    code = program(method, place, base)
    for name in changes:
        spaces = [{"__name__": "program"}, {"__name__": "program"}]
        for space in spaces:
            exec(code, space)
        eager = spaces[0]["f"]
        ours = optimize("eager")(spaces[1]["f"])
        for change in ("pass", filled(CHANGES[name], method)):
            want, got = told(spaces[0], eager, change), told(spaces[1], ours, change)
            found += [(name, a, b) for a, b in zip(want, got) if a != b]
        faults += compiler_of(ours).records.faults
    return found, faults


EVERY = [(place, change) for place in (*PLACES, *OF_OBJECTS) for change in CHANGES]
PAIRS = 6
#: where capture still asks a class of the program oftener, or less often, than Python does
ASKED_OTHERWISE = {
    ("__hash__", "static"), ("__lt__", "class_itself"), ("__dir__", "class_itself"),
    *(("__getattribute__", place) for place in (*PLACES, *OF_OBJECTS)),
}  # fmt: skip
NO_PROGRAM = {("__new__", "slot")}  # the class cannot be instantiated


def pairs(method):
    """Some of the places and changes, others for each method."""
    first = [*USES].index(method) * 7
    return [EVERY[(first + nth * (len(EVERY) // PAIRS)) % len(EVERY)] for nth in range(PAIRS)]


@pytest.mark.sweep(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", [method for method in USES if method not in LIKE_MANY])
def test_a_special_method_is_looked_up_in_the_class(method):
    for place, change in pairs(method):
        if (method, place) not in ASKED_OTHERWISE | NO_PROGRAM:
            found, faults = differences(method, place, changes=[change])
            assert not found and not faults, (place, change)


if __name__ == "__main__":
    import sys

    chosen = sys.argv[1].split(",") if len(sys.argv) > 1 and sys.argv[1] else [*USES]
    places = sys.argv[2].split(",") if len(sys.argv) > 2 and sys.argv[2] else [*PLACES, *OF_OBJECTS]
    for method in chosen:
        rows = [(p, c) for p in places for c in CHANGES] if len(sys.argv) > 2 else pairs(method)
        for place, change in rows:
            try:
                found, faults = differences(method, place, changes=[change])
            except Exception as error:
                found, faults = [(type(error).__name__, str(error)[:300])], []
            for each in (*found, *faults):
                print(method, place, change, str(each)[:500], flush=True)
