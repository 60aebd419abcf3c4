"""Random programs: containers, objects, closures, branches, loops, exceptions, breaks anywhere.

Captured and eager runs must print the same, raise the same, and leave results and arguments the
same, aliases included.
"""

import contextlib
import io
import random

import pytest
import torch
from flambeau_capture import graph_break, optimize


class Thing:
    def __init__(self):
        self.a = 1
        self.t = torch.ones(3)
        self.items = [1, 2]
        self.d = {"k": 1}

    def bump(self, n=1):
        self.a += n
        self.items.append(self.a)
        return self.t * self.a

    @property
    def p(self):
        return self.a * 2


EXPRESSIONS = """
t; t + 1; t * n; n; len(l); o.a; o.p; o.t; l[0]; l[-1]; o.items[0]; d.get('k', 0); (t, n); [t]
o.bump(); o.bump(2); f(t); f(n); t.sum(); min(n, 3); str(n); {'x': t}; l; d; o; lambda: n
(n if n > 2 else t); [i * n for i in range(2)]; t[0]; t.shape[0]; float(n); isinstance(l[0], int)
sum(o.items)
"""
STATEMENTS = """
n += 1; n = n % 5 + 1; t = t + 1; t = t * 0.5 + n; l.append(EXPR); l[0] = EXPR; d['k'] = EXPR
d['zNUM'] = EXPR; o.a = n; o.items.append(n); o.xNUM = EXPR; graph_break(); out.append(EXPR)
vNUM = EXPR; l.insert(0, n); o.t = o.t + n; l[:] = l[::-1]; d.pop('k', None); t = f(t); a, b = n, t
out.append((a, b)); del l[1:]; o.items = list(o.items); l = list(l); d = dict(d)
g = lambda q: q + n; out.append(g(n)); t.add_(1); t = t.clone(); print('x', n)
s |= {n}; out.append(sorted(s))
l.extend([n, t]); d.update(q=n); o.d = d; d['self'] = l; out.append(t.tolist()[0])
out.append(next(it, None)); out.append(float(t[0]))
"""
CONDITIONS = """
n > 2; t.sum() > 3; len(l) > 2; 'k' in d; o.a % 2; hasattr(o, 'x1'); n in o.items; t[0] < n; not l
isinstance(l[0], torch.Tensor)
"""
LOOPS = """
for i in range(3):; for i, q in enumerate([n, 2]):; for q in list(o.items)[:3]:; for kk in list(d):
for a, b in zip([1, 2], [t, n]):
"""
FAULTS = """
raise ValueError(n); d['missing']; l[99]; n = 1 // 0; o.nothing; pass; n = int('3')
"""
CONTEXTS = """
with torch.no_grad():; with contextlib.nullcontext(n) as n:
with contextlib.suppress(ZeroDivisionError, KeyError, AttributeError):
"""


def rows(text):
    return [row.strip() for line in text.strip().splitlines() for row in line.split(";")]


class Writer:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, text):
        found = self.rng.choice(rows(text))
        while "EXPR" in found:
            found = found.replace("EXPR", self.rng.choice(rows(EXPRESSIONS)), 1)
        return found.replace("NUM", str(self.rng.randrange(3)))

    def block(self, depth):
        lines = [line for _ in range(self.rng.randint(1, 3)) for line in self.statement(depth)]
        return lines or ["    " * depth + "pass"]

    def statement(self, depth):
        pad, kind, rng = "    " * depth, self.rng.random(), self.rng
        if kind < 0.68 or depth > 4:
            return [pad + self.pick(STATEMENTS)]
        if kind < 0.78:
            lines = [f"{pad}if {self.pick(CONDITIONS)}:", *self.block(depth + 1)]
            return [*lines, pad + "else:", *self.block(depth + 1)] if rng.random() < 0.5 else lines
        if kind < 0.88:
            lines = [pad + self.pick(LOOPS), *self.block(depth + 1)]
            exits = ["if n > 3: break", "if n == 2: continue"]
            return [*lines, f"    {pad}{rng.choice(exits)}"] if rng.random() < 0.3 else lines
        if kind < 0.95:
            lines = [pad + "try:", *self.block(depth + 1), f"    {pad}{self.pick(FAULTS)}"]
            lines += [pad + "except (ValueError, LookupError) as err:"]
            lines += [pad + "    out.append(type(err).__name__)", *self.block(depth + 1)]
            end = [pad + "finally:", *self.block(depth + 1)]
            return [*lines, *end] if rng.random() < 0.4 else lines
        return [pad + self.pick(CONTEXTS), *self.block(depth + 1)]


def program(seed):
    writer = Writer(seed)
    lines = ["def f(v):", "    return v + v", "def fn(t, l, d, o, n):", "    out = []"]
    lines += ["    a, b, s = 0, 1, {1}", "    g = lambda q: q", "    it = iter([1, 2, 3])"]
    for _ in range(writer.rng.randint(4, 9)):
        lines += writer.statement(1)
    return "\n".join([*lines, "    return out, t, l, d, n, a, s, o.a"])


def picture(value, seen):
    """A value as nested tuples; an object met before is its number."""
    if isinstance(value, torch.Tensor):
        return "tensor", tuple(value.shape), [round(float(v), 3) for v in value.flatten()]
    if isinstance(value, (list, tuple, dict, set, Thing)):
        if id(value) in seen:
            return "again", seen[id(value)]
        seen[id(value)] = len(seen)
    if isinstance(value, dict):
        return "dict", [(key, picture(item, seen)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [picture(item, seen) for item in value]
    if isinstance(value, set):
        return "set", list(value)
    if isinstance(value, Thing):
        return "thing", picture(value.__dict__, seen)
    return "function" if callable(value) else (type(value).__name__, value)


def outcome(fn):
    arguments = torch.arange(3.0) + 1, [1, torch.ones(3)], {"k": 1, "j": [1]}, Thing(), 2
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = list(fn(*arguments))
        except Exception as error:
            result = [type(error).__name__, str(error)]
    return picture([result, list(arguments)], {}), printed.getvalue()


@pytest.mark.sweep(2)
@pytest.mark.filterwarnings("ignore:.*cache_size_limit")
@pytest.mark.parametrize("first", range(0, 80, 10))
def test_random_programs(first):
    for seed in range(first, first + 10):
        source = program(seed)
        namespace = {"torch": torch, "graph_break": graph_break, "contextlib": contextlib}
        exec(compile(source, f"<program {seed}>", "exec"), namespace)
        fn = namespace["fn"]
        compiled = optimize("eager", raise_internal_errors=True)(fn)
        for _ in range(2):
            assert outcome(compiled) == outcome(fn), f"program {seed}:\n{source}"
