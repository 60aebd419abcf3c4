"""Calls of what Python documents: built-in types, their methods and operators, the library.

In: chance. Out: functions of a few such calls, each by the table of a module's or a type's names
that Python itself gives, with arguments of every kind. Invariant: a call ends at once: numbers that
lengths follow from are small; what has no fixed text is shown by its class.
"""

from __future__ import annotations

import bisect
import builtins
import collections
import copy
import functools
import heapq
import inspect
import itertools
import math
import operator
import random
import re
import statistics
import textwrap
from textwrap import indent
from types import ModuleType
from typing import Any

from integration_tests.campaign.observing import Setting, namespace
from integration_tests.campaign.program import Call, Program

SETUP = """import bisect, builtins, collections, copy, functools, heapq, itertools, math, operator
import re, statistics, textwrap
def shown(value):
    if hasattr(value, "__next__"):
        value = [*itertools.islice(value, 5)]
    text = repr(value)
    return f"{type(value).__name__} {'' if '0x' in text else text}"
def add(a, b=2):
    return a + b"""

#: expressions by kind
POOL: dict[str, tuple[str, ...]] = {
    "int": ("0", "1", "-1", "2", "3", "7", "-5", "255", "n", "x.shape[0]", "len(xs)", "True", "n"),
    "float": ("0.0", "-0.0", "1.5", "-2.5", "float('inf')", "float('nan')", "1e300", "y", "3.0"),
    "complex": ("1j", "2 + 3j"),
    "str": ("''", "'a'", "'abc'", "'Hello World'", "' x '", "'12'", "'ß'", "s", "s", "'a,b'"),
    "bytes": ("b''", "b'abc'", "b'a b'"),
    "bytearray": ("bytearray(b'ab')",),
    "list": ("[]", "[1]", "[3, 1, 2]", "xs", "xs", "['b', 'a']", "[1.0, 2]", "[[1], [2]]"),
    "tuple": ("()", "(1,)", "(2, 1)", "(1, 'a')", "(n, y)", "('%', 2)"),
    "dict": ("{}", "{'a': 1}", "{1: 2, 'b': [3]}", "d", "d", "dict(zip('ab', xs))"),
    "set": ("set()", "{1, 2}", "{3}", "{*xs}", "{'a', 1}"),
    "frozenset": ("frozenset()", "frozenset({1, 3})", "frozenset(xs)"),
    "range": ("range(0)", "range(3)", "range(5, 0, -2)", "range(n)"),
    "slice": ("slice(1)", "slice(None, None, -1)", "slice(0, n)"),
    "NoneType": ("None",),
    "type": ("int", "str", "list", "dict", "ValueError", "float"),
    "function": ("len", "abs", "str.upper", "lambda a: a", "lambda a, b: a", "lambda: 3",
                 "operator.add", "lambda a: -a", "add", "str", "bool"),
    "iterator": ("iter([1, 2])", "iter('ab')", "zip(xs, 'abc')", "(k * 2 for k in xs)",
                 "enumerate(xs)", "map(str, xs)", "reversed([1, 2])"),
    "deque": ("collections.deque([1, 2], maxlen=3)", "collections.deque(xs)"),
    "Counter": ("collections.Counter('aab')", "collections.Counter(xs)"),
    "OrderedDict": ("collections.OrderedDict(a=1, b=2)",),
    "defaultdict": ("collections.defaultdict(list, a=[1])", "collections.defaultdict(int)"),
    "ChainMap": ("collections.ChainMap({}, d)", "collections.ChainMap({'a': 3})"),
    "partial": ("functools.partial(add, 1)", "functools.partial(add, b=n)"),
    "Match": ("re.match('(a)(?P<k>b?)', 'abc')",),
    "Pattern": ("re.compile('[ab]+')",),
}  # fmt: skip
LONG = ("2**65", "-(2**64)", "2**31", "1 << 63")
KINDS = tuple(POOL)
MODULES: tuple[ModuleType, ...] = (
    builtins, operator, math, itertools, functools, copy, bisect, heapq, re, statistics, textwrap,
    collections,
)  # fmt: skip
#: what would end, stop or read the process, has no fixed answer, or is its own compiler
NOT_CALLED = frozenset(
    "input open exec eval compile exit quit breakpoint help print id globals locals vars dir "
    "copyright credits license aiter anext super memoryview object purge template "
    "cache lru_cache cached_property namedtuple singledispatch singledispatchmethod".split()
)
BINARY = ("+", "-", "*", "/", "//", "%", "@", "&", "|", "^", "<<", ">>", "**")
COMPARED = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not")
GROWING = ("<<", "**", "*")


