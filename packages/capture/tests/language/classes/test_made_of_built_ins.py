"""Classes of the program that derive from built-in ones and hand arguments on to their `__new__`
and `__init__`: what is refused, and in which words, depends on which of the two are the class's
own. Generated: every base, both methods, what is handed on and how.
"""

import itertools

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of

BASES = (object, str, int, float, complex, bytes, tuple, frozenset, list, dict, set)
GIVEN = {"": ((), {}), "()": (((),), {}), "a=1": ((), {"a": 1}), "1, 2": ((1, 2), {})}
#: what a method of the class's own hands on; None: the class has none
NEW = {"none": None, "nothing": "", "all": ", *a, **k"}
INIT = {**NEW, "one": ", ()"}
WAYS = {"super": "super().{0}({1})", "class": "{2}.{0}({1})"}


def made_class(base, way, new, init):
    """A class statement's class, whose methods hand on what they are to."""
    call = WAYS[way]
    body = ["class C(base):\n    kept = None"]
    if new is not None:
        handed = call.format("__new__", f"cls{new}", "base")
        body.append(f"    def __new__(cls, *a, **k):\n        return {handed}")
    if init is not None:
        handed = call.format("__init__", f"self{init}" if way == "class" else init[2:], "base")
        body.append(f"    def __init__(self, *a, **k):\n        {handed}\n        self.kept = 1")
    scope = {"base": base, "__name__": "program"}
    exec("\n".join(body), scope)
    return scope["C"]


def shown(o):
    if isinstance(o, list | dict | set | frozenset):
        return [*o]
    return None if type(o).__base__ is object else str(o)


def tried(x, C, a, k):
    found = []
    try:
        o = C(*a, **k)
        found.append((o.kept, shown(o)))
        o.__init__(*a, **k)
        found.append((o.kept, shown(o)))
    except Exception as error:
        found.append((type(error).__name__, str(error)))
    return x + 1, found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("init", INIT)
@pytest.mark.parametrize("new", NEW)
@pytest.mark.parametrize("base", BASES, ids=lambda kind: kind.__name__)
def test_what_a_built_in_base_refuses(base, new, init, way):
    C = made_class(base, way, NEW[new], INIT[init])
    run = optimize("eager", raise_internal_errors=True)(tried)
    for a, k in GIVEN.values():
        assert tried(torch.ones(2), C, a, k)[1] == run(torch.ones(2), C, a, k)[1]
    records = compiler_of(run).records
    assert not records.faults
    unread = base in (float, tuple, frozenset, list)  # names that they take and do not look at
    assert unread or not records.breaks


def test_the_words_name_the_class_that_refuses():
    """What the generated cases are compared by differs between them."""
    words = set()
    for base, new, init in itertools.product((object, str, list), NEW.values(), INIT.values()):
        C = made_class(base, "super", new, init)
        found = [tried(torch.ones(2), C, a, k)[1][-1] for a, k in GIVEN.values()]
        words |= {text for kind, text in found if kind == "TypeError"}
    assert {"C() takes no arguments", "list expected at most 1 argument, got 2"} <= words
    assert any(text.startswith("object.__init__() takes exactly one") for text in words)
    assert any(text.startswith("object.__new__() takes exactly one") for text in words)
