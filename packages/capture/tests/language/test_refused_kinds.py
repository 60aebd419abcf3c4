"""What functions in C and operators refuse by the class of an operand without an object at capture:
the exception and its words are CPython's, in one graph where nothing else is met. Generated: pure
functions and methods of literals, each with each kind of value; operators over sets and dicts."""

import cmath
import itertools
import linecache
import math

import pytest
import torch
from flambeau_capture import optimize

KINDS = {
    "function": "(lambda: 1)", "slice": "slice(t)", "counter": "collections.Counter('a')",
    "iterator": "iter([t])", "plain": "Plain(t)", "number": "Number(t)", "items": "Items(t)",
    "match": "re.match('a', 'a')", "zip": "zip([t], [t])", "enumerate": "enumerate([t])",
    "tensors": "[t]", "named": "{'t': t}", "partial": "functools.partial(print, t)",
}  # fmt: skip
CALLS = [
    *(f"math.{name}({{}})" for name in dir(math) if callable(getattr(math, name))),
    *(f"cmath.{name}({{}})" for name in dir(cmath) if callable(getattr(cmath, name))),
    *(f"'abc'.{name}({{}})" for name in dir(str) if name[0] != "_" and name != "format"),
    *(f"b'abc'.{name}({{}})" for name in dir(bytes) if name[0] != "_"),
    *(f"(5).{name}({{}})" for name in dir(int) if name[0] != "_"),
    "bytearray(b'ab').find({})", "bytearray(b'ab').extend({})", "struct.unpack('<i', {})",
    "struct.pack('<i', {})", "re.finditer('a', {})", "re.sub('a', 'b', {})", "int.from_bytes({})",
    "struct.Struct('<i').unpack({})", "struct.Struct('<i').pack({})", "hashlib.md5().update({})",
    "struct.Struct('<i').iter_unpack({})", "io.StringIO('a').write({})", "io.BytesIO().write({})",
    "array.array('i').append({})", "array.array('i').extend({})",
    "len({})", "iter({})", "[1][{}]", "list({})", "sum({})", "3 in {}", "{}[0]", "sorted({})",
]  # fmt: skip
SETUP = """
import array, cmath, collections, functools, hashlib, io, math, re, struct
class Plain:
    def __init__(self, t): self.t = t
class Number(Plain):
    def __float__(self): return 0.5
    def __index__(self): return 2
class Items(Plain):
    def __len__(self): return 1
    def __getitem__(self, at): return [1][at]
def shown(r):
    if hasattr(r, "__next__"):
        r = list(r)
    return r if "0x" not in repr(r) else type(r).__name__
"""


def written(expressions, path):
    lines = ["def f(t, n):", "    out = []"]
    for expression in expressions:
        lines += [f"    try: out.append(shown({expression}))", "    except Exception as error:"]
        lines += ["        out.append((type(error), str(error)))"]
    text = "\n".join([SETUP, *lines, "    return t + 1, out", ""])
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    namespace = {"torch": torch}
    exec(compile(text, path, "exec"), namespace)
    return namespace["f"]


def same(expressions, path, **options):
    f = written(expressions, path)
    want = f(torch.ones(1), 2)[1]
    got = optimize("eager", raise_internal_errors=True, **options)(f)(torch.ones(1), 2)[1]
    for expression, one, other in zip(expressions, want, got, strict=True):
        assert repr(one) == repr(other), expression


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_functions_in_c(kind):
    same([call.replace("{}", KINDS[kind]) for call in CALLS], f"/refused/{kind}.py")


def test_refused_in_one_graph():
    calls = ("math.sin({})", "'abc'.find({})", "struct.unpack('<i', {})", "bytearray(1).find({})")
    kinds = ("function", "slice", "counter", "plain", "match", "zip")
    expressions = [call.replace("{}", KINDS[kind]) for call in calls for kind in kinds]
    same([*expressions, "len(slice(n))", "list(slice(n))", "3 in (lambda: 1)"],
         "/refused/one.py", nopython=True)  # fmt: skip


SIDES = ["{1, n}", "{'a': n}", "frozenset([1])", "{'a': n}.keys()", "n", "'a'", "[n]", "(1,)"]
SYMBOLS = "+ - * / // % ** @ << >> & | ^ < <= > >=".split()


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_operators_over_sets_and_dicts(symbol):
    pairs = [pair for pair in itertools.product(SIDES, repeat=2) if "{" in "".join(pair)]
    same([f"{left} {symbol} {right}" for left, right in pairs], "/refused/sides.py", nopython=True)
