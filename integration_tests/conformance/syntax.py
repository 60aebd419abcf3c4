"""Statements, expressions and patterns, by the classes of `ast`.

In: a table of programs. Out: constructs by class and variant. Invariant: every class of `ast` that
source code has, and every field of it filled and empty, is in some program: `unmet` lists others.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from integration_tests.conformance.construct import Construct, caught, together

#: by class and variant: programs; a program that raises is one whose error is looked at
STATEMENTS: dict[str, tuple[str, ...]] = {
    "FunctionDef": ("def g(a): return a + n\nt = g(t)", "def g():\n    pass\nR.append(g())"),
    "FunctionDef: arguments": (
        "def g(a, /, b, c=3, *d, e, f=n, **h):\n    return (a, b, c, d, e, f, h)\n"
        "R.append(g(1, 2, e=5))\nR.append(g(1, b=2, e=3, z=t))\nR.append(g(*[1, 2, 3, 4], e=0))",
        "def g(a: int, *b: str, c: float = 1.0, **d: list) -> tuple:\n    return a, b, c, d\n"
        "R.append((g(1), sorted(g.__annotations__)))",
        "def g(a=[], *, k={}):\n    a.append(n)\n    k[n] = len(a)\n    return a, k\n"
        "g()\nR.append(g())",
        "def g(a, b): return a\nfor bad in ((), (1,), (1, 2, 3)):\n    try:\n        g(*bad)\n"
        "    except TypeError as error:\n        R.append(str(error))",
    ),
    "FunctionDef: decorators": (
        "@decorated\ndef g(a): return a * n\nt = g(t)",
        "@functools.lru_cache(maxsize=4)\ndef g(k): return k * 2\nt = t + g(n) + g(n)",
        "@noted('d')\ndef g(): return t\nt = g()",
    ),
    "FunctionDef: closures": (
        "k = n\ndef g():\n    nonlocal k\n    k += 1\n    return k\nt = t + g() + g()\nR.append(k)",
        "def g():\n    return late\nlate = n\nt = t + g()",
        "def g():\n    return never\n" + caught("g()") + "\nif n > 50:\n    never = 1",
        "def fib(k): return k if k < 2 else fib(k - 1) + fib(k - 2)\nt = t + fib(n + 3)",
    ),
    "FunctionDef: generator": (
        "def g():\n    got = yield t\n    R.append(got)\n    yield n\nk = g()\nt = t + next(k)\n"
        "R.append(k.send('s'))",
        "def g():\n    for k in xs:\n        yield k\nt = t + sum(g())",
    ),
    "FunctionDef: escapes": (
        "def g(a, k=n): return a + k\nR.append(g)", "R.append([lambda a: a + t])",
    ),
    "FunctionDef: attributes": (
        "def g(): 'doc'\ng.k = n\nR.append((g.k, g.__name__, g.__doc__, g.__qualname__[:1]))",
    ),
    "AsyncFunctionDef": (
        "async def g(): return n\ntry:\n    g().send(None)\n"
        "except StopIteration as done:\n    R.append(done.value)",
    ),
    "AsyncFunctionDef: arguments": (
        "async def g(a, *, k: int = 1) -> int: return a + k\nk = g(n)\nk.close()\nR.append(n)",
        "def wrap(f): return f\n@wrap\nasync def g(): pass\nR.append(g.__name__)",
    ),
    "AsyncFor": (
        "class Steps:\n    def __aiter__(self): return self\n    async def __anext__(self):\n"
        "        raise StopAsyncIteration\n"
        "async def g():\n    async for k in Steps(): pass\n    return n\n"
        "try:\n    g().send(None)\nexcept StopIteration as done:\n    R.append(done.value)",
        "async def steps():\n    yield n\nasync def g():\n    async for k in steps(): R.append(k)\n"
        "    else: R.append('end')\n"
        "try:\n    g().send(None)\nexcept StopIteration as done:\n    R.append(done.value)",
    ),
    "AsyncWith": (
        "class Both:\n    async def __aenter__(self): return n\n"
        "    async def __aexit__(self, *e): LOG.append('out')\n"
        "async def g():\n    async with Both() as k: return k\n"
        "try:\n    g().send(None)\nexcept StopIteration as done:\n    R.append(done.value)",
    ),
    "ClassDef": (
        "class C: pass\nR.append(C.__name__)",
        "class C:\n    k = n\n    def m(self): return self.k\nt = t + C().m()",
        "class C:\n    def __init__(self, t): self.t = t\n    def double(self): return self.t * 2\n"
        "t = C(t).double()",
    ),
    "ClassDef: bases": (
        "class C(Pair):\n    def sum(self): return self.a + self.b\nt = C(t, n).sum()",
        "class C(dict): pass\nR.append(C(a=n)['a'])", "class C(Own): pass\n" + caught("raise C(n)"),
        "class C(torch.nn.Module):\n    def forward(self, a): return a + n\nt = C()(t)",
    ),
    "ClassDef: keywords": (
        "class Meta(type): pass\nclass C(metaclass=Meta): k = 1\nt = t + C.k",
        "class B:\n    def __init_subclass__(cls, k=0): LOG.append(k)\nclass C(B, k=n): pass\n"
        "t = t + 1",
    ),
    "ClassDef: decorators": (
        "@dataclasses.dataclass\nclass C:\n    a: int\n    b: int = 2\nt = t + C(n).b",
        "@functools.total_ordering\nclass C:\n    def __init__(self, k): self.k = k\n"
        "    def __lt__(self, o): return self.k < o.k\nt = t + (C(1) > C(n))",
    ),
    "Return": ("def g(): return t\nt = g()", "def g(): return\nR.append(g())",
               "def g(): return t, n\nt, k = g()", "if n == 3: return t\nt = t + 1"),
    "Delete": (
        "k = n\ndel k\n" + caught("k"), "del xs[0]\nR.append(xs)", "del xs[:1]", "d = {'a': n}\n"
        "del d['a']\nR.append(d)", "p = Pair(t)\ndel p.b\nR.append(p.b)", "a = b = t\ndel a, (b)",
        caught("del {}['k']"), caught("del xs[9]"),
    ),
    "Assign": ("a = b = t + n\nt = a * b", "a, b = n, t\nt = a + b", "(a, [b, *c]) = (1, xs)\n"
               "R.append((a, b, c))", "*a, b = 'xyz'\nR.append((a, b))", "xs[0] = n\nR.append(xs)",
               "xs[1:] = [n, n]", "p = Pair(t)\np.b = n\nt = t + p.b", "d = {}\nd[n] = t\nt = d[n]",
               caught("a, b = xs, 1, 2"), caught("a, b = n"), "t[0] = n", "t[1:] = t[:-1].clone()",
               "a, b, *c = t\nR.append(c)"),
    "AugAssign": ("n += 1\nt = t + n", "xs += [n]\nR.append(xs)", "t += 1", "xs[0] += n",
                  "p = Pair(t)\np.b += n\nt = t + p.b", "d = {'a': 1}\nd['a'] += n\nR.append(d)",
                  "s = 'a'\ns += 'b'\nR.append(s)", caught("k = ()\nk += 1"), "x += 1",
                  "k = (1,)\nk += (n,)\nR.append(k)", "t[0] += 1", "t.data += 1"),
    "AnnAssign": ("k: int = n\nt = t + k", "k: int\nk = 2\nt = t + k", "p = Pair(t)\np.b: int = n",
                  "(k): int = n\nt = t + k", "xs[0]: int = n"),
    "For": ("for k in xs: t = t + k", "for k in range(n): t = t * 2", "for a, b in zip(xs, xs): "
            "t = t + a * b", "for k, v in {'a': 1, 'b': n}.items(): R.append((k, v))",
            "for row in t: R.append(row)", "for k in (): pass\n" + caught("k"),
            "for xs[0] in range(3): t = t + xs[0]", caught("for k in n: pass")),
    "For: else": ("for k in xs:\n    if k == n: break\nelse:\n    t = t + 1",
                  "for k in xs:\n    if k == n: continue\n    t = t + k\nelse:\n    t = t * 2"),
    "While": ("while n < 6:\n    n += 1\n    t = t + n", "while True:\n    n += 1\n"
              "    if n > 4: break\nt = t + n"),
    "While: else": ("while n < 5:\n    n += 1\nelse:\n    t = t + n",),
    "While: on a tensor": ("while t.sum() < 50: t = t + 5",),
    "If": ("if n > 2: t = t + 1", "if xs: t = t + 1\nelif n: t = t * 2\nelse: t = t - 1",
           "if t.shape[0] > 3: t = t[:3]", "if isinstance(t, torch.Tensor) and t.dim() == 1: "
           "t = t + 1", "if not n: pass\nelse: t = t * n"),
    "If: on a tensor": ("if t.sum() > 0: t = t + 1\nelse: t = t - 1",),
    "With": ("with noted('a'): t = t + 1", "with torch.no_grad(): t = t + 1",
             "with Swallow(KeyError): {}['k']", "try:\n    with Swallow(KeyError): 1 / 0\n"
             "except ZeroDivisionError as error:\n    R.append(str(error))",
             caught("with n: pass"), "with contextlib.suppress(KeyError): {}['k']"),
    "With: as": ("with noted('a') as k: R.append(k)", "with noted('a') as a, noted('b') as b: "
                 "R.append((a, b))", "with contextlib.nullcontext((1, n)) as (a, b): t = t + b",
                 "with (noted('a') as a, noted('b')): t = t + 1"),
    "Match": ("match n:\n    case 2: t = t + 2\n    case _: t = t + 3",
              "match t.shape:\n    case (3,): t = t + 1\n    case (k,): t = t + k"),
    "Raise": ("try:\n    raise Own\nexcept Own as error:\n    R.append(repr(error))", "try:\n"
              "    raise Own('a') from KeyError(n)\nexcept Own as e:\n    "
              "R.append(repr(e.__cause__))",
              "try:\n    try: raise Own(1)\n    except Own: raise\nexcept Own as e:\n"
              "    R.append(e.args)", caught("raise Own from None"), caught("raise 3"),
              "try:\n    try: 1 / 0\n    except ZeroDivisionError: raise Own\nexcept Own as e:\n"
              "    R.append(repr(e.__context__))", caught("raise KeyError(t.shape)")),
    "Raise: out of the function": ("raise Own(n)", "if n == 3: raise ValueError(f'{n}')",
                                   "raise", "LOG.append(n)\nraise RuntimeError(t.shape) from None"),
    "Try": ("try:\n    xs[9]\nexcept IndexError: t = t + 1", "try:\n    xs[9]\nexcept (KeyError, "
            "IndexError) as e:\n    R.append(str(e))", "try: 1 / 0\nexcept: t = t + 1",
            "try:\n    try: xs[9]\n    except KeyError: R.append(1)\nexcept LookupError: "
            "R.append(2)", "try:\n    t = t + 1\nexcept ValueError: t = t * 5",
            "try:\n    t.view(99)\nexcept RuntimeError: t = t * 2"),
    "Try: else and finally": (
        "try: t = t + 1\nexcept ValueError: pass\nelse: t = t * 2\nfinally: LOG.append(n)",
        "def g():\n    try: return n\n    finally: LOG.append('f')\nt = t + g()",
        "for k in xs:\n    try:\n        if k == 2: continue\n        if k == 3: break\n"
        "    finally: LOG.append(k)", "def g():\n    try: 1 / 0\n    finally: return n\n"
        "t = t + g()", "try:\n    try: 1 / 0\n    finally: LOG.append('f')\n"
        "except ZeroDivisionError: t = t + 1", "try: t = t + 1\nfinally: LOG.append(n)"),
    "TryStar": ("try:\n    raise ExceptionGroup('g', [Own(1), KeyError(n)])\nexcept* Own as e:\n"
                "    R.append(len(e.exceptions))\nexcept* KeyError: t = t + 1",
                "try: t = t + 1\nexcept* Own: pass\nelse: t = t * 2\nfinally: LOG.append(n)"),
    "Assert": ("assert n > 0", "assert t.dim() == 1, 'dim'", caught("assert n > 9, f'small {n}'"),
               caught("assert n > 9"), "assert xs, t"),
    "Assert: on a tensor": ("assert (t == t).all()", "assert t.sum() > -99, 'sum'"),
    "Import": ("import math\nt = t + math.pi", "import os.path as p\nR.append(p.basename('a/b'))",
               "import torch.nn.functional as F\nt = F.relu(t)",
               caught("import no_such_module")),
    "ImportFrom": ("from math import pi, e as k\nt = t + pi + k", "from torch import nn\n"
                   "t = nn.functional.relu(t)", caught("from math import no_such_name"),
                   caught("from . import sibling")),
    "Global": ("global TOTAL\nTOTAL = TOTAL + n\nt = t + TOTAL", "global FRESH\nFRESH = t\nt = "
        "FRESH",
               "global TOTAL\ndel TOTAL\n" + caught("TOTAL") + "\nTOTAL = 1"),
    "Nonlocal": (
        "k = 0\ndef g():\n    nonlocal k, t\n    k += 1\n    t = t + 1\ng()\nR.append(k)",),
    "Expr": ("t.sum()", "n", "'text'", "..."),
    "Pass": ("pass", "if n: pass"),
    "Break": ("for k in xs:\n    if k > 1: break\n    t = t + k",
              "for a in xs:\n    for b in xs:\n        if b > a: break\n        t = t + b"),
    "Continue": ("for k in xs:\n    if k == 2: continue\n    t = t + k",),
    "TypeAlias": ("type K = int\nR.append(K.__name__)",
                  "type K[A] = list[A]\nR.append(len(K.__type_params__))"),
    "FunctionDef: type parameters": ("def g[A](a: A) -> A: return a\nt = g(t)",
                                     "def g[A: int, *B, **C](a): return a\nt = g(t)"),
    "ClassDef: type parameters": ("class C[A]: k = 1\nt = t + C.k",),
    "AsyncFunctionDef: type parameters": ("async def g[A](a: A): pass\nR.append(g.__name__)",),
}  # fmt: skip

EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "BoolOp: And": ("n and t", "xs and n and 0", "t = t + (n > 1 and n < 9)", "[] and 1 / 0"),
    "BoolOp: Or": ("n or t", "[] or {} or n", "t = t + (n > 5 or 2)", "n or 1 / 0"),
    "NamedExpr": ("(k := n) + k", "if (k := len(xs)) > 2: t = t + k",
                  "[y := k, y * 2] if (k := n) else 0", "R.append([k for a in xs if (k := a) > "
                                                        "1])"),
    "Lambda": ("(lambda a: a + n)(t)", "(lambda: n)()", "(lambda a, b=n, *c, k=1, **d: (a, b, c, "
               "k, d))(1, 2, 3, k=4, z=5)", "sorted(xs, key=lambda k: -k)"),
    "IfExp": ("t if n > 2 else n", "1 if xs else 2", "t = t + (1 if t.dim() else 2)"),
    "IfExp: on a tensor": ("n if t.sum() > 0 else t",),
    "Dict": ("{}", "{'a': t, n: xs}", "{**{'a': 1}, 'b': n, **{'a': 3}}", "{(n, 1): t, None: 2}",
             caught("{[]: 1}"), caught("{**n}"), "{k: t for k in ()}"),
    "Set": ("{1, n}", "{*xs, 'a'}", caught("{[]}"), "len({t, t})", "{n, 2.0, 'a', None}"),
    "List": ("[]", "[t, n, *xs]", "[*range(n), *'ab']", "[a, b] = (n, t)\nR.append(b)"),
    "Tuple": ("()", "(t, n)", "(*xs, t)", "n, t"),
    "ListComp": ("[k * n for k in xs]", "[t * k for k in xs if k > 1]", "[a + b for a in xs for b "
                 "in xs if a != b]", "[[t + a for a in range(b)] for b in range(n)]",
                 "[k for k, *_ in [(1, 2)]]"),
    "SetComp": ("{k % 2 for k in xs}", "{(a, b) for a in xs for b in 'ab'}"),
    "DictComp": ("{k: t * k for k in xs}", "{k: v for v, k in enumerate(xs) if v}"),
    "GeneratorExp": ("sum(k * n for k in xs)", "list(t * k for k in xs)", "any(k > n for k in xs)",
                     "(k for k in xs)", "max((k, -k) for k in xs)", "dict((k, t) for k in xs)",
                     "next(k for k in xs if k > 1)"),
    "comprehension: async": (
        "async def g(): return [k async for k in steps() if k]\nasync def steps():\n    yield n\n"
        "try:\n    g().send(None)\nexcept StopIteration as done:\n    R.append(done.value)",),
    "Await": ("async def h(): return n\nasync def g(): return await h()\ntry:\n    g().send(None)\n"
              "except StopIteration as done:\n    R.append(done.value)",),
    "Yield": ("def g():\n    k = yield\n    yield k\nk = g()\nnext(k)\nR.append(k.send(n))",
              "def g():\n    yield t\n    yield t * 2\nt = sum(g())"),
    "YieldFrom": ("def g():\n    k = yield from numbers(n)\n    yield k\nR.append([*g()])",
                  "def g(): yield from xs\nR.append([*g()])"),
    "Compare: chained": ("1 < n < 4", "1 < n == 3 != t", "n in xs in [xs]"),
    "Call": ("len(xs)", "add(t)", "add(t, n)", "torch.add(t, n)", "t.add(n)", caught("add()"),
             caught("n()"), "divmod(7, n)"),
    "Call: keywords and unpacking": (
        "add(a=t, b=n)", "add(*[t, n])", "add(*(t,), **{'b': n})", "add(t, **{}, **{'b': 1})",
        "max(*xs, *xs, key=lambda k: -k)", caught("add(t, **{'b': 1}, b=2)"),
        caught("add(*n)"), caught("add(t, c=1)"), caught("add(**{1: 2})"), "dict(a=n, **{'b': 1})"),
    "JoinedStr": ("f'{n}'", "f''", "f'a{n}b{xs}c'", "f'{{{n}}}'", "f'{n=}'", "f'{t.shape}'",
                  "f'{t.dtype} {t.device}'", "f'{\"in\" + str(n)}'"),
    "JoinedStr: of a tensor": ("f'{t}'", "f'{t.sum()}'", "len(f'{t}') > 0"),
    "FormattedValue: conversion": ("f'{xs!r}'", "f'{n!s:>4}'", "f'{\"é\"!a}'", "f'{n!r}'"),
    "FormattedValue: specification": ("f'{n:>5}'", "f'{n / 7:.3f}'", "f'{n:0{n}d}'", "f'{n:#x}'",
                                      "f'{\"s\":*^9}'", caught("f'{xs:d}'"), "f'{1234567:,}'"),
    "Constant": ("None", "True", "12345678901234567890", "1.5", "2j", "'text'", "b'bytes'", "...",
                 "'a' 'b'", "u'u'", "1_000", "float('inf')"),
    "Attribute": ("t.shape", "Pair(t).b", "p = Pair(t)\np.new = n\nR.append(p.new)", "math.pi",
                  caught("n.none"), caught("Pair(t).none"), "x.tag = n\nR.append(x.tag)",
                  "p = Pair(t)\ndel p.a\n" + caught("p.a"), "t.T.mT", "Shade.DARK.name"),
    "Subscript": ("xs[0]", "xs[-1]", "t[0]", "t[None]", "t[...]", "{'a': n}['a']", "'abc'[n - 2]",
                  caught("xs[9]"), caught("{}[n]"), caught("n[0]"), "t[[0, 1]]", "t[t > 0]",
                  "(1, 2)[n - 2]", "t[:, None]", "list[int]", caught("xs['a']"), "t[n - 2]"),
    "Subscript: stored and deleted": ("xs[0] = n\nR.append(xs)", "t[0] = n", "t[:n - 1] = 0",
                                      "d = {}\nd['k'] = t\ndel d['k']\nR.append(d)", "del xs[0]",
                                      caught("(1,)[0] = n"), "t[t > 0] = 0", "t[0], t[1] = 1, 2"),
    "Slice": ("xs[1:]", "xs[:1]", "xs[::2]", "xs[::-1]", "t[1:]", "t[:-1:2]", "'abc'[1:n]",
              "xs[n:]", caught("xs[::0]"), "slice(1, n)", "t[slice(None)]", "xs[0:2] = 'ab'"),
    "Starred": ("[*xs, *xs]", "add(*[t])", "a, *b = xs\nR.append(b)", "*a, = xs\nR.append(a)",
                "print(*xs)", "for a, *b in [(1, 2, 3)]: R.append(b)"),
    "Name": ("t", "TOTAL", "len", caught("no_such_name"), "k = t\nk = k + 1\nt = k",
             caught("late\nlate = 1"), "__name__[:0]"),
}  # fmt: skip
PATTERNS: dict[str, tuple[str, ...]] = {
    "MatchValue": ("match n:\n    case 2: t = t + 1\n    case -1: t = t + 2\n    case math.pi: "
                   "pass",
                   "match Shade(n % 2 + 1):\n    case Shade.LIGHT: t = t + 1\n"
                   "    case Shade.DARK: t = t + 2"),
    "MatchSingleton": ("match n > 2:\n    case True: t = t + 1\n    case None | False: t = t + 2",),
    "MatchSequence": ("match xs:\n    case []: pass\n    case [a, b]: t = t + a * b\n"
                      "    case [a, b, c]: t = t + c", "match t.shape:\n    case torch.Size([3]): "
                      "t = t + 1\n    case (k,): t = t + k", "match 'ab':\n    case [a, b]: "
                      "t = t + 1\n    case _: t = t + 2"),
    "MatchStar": ("match xs:\n    case [a, *rest]: t = t + len(rest)", "match xs:\n"
                  "    case [*_, a]: t = t + a"),
    "MatchMapping": ("match {'a': n, 'b': t}:\n    case {'a': 2}: t = t + 1\n"
                     "    case {'a': k, **rest}: t = rest['b'] + k", "match {}:\n    case {}: "
                     "t = t + 1"),
    "MatchClass": ("match Pair(t, n):\n    case Pair(a, 2): t = a + 5\n    case Pair(a, b=k): "
                   "t = a + k", "match n:\n    case str(): pass\n    case int(k): t = t + k",
                   "match t:\n    case torch.Tensor(): t = t + 1",
                   "match [1.5, 'a']:\n    case [float(), str(s)]: R.append(s)",
                   caught("match Pair(t):\n    case Pair(a, b, c): pass")),
    "MatchAs": ("match n:\n    case k: t = t + k", "match n:\n    case (2 | 3) as k: t = t + k",
                "match n:\n    case _: t = t + 1"),
    "MatchOr": ("match n:\n    case 1 | 2: t = t + 1\n    case 3 | 4: t = t + 2",),
    "match_case: guard": ("match n:\n    case k if k > 2: t = t + k\n    case _ if xs: t = t + 1",
                          "match n:\n    case k if t.dim() > k: pass\n    case _: t = t * 2"),
}  # fmt: skip

BINARY = {
    "Add": "+", "Sub": "-", "Mult": "*", "MatMult": "@", "Div": "/", "FloorDiv": "//", "Mod": "%",
    "Pow": "**", "LShift": "<<", "RShift": ">>", "BitOr": "|", "BitXor": "^", "BitAnd": "&",
}  # fmt: skip
COMPARED = {
    "Eq": "==", "NotEq": "!=", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Is": "is",
    "IsNot": "is not", "In": "in", "NotIn": "not in",
}  # fmt: skip
GROWING = ("**", "<<", "*")
UNARY = {"Not": "not", "USub": "-", "UAdd": "+", "Invert": "~"}
#: operands by kind: what is left and right of an operator
OPERANDS: dict[str, tuple[tuple[str, str], ...]] = {
    "integers": (("n", "3"), ("-7", "n"), ("True", "n"), ("2 ** 65", "n"), ("n", "0")),
    "floats": (("1.5", "n"), ("n", "-0.5"), ("float('nan')", "1.0"), ("7.5", "2.0"), ("1.0",
        "0.0")),
    "complex numbers": (("1j", "n"), ("2 + 3j", "1.5")),
    "texts": (("'ab'", "'b'"), ("'ab'", "n"), ("'%d'", "n"), ("'a'", "'abc'"), ("b'a'", "b'b'")),
    "lists and tuples": (("xs", "[n]"), ("(1, n)", "(1, 3)"), ("xs", "n"), ("n", "xs"),
                         ("n", "(1, 2)"), ("xs", "xs")),
    "sets and dicts": (("{1, n}", "{2}"), ("{'a': n}", "{'b': 1}"), ("n", "{1, 2}"),
                       ("'a'", "{'a': n}"), ("frozenset(xs)", "{1}"), ("{'a': 1}.keys()", "{'a'}")),
    "tensors": (("t", "n"), ("n", "t"), ("t", "t"), ("t", "1.5"), ("t > 0", "t < 1"),
                ("t.int()", "n"), ("t.shape[0]", "n"), ("t", "None")),
}  # fmt: skip


def constructs() -> Iterator[Construct]:
    """Every row, by chapter."""
    for chapter, table in (
        ("Statements", STATEMENTS), ("Expressions", EXPRESSIONS), ("Patterns", PATTERNS),
    ):  # fmt: skip
        for name, bodies in table.items():
            if hasattr(ast, re.match(r"\w+", name)[0]) and _parses(bodies):  # type: ignore[index]
                yield Construct(chapter, name, bodies)
    for name, symbol in (BINARY | COMPARED).items():
        for kind, pairs in OPERANDS.items():
            small = [(a, b) for a, b in pairs if not ("65" in a and symbol in GROWING)]
            plain = together(caught(f"({a}) {symbol} ({b})") for a, b in small)
            written = together(
                caught(f"a = {a}\na {symbol}= {b}\nR.append(a)") for a, b in small[:4]
            )
            bodies = (plain, written) if name in BINARY else (plain,)
            yield Construct("Operators", f"{name}: {kind}", bodies)
    for name, symbol in UNARY.items():
        for kind, pairs in OPERANDS.items():
            operands = dict.fromkeys(a for a, _ in pairs)
            if name == "Not" and kind == "tensors":  # of one value
                operands = dict.fromkeys(("t.dim()", "t[0]"))
            bodies = (together(caught(f"{symbol} ({a})") for a in operands),)
            yield Construct("Operators", f"{name}: {kind}", bodies)


def _parses(bodies: tuple[str, ...]) -> bool:
    if sys.version_info >= (3, 12):
        return True
    try:
        for text in bodies:
            ast.parse(text)
    except SyntaxError as error:
        return "outside" in str(error)
    return True


#: classes that no source code of a function has, or that only other classes' docstrings name
NOT_IN_SOURCE = frozenset(
    "Module Interactive Expression FunctionType TypeIgnore Load Store Del Param AugLoad AugStore "
    "Suite Index ExtSlice Num Str Bytes NameConstant Ellipsis slice".split()
)
#: fields that hold no syntax, or whose entries may be empty themselves
NOT_BY_SOURCE = frozenset(
    "type_comment ctx kind name.ExceptHandler lineno level defaults kw_defaults n s dims "
    "default_value".split()
)
#: fields that have an entry at least
NEVER_EMPTY = frozenset(
    "body targets items cases names generators ops comparators BoolOp.values TryStar.handlers "
    "MatchOr.patterns Set.elts".split()
)


def unmet(programs: list[str]) -> list[str]:
    """Classes of `ast`, and fields of them filled and empty, that no program has."""
    found: set[str] = set()
    for text in programs:
        for node in ast.walk(ast.parse(text)):
            kind = type(node).__name__
            found.add(kind)
            for name, value in ast.iter_fields(node):
                found.add(f"{kind}.{name} {'filled' if value not in (None, [], 0) else 'empty'}")
    missing = []
    for kind, made in vars(ast).items():
        if not isinstance(made, type) or not issubclass(made, ast.AST) or kind in NOT_IN_SOURCE:
            continue
        if made.__subclasses__() and made.__doc__ and "=" in made.__doc__:
            continue  # a sum of others
        if kind == "AST":
            continue
        wanted = [kind]
        for sign, name in re.findall(r"[\w.]+([*?]?) (\w+)", made.__doc__ or ""):
            if sign and name not in NOT_BY_SOURCE:
                wanted.append(f"{kind}.{name} filled")
                if not NEVER_EMPTY & {name, f"{kind}.{name}"}:
                    wanted.append(f"{kind}.{name} empty")
        missing += [each for each in wanted if each not in found]
    return missing
