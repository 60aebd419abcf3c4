"""Classes of the program that derive from built-in ones and have a special method: what comes of
each use, and how often the method is asked, is what CPython makes of it. Generated: every base,
every method, an answer that is taken and one that is left to others.
"""

import itertools
import linecache
import os
import re

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from special_uses import USES, is_statement, plain

BASES = {
    "Exception": "'e'",
    "float": "1.5",
    "int": "3",
    "str": "'ab'",
    "list": "[1, 2]",
    "dict": "{'a': 1}",
    "set": "{1}",
    "collections.deque": "[1]",
    "collections.Counter": "'ab'",
    "threading.local": "",
}
ANSWERS = {"taken": "return 1", "left": "return NotImplemented"}
#: they make the object, or are asked by whatever looks at it
NOT_ASKED = {"__new__", "__init__", "__getattribute__", "__setattr__", "__repr__", "__sizeof__",
             "__instancecheck__", "__dir__"}  # fmt: skip
METHODS = [method for method in USES if method not in NOT_ASKED]
HEAD = """
import cmath, collections, math, operator, os, threading
def f_star(*args): return len(args)
class DictOf(dict):
    def __init__(self, o): self.o = o
    def __missing__(self, key): return type(self.o).__missing__(self.o, key)
LOG = []
"""


def program(base, methods):
    made, body = [HEAD], ["def f(t):", "    out = []"]
    for number, (method, (answer, text)) in enumerate(itertools.product(methods, ANSWERS.items())):
        made.append(
            f"class C{number}({base}):\n    def {method}(self, *args):\n"
            f"        LOG.append({method!r})\n        {text}"
        )
        for use in USES[method][:8]:
            done = f"{use}\n        found = 'done'" if is_statement(use) else f"found = {use}"
            body += [
                f"    o = C{number}({BASES[base]})",
                "    try:",
                f"        {done}",
                f"        out.append(({method!r}, {answer!r}, {use!r}, found, len(LOG)))",
                "    except Exception as error:",
                f"        out.append(({method!r}, {answer!r}, {use!r}, type(error), str(error),",
                "                    len(LOG)))",
            ]
    text = "\n".join([*made, *body, "    return t + 1, out", ""])
    path = f"/bases/{base}_{methods[0]}.py"
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    namespace = {"__name__": "program"}
    exec(compile(text, path, "exec"), namespace)
    return namespace["f"]


def differences(base, methods):
    told = []
    for compiled in (False, True):
        run = f = program(base, methods)
        if compiled:
            run = optimize("eager", raise_internal_errors=True)(f)
        told.append(run(torch.ones(2))[1])
        assert not compiled or not compiler_of(run).records.faults
    assert len(told[0]) == len(told[1])
    shown = [
        [[re.sub(r" at 0x\w+", "", repr(plain(x))) for x in row] for row in rows] for rows in told
    ]
    return [(a, b) for a, b in zip(*shown) if a != b]


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
@pytest.mark.parametrize("base", BASES)
def test_a_special_method_beside_a_built_in_part(base):
    """Each method beside every third base; beside all with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`)."""
    step = 1 if os.environ.get("FLAMBEAU_SWEEPS") == "1" else 3
    for start in range(4 * (list(BASES).index(base) % step), len(METHODS), 4 * step):
        assert not differences(base, METHODS[start : start + 4])


#: bases that CPython refuses in words of the object's class
IMMUTABLE = {"float": "1.5", "int": "3", "str": "'ab'", "tuple": "(1, 2)", "complex": "1j"}
REFUSED = ["len(o)", "o[0]", "o['a']", "[1] + o", "[1] * o", "o()", "iter(o)", "o == o", "[1] @ o"]


@pytest.mark.parametrize("base", [*IMMUTABLE, "Exception"])
def test_what_is_refused_names_the_objects_class(base):
    uses = [*REFUSED, "o.__setitem__(0, 1)", "o[0] = 1", "del o[0]"]
    text = [HEAD, f"class C({base}): pass", "def f(t):", "    out = []"]
    text += [f"    o = C({IMMUTABLE.get(base, 1)})"]
    for use in uses:
        done = use if is_statement(use) else f"out.append(str({use})[:20])"
        text += ["    try:", f"        {done}", "    except Exception as error:"]
        text += ["        out.append((type(error), str(error)))"]
    path, source = f"/refused/{base}.py", "\n".join([*text, "    return t + 1, out", ""])
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    namespace = {"__name__": "program"}
    exec(compile(source, path, "exec"), namespace)
    f = namespace["f"]
    ours, theirs = optimize("eager")(f)(torch.ones(2))[1], f(torch.ones(2))[1]
    assert [a for a in ours if "iterator" not in a] == [a for a in theirs if "iterator" not in a]


#: bases whose state capture does not look into: existing objects of their subclasses are opaque
OPAQUE = {"array.array": "('i', [1, 2])", "io.BytesIO": "(b'ab')"}
#: what looks at the object itself
_LOOKING = {"__new__", "__init__", "__getattribute__", "__setattr__", "__repr__", "__sizeof__",
            "__instancecheck__", "__dir__", "__hash__", "__del__"}  # fmt: skip


def asked_of_opaque(base, method, use, compiled):
    """What a use of an existing object gives, and how often its method is asked."""
    done = f"{use}\n        found = 'done'" if is_statement(use) else f"found = {use}"
    text = (
        f"{HEAD}import array, io, threading\n"
        f"class C({base}):\n    def {method}(self, *args):\n"
        f"        LOG.append({method!r})\n        return 1\n"
        f"o = {base}.__new__(C, *{OPAQUE[base]})\n"
        f"def f(t, o):\n    try:\n        {done}\n"
        "    except Exception as error:\n        found = type(error), str(error)\n"
        "    return t + 1, found\n"
    )
    namespace = {"__name__": "program"}
    exec(compile(text, f"/opaque/{base}_{method}.py", "exec"), namespace)
    run = namespace["f"]
    if compiled:
        run = optimize("eager", raise_internal_errors=True)(run)
    found = [plain(run(torch.ones(2), namespace["o"])[1]) for _ in range(2)]
    assert not compiled or not compiler_of(run).records.faults
    return found, namespace["LOG"]


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
@pytest.mark.parametrize("method", [method for method in USES if method not in _LOOKING])
def test_a_special_method_of_an_object_that_is_opaque(method):
    every = os.environ.get("FLAMBEAU_SWEEPS") == "1"
    bases = OPAQUE if every or method == "__add__" else ["io.BytesIO"]
    for base, use in itertools.product(bases, USES[method]):
        ours, theirs = (asked_of_opaque(base, method, use, way) for way in (True, False))
        assert ours == theirs, (base, use)


if __name__ == "__main__":  # one method at a time, to see what a difference comes from
    import sys

    for base in sys.argv[1:] or BASES:
        for method in METHODS:
            try:
                found = differences(base, [method])
            except Exception as error:
                found = [(type(error), str(error)[:300])]
            for each in found:
                print(base, method, each, flush=True)