def names_of(holder: Any) -> list[str]:
    found = getattr(holder, "__all__", None) or dir(holder)
    return [
        name for name in found
        if not name.startswith("_") and name not in NOT_CALLED and callable(getattr(holder, name))
    ]  # fmt: skip


def arity(function: Any, bound: bool) -> tuple[int, int, list[str]]:
    """The least and most arguments worth giving, and the names that may be given by keyword."""
    try:
        parameters = [*inspect.signature(function).parameters.values()][int(bound) :]
    except (ValueError, TypeError):
        return 0, 3, []
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in plain)
    more = 2 if any(p.kind is p.VAR_POSITIONAL for p in parameters) else 0
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    named += [p.name for p in plain[needed:] if p.kind is p.POSITIONAL_OR_KEYWORD]
    return needed, min(len(plain) + more, 4), named


def value(chance: random.Random, kinds: tuple[str, ...] = KINDS) -> str:
    return chance.choice(POOL[chance.choice(kinds)])


def given(chance: random.Random, function: Any, bound: bool) -> str:
    least, most, named = arity(function, bound)
    parts = [value(chance) for _ in range(chance.randint(least, max(least, most)))]
    if named and chance.random() < 0.3:
        parts.append(f"{chance.choice(named)}={value(chance)}")
    return ", ".join(parts)


def specification(chance: random.Random) -> str:
    """A format specification, by its documented grammar."""
    pick = chance.choice
    text = pick(("", "", "<", ">", "^", "*^", "=", "0="))
    text += pick(("", "", "+", "-", " ")) + pick(("", "", "", "#")) + pick(("", "", "0"))
    text += pick(("", "", "5", "12")) + pick(("", "", "", ",", "_")) + pick(("", "", ".2", ".0"))
    return text + pick(("", "", *"bcdeEfFgGnosxX%"))


def percent(chance: random.Random) -> str:
    """A conversion of `%`, by its documented grammar."""
    pick = chance.choice
    return "%" + pick(("", "#", "0", "-", "+", " ")) + pick(("", "5", "*")) + pick(
        ("", ".1", ".0")
    ) + pick("diouxXeEfFgGcrsa%")  # fmt: skip


def expression(chance: random.Random) -> tuple[str, str]:
    """What stands before the call, and the call."""
    form = chance.random()
    if form < 0.3:
        kind = chance.choice(KINDS)
        made = chance.choice(POOL[kind])
        holder = type(eval(made, dict(_known())))
        names = names_of(holder)
        if names:
            name = chance.choice(names)
            bound = not isinstance(inspect.getattr_static(holder, name), staticmethod | classmethod)
            held = f"a = {made}"
            return held, f"a.{name}({given(chance, getattr(holder, name), bound)})"
    if form < 0.6:
        module = chance.choice(MODULES)
        name = chance.choice(names_of(module))
        return "", f"{module.__name__}.{name}({given(chance, getattr(module, name), False)})"
    numbers = ("int", "int", "float", "complex", "str", "list", "set")
    kinds = chance.choice((KINDS, numbers, ("int", "float"), ("int",)))
    a, b = value(chance, kinds), value(chance, kinds)
    if form < 0.75:
        symbol = chance.choice((*BINARY, *COMPARED))
        if symbol not in GROWING and chance.random() < 0.2:
            a = chance.choice(LONG)
        if symbol in BINARY and chance.random() < 0.3:
            return f"a = {a}\na {symbol}= {b}", "a"
        return "", f"({a}) {symbol} ({b})"
    if form < 0.8:
        sliced = chance.choice(("{b}", "{b}", "1:", ":-1", "::2", "n:", "::-1", "-2:n"))
        kinds = ("list", "str", "tuple", "range", "dict", "bytes", "deque", "Counter")
        return f"a = {value(chance, kinds)}", f"a[{sliced.format(b=b)}]"
    if form < 0.88:
        conversion = chance.choice(("", "", "", "!r", "!s", "!a"))
        kinds = chance.choice((("int",), ("float",), ("str",), ("complex",), KINDS))
        return f"a = {value(chance, kinds)}", f"f'{{a{conversion}:{specification(chance)}}}'"
    if form < 0.93:
        kinds = chance.choice((("int", "float"), ("str",), KINDS))
        return "", f"{percent(chance)!r} % ({value(chance, kinds)},)"
    if form < 0.96:
        target = chance.choice(("p, q", "p, *q", "*p, q", "(p, q), *r", "p, [q, *r]", "[p]"))
        return f"{target} = {a}", "p"
    symbols = chance.choices(("<", "<=", "==", ">", "!="), k=2)
    return "", f"{a} {symbols[0]} n {symbols[1]} {b}"


