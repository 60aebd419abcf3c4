"""Built-ins called wrongly inside `try`: the exception, its words and what was done before it are
CPython's. The calls are generated: every built-in and every method of the built-in containers, with
too few, too many, wrongly named and wrongly typed arguments."""

import builtins
import collections
import itertools
import linecache
import os
import types

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of

ONE = ["1", "'ab'", "[1, 2]", "{1}", "{'a': 1}", "None", "2.5", "(3, 4)", "b'x'"]
TWO = ["1", "'ab'", "[1, 2]", "None", "{'a': 1}"]
ARGUMENTS = [
    "",
    *ONE,
    *(f"{a}, {b}" for a, b in itertools.product(TWO, repeat=2)),
    "1, 2, 3",
    "[1], [2], [3]",
    "1, 2, 3, 4, 5, 6, 7",
    "wrong=1",
    "[1], wrong=1",
    "1, key=None",
    "[2, 1], key=None, reverse=True",
    "[], default=3",
]
FEW = ["", "1", "'ab'", "[1, 2]", "1, 'ab'", "[1], [2]", "1, 2, 3, 4, 5, 6, 7", "[1], wrong=1"]
ALL = bool(os.environ.get("FLAMBEAU_ALL_CALLS"))  # every list of arguments for every method
COMPUTED = {"str", "bytes", "int", "float", "complex", "bool", "range"}  # by Python itself
RECEIVERS = {
    "list": "[3, 1, 2]",
    "dict": "{'a': 1, 2: 'b'}",
    "set": "{1, 2}",
    "frozenset": "frozenset({1, 2})",
    "tuple": "(3, 1, 2)",
    "str": "'a-b c'",
    "bytes": "b'ab c'",
    "int": "5",
    "float": "2.5",
    "complex": "(1+2j)",
    "bool": "True",
    "deque": "collections.deque([1, 2, 3], 4)",
    "OrderedDict": "collections.OrderedDict(a=1, b=2)",
    "defaultdict": "collections.defaultdict(list, a=1)",
    "Counter": "collections.Counter('abca')",
    "range": "range(3)",
    "slice": "slice(1, 2)",
    "keys": "{'a': 1}.keys()",
    "items": "{'a': 1}.items()",
    "values": "{'a': 1}.values()",
    "iterator": "iter([1, 2])",
    "generator": "(x for x in [1, 2])",
}
# they look at the frame, at the world, or make what compares by identity alone
LEFT_OUT = set(
    "breakpoint copyright credits exit quit help license input open exec eval compile print "
    "globals locals vars dir memoryview aiter anext object super id property".split()
)
NOT_ASKED = set(
    "__class__ __init_subclass__ __subclasshook__ __new__ __dir__ __reduce__ __reduce_ex__ "
    "__getstate__ __sizeof__ __class_getitem__ __getnewargs__ __setstate__ __doc__ __hash__ "
    "__setattr__ __getattribute__ __delattr__ __init__ __getformat__ __length_hint__ __copy__ "
    "__del__ __repr__ __str__ __format__".split()
)


def functions():
    for name in sorted(dir(builtins)):
        found = getattr(builtins, name)
        error = isinstance(found, type) and issubclass(found, BaseException)
        if not name.startswith("_") and name not in LEFT_OUT and callable(found) and not error:
            yield name


def methods(receiver):
    made = eval(receiver)
    for name in sorted(dir(made)):
        if callable(getattr(made, name)) and name not in NOT_ASKED:
            yield name


def program(lines, name):
    text = "\n".join(["import collections, re", "def f(t):", "    out = []", *lines])
    text += "\n    return t + 1, out\n"
    path = f"/refused/{name}.py"
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    namespace = {}
    exec(compile(text, path, "exec"), namespace)
    return namespace["f"]


def attempt(call, receiver=None):
    lines = ["    try:"]
    if receiver is not None:
        lines += [f"        x = {receiver}"]
    seen = ", x" if receiver is not None else ""
    return [
        *lines,
        f"        out.append(('answers', {call}{seen}))",
        "    except Exception as error:",
        f"        out.append(('raises', type(error), str(error){seen}))",
    ]


