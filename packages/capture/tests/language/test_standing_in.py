"""Functions of the library that are written in C, for which Python that does the same is captured:
what they refuse when they are called, in their own words, and what leaves the frame before it is
used. Generated: each of them, with arguments of every kind in each place.
"""

import itertools
import operator
import re

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.values.functions.call_rules import RULES

MODULES = ("itertools", "_heapq", "_bisect", "operator", "_operator")
FUNCTIONS = [
    fn for fn, rule in RULES.items()
    if rule.python is not None and getattr(fn, "__module__", "") in MODULES
    and hasattr(fn, "__name__") and fn not in (itertools.cycle, itertools.tee, operator.concat)
]  # fmt: skip
KINDS = {
    "list": "[3, 1, 2]", "empty": "[]", "number": "2", "negative": "-1", "text": "'ab'",
    "float": "1.5", "none": "None", "set": "{1}", "function": "len", "own": "(lambda *a: 1)",
    "deque": "collections.deque([1])", "pattern": "re.compile('a')", "range": "range(3)",
    "iterator": "iter([1, 2])", "bytes": "bytearray(b'ab')",
}  # fmt: skip
GIVEN = [(one,) for one in KINDS.values()]
GIVEN += list(itertools.product(KINDS.values(), repeat=2))


def program(fn, chunk):
    lines = ["def f(t):\n    R = [t + 1]"]
    for given in chunk:
        lines.append(f"    try:\n        a = {given[0]}")
        lines.append(f"        R.append((fn({', '.join(('a', *given[1:]))}), a))")
        lines.append("    except Exception as e:\n        R.append((type(e), str(e)))")
    lines.append("    return R")
    space = {"fn": fn, "re": re, "collections": __import__("collections")}
    exec("\n".join(lines), space)
    return space["f"]


def shown(value):
    """Items of what is iterated, the class of what is not."""
    kind = type(value).__name__
    if isinstance(value, tuple):
        return kind, [shown(item) for item in value]
    if isinstance(value, list | int | str | set | type):
        return kind, repr(value)
    if hasattr(value, "__next__"):
        try:
            return kind, [shown(item) for item in itertools.islice(value, 4)]
        except Exception as error:
            return kind, type(error), str(error)
    return kind


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_refused_and_leaving(fn):
    few = GIVEN[:: 1 + len(GIVEN) // 60]
    if "bisect" in fn.__name__ or "insort" in fn.__name__:  # of a set it depends on what it holds
        few = [given for given in few if given[0] != "{1}"]
    for start in range(0, len(few), 20):
        f = program(fn, few[start : start + 20])
        expected = f(torch.ones(2))[1:]
        ours = optimize("eager", raise_internal_errors=True)(f)(torch.ones(2))[1:]
        for given, want, got in zip(few[start:], expected, ours):
            assert shown(got) == shown(want), given