@functools.cache
def _known() -> dict[str, Any]:
    """Globals and arguments with which an expression is tried when it is drawn."""
    space = namespace(Setting())
    exec(SETUP, space)
    return space | {name: eval(text, space) for name, text in arguments(random.Random(0)).items()}


def arguments(chance: random.Random) -> dict[str, str]:
    shape = chance.choice(("(3,)", "(2, 3)", "(4,)", "(1,)"))
    return {
        "x": f"make({shape}, torch.float32, {chance.randrange(20)}, 'whole')",
        "n": str(chance.randrange(-1, 5)),
        "y": chance.choice(("0.5", "2.0", "-1.25", "3.7")),
        "s": repr(chance.choice(("a", "Ab c", "12", "", "x,y"))),
        "xs": chance.choice(("[1, 2, 3]", "[2, 1]", "[5]", "[1, 1, 4]", "[]")),
        "d": chance.choice(("{'a': 1}", "{'b': 2, 'a': 0}", "{}", "{1: 'c'}")),
    }


def works(before: str, call: str) -> bool:
    space = copy.deepcopy({k: v for k, v in _known().items() if k in ("xs", "d")})
    space = _known() | space
    try:
        exec(f"{before}\nresult = shown({call})", space)
    except Exception:
        return False
    return True


def statement(chance: random.Random) -> str:
    wanted = chance.random() < 0.85
    for _ in range(40):
        before, call = expression(chance)
        if works(before, call) == wanted:
            break
    lines = [before] if before else []
    lines.append(f"r = {call}")
    if chance.random() < 0.3 and isinstance(_tried(before, call), int | float):
        lines.append("t = t + r")
    kept = chance.choice(("R.append({})", "R.append({})", "R.append(shown({}))"))
    lines.append(kept.format("r"))
    if before.startswith("a = "):
        lines.append(kept.format("a"))
    text = "\n".join(lines)
    if not wanted or chance.random() < 0.2:
        caught = "R.append((type(error).__name__, str(error)))"
        text = f"try:\n{indent(text, '    ')}\nexcept Exception as error:\n    {caught}"
    return text


def _tried(before: str, call: str) -> Any:
    space = dict(_known())
    try:
        exec(f"{before}\nresult = {call}", space)
    except Exception:
        return None
    return space["result"]


def draw(chance: random.Random) -> Program:
    """Three to eight calls; two or three calls of the whole with other arguments."""
    body = ["R = []", "t = x * 2", *(statement(chance) for _ in range(chance.randrange(3, 9)))]
    after = ("SEEN = [shown(value) for value in out[1]]",)
    calls = tuple(Call(arguments(chance), (), after) for _ in range(chance.choice((2, 2, 3))))
    return Program("library", 0, tuple(body), ("t", "R"), calls, (SETUP,))
