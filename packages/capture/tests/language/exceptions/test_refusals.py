"""What Python refuses, in its own words: built-in classes by the name that CPython gives them. And
what it makes: the order of sets, the classes of iterators and views. Generated: every use of every
kind of object, inside `try`.
"""

import collections
import enum
import functools  # noqa: F401 - the text of the programs asks for it
import itertools
import re
import typing

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of

MADE = (
    "re.compile('a')", "functools.partial(int)", "collections.deque([1])", "{1: 2}.items()",
    "collections.OrderedDict(a=1).values()", "{'a': 1}.keys()", "slice(1, 2)", "range(2)", "None",
    "Own()", "Error('e')", "Pair(1, 2)", "Own", "Kind.A", "[1, 2]", "(1, 2)", "{1, 3}", "2.5",
    "'a'", "b'b'", "frozenset((1,))", "collections.defaultdict(int)", "Slotted()",
    "re.match('a', 'a')",
)  # fmt: skip
USES = (
    "len(o)", "o[0]", "o()", "[*o]", "next(o)", "o.absent", "hash(o) * 0", "vars(o) and 1",
    "list(reversed(o))", "add(*o)", "0 in o", "o * 'a'", "'a' * o", "int(o)", "-o", "o + [1]",
    "operator.setitem(o, 0, 1)", "operator.delitem(o, 0)", "hasattr(o, '__next__')", "type(o)",
    "o.copy() is o", "divmod(o, o)", "operator.iadd(o, {})", "operator.index(o)",
    "(lambda a, b: a)(*o)",    "[1, 2][o]", "sum(o)", "dict(o)", "functools.partial(o, 1) and 1",
    "list(map(type, itertools.tee(o)))", "functools.reduce(add, o)",
    "collections.defaultdict(o, o) and 1", "setattr(o, 'absent', 1)", "o.a", "round(o)",
)  # fmt: skip


class Own:
    pass


class Slotted:
    __slots__ = ("a",)


class Error(Exception):
    pass


class Kind(enum.Enum):
    A = 1


class Pair(typing.NamedTuple):
    a: int
    b: int


def add(a, b):
    return a + b


def program(made, uses):
    lines = ["def f(x):", f"    R = [x + 1, {made!r}]"]
    for use in uses:
        lines += [
            "    try:",
            f"        o = {made}",
            f"        R.append(({use!r}, {use}))",
            "    except Exception as error:",
            f"        R.append(({use!r}, type(error), str(error)))",
        ]
    space = {**globals(), "__name__": "of_the_program", "operator": __import__("operator")}
    exec("\n".join([*lines, "    return R"]), space)
    return space["f"]


@pytest.mark.sweep(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("made", MADE)
def test_what_is_refused(made):
    f = program(made, USES)
    ours = optimize("eager")(f)
    runs = []
    for run in (f, ours):
        for holder in (Own, Kind.A):  # the program may have set it
            if "absent" in vars(holder):
                del holder.absent
        runs.append([re.sub("0x[0-9a-f]+", "", str(each)) for each in run(torch.ones(2))])
    assert runs[0] == runs[1]
    assert not compiler_of(ours).records.faults


ARGUMENTS = ("b'abc'", "[9, 17, 1]", "frozenset((1, 9))", "range(20, 30)")
WAYS = (
    "union", "symmetric_difference", "update", "difference", "intersection", "copy",
    "symmetric_difference_update", "intersection_update",
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_sets_come_in_their_order(way):
    def f(x, start, given):
        made = set(start)
        found = getattr(made, way)(*(() if way == "copy" else (given,)))
        return x + 1, made, found, set(given), {*given, *start}, list(made)

    for start in ("{3}", "[1, 9, 17]"):
        for given in ARGUMENTS:
            values = eval(start), eval(given)
            expected = f(torch.ones(1), *values)
            got = optimize("eager")(f)(torch.ones(1), *values)
            assert [str(each) for each in got[1:]] == [str(each) for each in expected[1:]], given


LATER = (
    "del Pair.a",
    "Pair.a = property(lambda self: 9)",
    "Pair.b = 3",
    "Pair.c = 4",
    "Pair.a = None",
)


@pytest.mark.parametrize(
    "change", [*LATER, "Pair.__len__ = lambda self: 0", "Pair.__bool__ = None"]
)
@pytest.mark.parametrize("inside", [False, True])
def test_a_named_tuple_whose_class_changes(change, inside):
    text = """
class Pair(typing.NamedTuple):
    a: int = 1
    b: int = 2
def f(x, o):
    R = [x + 1]
    o = Pair() if o is None else o
    for name in ("a", "b", "c"):
        try: R.append(getattr(o, name))
        except AttributeError as error: R.append(str(error))
    try: R.append((len(o), bool(o)))
    except TypeError as error: R.append(str(error))
    return R[1:]
"""
    space = {"typing": typing, "__name__": "of_the_program"}
    exec(text, space)
    f, given = space["f"], None if inside else space["Pair"]()
    ours = optimize("eager", raise_internal_errors=True)(f)
    assert ours(torch.ones(2), given) == f(torch.ones(2), given)
    exec(change, space)
    assert ours(torch.ones(2), given) == f(torch.ones(2), given)


def test_what_the_classes_of_views_and_iterators_are():
    def f(x):
        made = collections.OrderedDict(a=1), {"a": 1}
        return x + 1, [type(view) for d in made for view in (d.keys(), d.values(), d.items())]

    def g(x):
        return x + 1, itertools.tee([1, 2], 3)

    assert optimize("eager")(f)(torch.ones(2))[1] == f(torch.ones(2))[1]
    branches = optimize("eager")(g)(torch.ones(2))[1]
    assert [type(each) for each in branches] == [type(each) for each in g(torch.ones(2))[1]]
    assert [list(each) for each in branches] == [[1, 2]] * 3