def plain(value):
    """What two runs have in common of a value."""
    kind = type(value).__name__
    if isinstance(value, list | tuple | collections.deque):
        return kind, [plain(item) for item in value]
    if isinstance(value, dict):
        return kind, [(plain(key), plain(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return kind, sorted(map(repr, value))
    if hasattr(value, "__iter__") and not isinstance(value, str | bytes | range):
        try:
            return "iterable", [plain(item) for item in itertools.islice(value, 20)]
        except Exception as error:
            return type(error), str(error)
    return kind if isinstance(value, types.FunctionType | type) else (kind, repr(value))


def agree(lines, calls, name):
    f = program([line for group in lines for line in group], name)
    compiled = optimize("eager", raise_internal_errors=True)(f)
    want, got = f(torch.ones(2))[1], compiled(torch.ones(2))[1]
    assert not compiler_of(compiled).records.internal_errors
    for call, one, other in zip(calls, want, got, strict=True):
        assert [plain(x) for x in other] == [plain(x) for x in one], call


@pytest.mark.parametrize("name", functions())
def test_built_in_functions(name):
    calls = [f"{name}({arguments})" for arguments in ARGUMENTS]
    agree([attempt(call) for call in calls], calls, name)


@pytest.mark.sweep(15)
@pytest.mark.parametrize(
    ("kind", "name"), [(k, m) for k in RECEIVERS for m in methods(RECEIVERS[k])]
)
def test_methods(kind, name):
    few = kind in COMPUTED or name.startswith("__")
    calls = [f"x.{name}({given})" for given in (FEW if few and not ALL else ARGUMENTS)]
    agree([attempt(call, RECEIVERS[kind]) for call in calls], calls, f"{kind}_{name}")


OPERANDS = {
    "number": "2.5",
    "text": "'ab'",
    "tuple": "(1, 2)",
    "list": "[1]",
    "set": "{1}",
    "dict": "{'a': 1}",
    "deque": "collections.deque([1])",
    "range": "range(3)",
    "slice": "slice(1)",
    "class": "int",
    "pattern": "re.compile('a')",
    "none": "None",
}
SYMBOLS = ("+", "-", "*", "/", "//", "@", "&", "|", "^", "<<", "**")


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", OPERANDS)
def test_operators(name):
    """Of two operands, in place and not; of one; subscripts."""
    calls = [f"x {symbol} {other}" for symbol in SYMBOLS for other in OPERANDS.values()]
    calls += [f"{symbol}x" for symbol in "+-~"] + [f"x[{key}]" for key in OPERANDS.values()]
    groups = [attempt(call, OPERANDS[name]) for call in calls]
    for symbol, other in itertools.product(SYMBOLS, OPERANDS.values()):
        calls.append(f"x {symbol}= {other}")
        group = attempt("x", OPERANDS[name])
        groups.append([*group[:2], f"        {calls[-1]}", *group[2:]])
    agree(groups, calls, f"operators_{name}")


@pytest.mark.parametrize("name", OPERANDS)
def test_what_is_no_exception(name):
    made = OPERANDS[name]
    thrown = (made, f"{made}, 1", f"ValueError, None, {made}", f"ValueError(), {made}")
    calls = [f"(k for k in ()).throw({given})" for given in thrown]
    groups = [attempt(call) for call in calls]
    for text in (f"raise ValueError from {made}", f"raise {made}"):
        calls.append(text)
        group = attempt("0")
        groups.append([group[0], f"        {text}", *group[1:]])
    agree(groups, calls, f"raised_{name}")


@pytest.mark.parametrize("kind", ["(1, 2)", "[1, 2]", "collections.deque([1, 2])", "'ab'"])
def test_bounds_of_a_search(kind):
    calls = [f"x.index(3, {bound})" for bound in OPERANDS.values()]
    agree([attempt(call, kind) for call in calls], calls, f"searched_{len(kind)}")


def test_methods_of_patterns():
    functions = ("'b'", "lambda m: 'b'", "str", "[]")
    calls = [f"x.sub({made}{more})" for made in functions for more in (
        "", ", 'abc'", ", 'abc', 1", ", 'abc', 1, 2", ", 'abc', flags=1", ", 'abc', 1, count=2",
        ", string='abc', count=1", ", 5", ", 'abc', 'd'")]  # fmt: skip
    calls += [f"x.{name}({given})" for name in ("match", "split", "findall", "subn")
              for given in ("", "'abc'", "5", "1, 2, 3, 4", "flags=2")]  # fmt: skip
    agree([attempt(call, "re.compile('a')") for call in calls], calls, "patterns")


@pytest.mark.parametrize("made", ["'abc'", "b'abc'", "(1, 2)", "[1, 2]", "range(3)", "{'a': 1}"])
def test_classes_of_reversed_iterators(capture, made):
    """Given away and asked for."""
    f = program(
        [f"    out = reversed({made}), type(reversed({made})).__name__"], f"back_{len(made)}"
    )
    (want, name), (got, asked) = (fn(torch.ones(2))[1] for fn in (f, capture(f)))
    assert (type(got), [*got], asked) == (type(want), [*want], name)


def test_a_number_that_is_only_passed_along_is_not_guarded_by_the_question(capture, backend):
    kept = []

    def f(t, n):
        kept.append(n)
        return t + 1

    compiled = capture(f)
    for n in (1, 2, "a"):
        compiled(torch.ones(2), n)
        kept.clear()
    assert len(backend) == 1
