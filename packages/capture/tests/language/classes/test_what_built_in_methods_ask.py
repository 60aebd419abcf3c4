"""Methods in C of instances whose class overrides one method in Python: which of them call it, what
they take of an instance of a subclass, and what they give."""

import collections
import copy
import functools
import itertools
import operator

import flambeau_capture
import pytest
import torch

LOG = []
BASES = {
    collections.deque: "[1, 2]", list: "[1, 2]", tuple: "[1, 2]", set: "[1, 2]", str: "'ab'",
    frozenset: "[1, 2]", dict: "{'a': 1, 'b': 2}", collections.Counter: "'aab'",
    collections.OrderedDict: "{'a': 1, 'b': 2}", int: "3", float: "2.5", bytes: "b'ab'",
}  # fmt: skip
SIGNATURES = {
    "__iter__": "", "__len__": "", "__getitem__": "k", "__contains__": "k", "__eq__": "k",
    "__reversed__": "", "keys": "", "items": "", "__lt__": "k", "__ge__": "k", "copy": "",
    "__add__": "k", "__or__": "k", "__mul__": "k", "update": "*k", "append": "k", "extend": "k",
    "__imul__": "k",
}  # fmt: skip
OPERATIONS = (
    """
o == o2; o != o2; o < o2; o <= o2; o >= o2; o == p; p == o; o + o2; o + p; o * 2; 2 * o; o | o2
o | p; o & o2; o - o2; o ^ o2; 1 in o; len(o); bool(o); list(o); tuple(o); sorted(o); repr(o)
copy.copy(o); o.copy(); [*o]; give(*o); {**o}; dict(zip("ab", o)); list(enumerate(o)); max(o)
sum(o); any(o); p.extend(o); p.update(o); {1} | o; {1}.union(o); {1} <= o; o[0]; o["a"]; o.count(1)
o.index(1); list(o.items()); o.isdisjoint(o2); B.__eq__(o, o2); B.__add__(o, o2); type(o)(o)
list(itertools.chain(o, o2)); functools.reduce(lambda a, b: a, o); operator.eq(o, o2)
o.extend(o); o.extendleft(o); o.__iadd__(o); o.__setitem__(slice(1), o); o.isdisjoint(o)
{1}.isdisjoint(o); {1: 2, 3: 4}.keys().isdisjoint(o); {1: 2}.items().isdisjoint(o)
collections.deque(o); frozenset(o); torch.tensor(o); x.new_tensor(o); x.expand(*o); B.__lt__(o, o2)
""".replace("\n", ";")
    .strip("; ")
    .split("; ")
)
OPERATIONS = [each.strip() for each in ";".join(OPERATIONS).split(";") if each.strip()]


class OtherIterator(collections.deque):
    """Whose iterator is no iterable."""

    def __iter__(self):
        return type("Items", (), {"__next__": super().__iter__().__next__})()


class OtherLimit(collections.deque):
    maxlen = 7


class OtherCopy(collections.deque):
    def __new__(cls, *given):
        return super().__new__(cls) if not given or type(given[0]) is list else [1]


@pytest.mark.parametrize("kind", (OtherIterator, OtherLimit, OtherCopy))
def test_a_deque_s_methods_take_nothing_else_from_its_class(kind, check):
    def fn(t):
        rows = []
        for ask in DEQUES_ASKED:
            one = kind([1, 2], 3)
            try:
                found = ask(one, kind([1, 3]))
            except TypeError as error:
                found = str(error)
            rows.append((str(found), str(one)))
        return t + 1, rows

    check(fn, torch.ones(2), graphs=None)


DEQUES_ASKED = (
    lambda a, b: a == b, lambda a, b: a < b, lambda a, b: a.copy(), lambda a, b: a + b,
    lambda a, b: a * 2, lambda a, b: a + [1], lambda a, b: a + collections.OrderedDict(),
    lambda a, b: a.__mul__("a"), lambda a, b: repr(a), lambda a, b: a.extend(a),
)  # fmt: skip


def plain(value):
    """A result as its class and what built-in code reads of it."""
    for base in BASES:
        if isinstance(value, base):
            items = value if base in (str, int, float, bytes) else None
            if items is None:
                items = dict.items(value) if issubclass(base, dict) else base.__iter__(value)
                items = [plain(each) if type(each) is not tuple else repr(each) for each in items]
            return type(value).__name__, base.__repr__(items) if base in (str, int) else repr(items)
    return repr(value)


def program(base, overridden):
    given = SIGNATURES[overridden]
    source = f"class C(B):\n def {overridden}({', '.join(['self', given]).rstrip(', ')}):\n"
    source += f"  LOG.append({overridden!r})\n  return super().{overridden}({given})\n"
    if overridden == "__eq__" and base.__hash__ is not None:
        source += " __hash__ = B.__hash__\n"
    made = f"o, o2, p = C({BASES[base]}), C({BASES[base]}), B({BASES[base]})"
    source += "def f(x):\n r = []\n"
    for operation in OPERATIONS:
        source += f" {made}\n LOG.append({operation!r})\n try:\n  r.append({operation})\n"
        source += " except Exception as error:\n  r.append((type(error).__name__, str(error)))\n"
    space = {
        "B": base, "LOG": LOG, "give": lambda *a: a, "copy": copy, "itertools": itertools,
        "functools": functools, "operator": operator, "collections": collections, "torch": torch,
    }  # fmt: skip
    exec(f"{source} return x + 1, r\n", space)
    return space["f"]


@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    ("base", "overridden"),
    [pair for pair in itertools.product(BASES, SIGNATURES) if hasattr(*pair)],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_an_overridden_method_is_called_where_built_in_code_calls_it(base, overridden):
    f = program(base, overridden)
    seen = []
    for function in (f, flambeau_capture.optimize("eager")(f)):
        LOG.clear()
        results = function(torch.ones(2, 1))[1]
        asked = list(LOG)  # what is read of the results may ask, too
        seen.append(([plain(each) for each in results], asked))
    assert seen[0] == seen[1]
