"""Python's own control flow around tensors.

In: chance. Out: functions made of nested blocks: loops, branches, exceptions, generators, closures,
comprehensions, context managers, unpacking, formatting. Invariant: a program ends: loops are over
what is finite and small.
"""

from __future__ import annotations

import random
from textwrap import indent

from integration_tests.campaign.program import Call, Program

SETUP = """import collections, contextlib, dataclasses, enum, functools, itertools, math, operator
@contextlib.contextmanager
def noted(name):
    LOG.append(f"enter {name}")
    try:
        yield name
    finally:
        LOG.append(f"leave {name}")
class Swallow:
    def __init__(self, *kinds):
        self.kinds = kinds
    def __enter__(self):
        LOG.append("in")
        return self
    def __exit__(self, kind, value, trace):
        LOG.append(kind.__name__ if kind else "fine")
        return kind is not None and issubclass(kind, self.kinds)
class Own(Exception):
    pass
def numbers(n):
    for k in range(n):
        got = yield k
        if got:
            LOG.append(got)
    return n
def doubled(n):
    last = yield from numbers(n)
    yield last * 2
@dataclasses.dataclass
class Pair:
    a: object
    b: int = 2
    def __post_init__(self):
        self.c = self.b + 1
class Vec:
    def __init__(self, t): self.t = t
    def __add__(self, o): return Vec(self.t + (o.t if isinstance(o, Vec) else o))
    def __radd__(self, o): return Vec(self.t - o)
    def __iadd__(self, o):
        self.t = self.t * 2 + (o.t if isinstance(o, Vec) else o)
        return self
    def __neg__(self): return Vec(-self.t)
    def __getitem__(self, k): return self.t[k]
    def __len__(self): return 3
    def __iter__(self): return iter((self.t, 2))
    def __call__(self, k=1): return self.t + k
    def __bool__(self): return False
    def __eq__(self, o): return True
    def __lt__(self, o): return True
    def __enter__(self): return self
    def __exit__(self, *e): LOG.append(len(e)); return False
    __hash__ = None
class Shade(enum.IntEnum):
    LIGHT = 1
    DARK = 2
def decorated(fn):
    @functools.wraps(fn)
    def inner(*args, **kw):
        LOG.append(fn.__name__)
        return fn(*args, **kw) + 1
    return inner
@decorated
def plus(t, k=1, *more, named=0, **rest):
    return t + k + sum(more) + named + len(rest)
@functools.lru_cache(None)
def cached(n):
    return n * 2
def talking(t):
    try:
        got = yield t
        LOG.append(got)
        yield t + 1
    except ValueError as error:
        LOG.append(str(error))
        yield t * 3
    finally:
        LOG.append('end')
    return 'done'
KEPT = {}
COUNT = [0]
TOTAL = 1
def remembered(n):
    if n not in KEPT:
        KEPT[n] = len(KEPT)
    return KEPT[n]
def counter():
    count = 0
    def bump():
        nonlocal count
        count += 1
        return count
    return bump
bump = counter()
@functools.singledispatch
def kinds(k): return 1
@kinds.register
def _(k: int): return k + 2
@kinds.register(list)
def _(k): return len(k)
class Lazy:
    def __init__(self, v): self.v = v
    @functools.cached_property
    def value(self):
        LOG.append('lazy')
        return self.v * 2"""

EXPRESSIONS = (
    "t * 2", "t + n", "u - t", "t.sum() + u", "t[0] + u", "t * t.shape[0]",
    "torch.stack([t, u]).sum(0)", "t.relu()", "t + len(xs)", "t * xs[-1]", "plus(t)",
    "plus(t, 2, 3)", "plus(t, named=n)", "plus(t, *xs)", "plus(t, **{'z': 1})",
    "(lambda a, b=n: a + b)(t)", "functools.reduce(operator.add, [t, u, t])",
    "sum(t * k for k in range(3))", "torch.cat([t * k for k in xs]).sum() + u",
    "t if n > 2 else u", "(t, u)[n % 2]", "[t, u][-1]", "{'a': t, 'b': u}['a']",
    "Pair(t).a + Pair(t, 5).c", "(Vec(t) + Vec(u)).t", "(-Vec(t))[...]", "Vec(t)(3)",
    "max([n, 2]) + t", "t + next(numbers(3))", "t + sum(doubled(3))", "t + Shade.DARK",
    "t + Shade(1).value", "t + len(f'{n:>4}{xs!r}')", "t + int(str(n))",
    "t + sorted([3, n, 1], reverse=True)[0]", "t + cached(n)", "t + math.floor(n / 2)",
    "t + sum(itertools.accumulate(xs))", "t + list(zip(xs, range(9)))[0][1]",
    "t + (n if (n := n + 1) else 0)", "t + len({*xs, n})", "t + sum(x for x in xs if x > 1)",
    "t + sum(map(lambda k: k * n, xs))", "t + dict(a=n, **{'b': 2})['b']",
    "t + any(x > 2 for x in xs)", "t + list(reversed(xs))[0]", "t + xs.index(xs[0])",
    "t + divmod(n, 2)[1]", "t + (n, *xs)[1]", "t * (3 > n > 0)", "t + (not n)",
    "t + (n or 4) + (n and 2)", "t + isinstance(n, (int, str))",
    "t + len(collections.Counter(xs))", "t + len(str(t.dtype))",
    "t.float() if t.is_floating_point() else u", "t + t.dim()", "t + u.size(0)",
    "t.to(u.dtype)", "t + float(n)", "t + getattr(Pair(t), 'b')", "t + hash('a') * 0",
    "t + len([*itertools.chain(xs, xs)])", "t + list(itertools.product(xs, xs))[-1][0]",
    "t + (1 if t is u else 2)", "t + min(xs, key=lambda k: -k)",
    "t + functools.partial(operator.mul, 3)(n)", "Vec(t).t + (2 if Vec(t) else 3)",
    "t + len('%s-%d' % ('a', n))", "t + 'abc'.find('c')", "t + slice(1, n).stop",
    "t[slice(0, 1)] + u", "t + len(range(0, 9, 2))", "t + bool(xs) + bool([])",
    "t + int('1' in 'a1')", "t + xs[1:][0]", "t + round(2.567, 1)",
    "operator.itemgetter(0)([t, u])", "t + abs(-n)", "t + (n ** 2 % 7 // 2 << 1 ^ 3 & 5 | 1)",
    "t + id(t) * 0", "t + repr([n]).count('[')", "t + int.from_bytes(bytes([n % 250]), 'big')",
    "(1 + Vec(t)).t", "t + len(list(enumerate(xs, 1)))", "torch.where(u > 0, t, u)",
    "t.masked_fill(u > 0, 1)", "t + complex(1, 2).real",
    "t + sum(i * j for i in xs for j in xs)",
)  # fmt: skip
SIMPLE = (
    "t = {e}", "t = {e}", "t = {e}", "u = {e}", "n += 1", "n = n * 2 % 11", "xs.append(n)",
    "LOG.append(n)", "xs = [*xs, 4]", "t, u = u, t", "t += 1", "t = t.clone()\nt.mul_(2)",
    "t = t.clone()\nt[0] = n", "a, *b = xs\nn = a + len(b)", "print(n, xs)", "LOG.append({e})",
    "v = Vec(t)\nv += 1\nt = v.t", "d = {{'k': t}}\nd['m'] = u\nt = sum(d.values())",
    "assert n >= 0, 'n'", "del xs[0:0]",
    "def inner():\n    nonlocal n\n    n += 1\n    return t\nt = inner() + n",
    "class Local:\n    k = n\nt = t + Local.k",
    "g = numbers(4)\nnext(g)\nt = t + g.send('hi')\ng.close()",
    "fs = [lambda k=k: t * k for k in range(3)]\nt = fs[-1]()",
    "p = Pair(t, n)\np.b += 1\nt = p.a + p.b", "import math as m\nt = t + m.ceil(0.5)",
    "x.add_(1)", "xs.sort(key=lambda k: -k)", "u = t.detach()", "t = t + (yielded := n)",
    "it = iter(xs)\nt = t + next(it) + next(it, 5)", "xs[:] = [k + 1 for k in xs]",
    "n: int = n + 1", "s = f'{{n}}-{{len(xs)}}'\nt = t + len(s)", "w = t\nw = w + 1\nt = w * 2",
)  # fmt: skip
#: whole statements of what the language has: exceptions, generators, patterns, closures, contexts
WHOLE = (
    "try:\n    raise Own('a') from KeyError(n)\nexcept Own as e:\n"
    "    LOG.append((repr(e), repr(e.__cause__), e.__suppress_context__, e.args))",
    "try:\n    try:\n        1 / (n - n)\n    except ZeroDivisionError:\n        raise Own(n)\n"
    "except Own as e:\n    LOG.append((repr(e.__context__), e.__cause__))",
    "try:\n    raise ValueError('v', n)\nexcept ValueError as e:\n    e.add_note('note')\n"
    "    LOG.append((e.__notes__, str(e)))\nLOG.append('e' in dir())",
    "def last():\n    try:\n        return xs[9]\n    except IndexError:\n        return t + 1\n"
    "    finally:\n        LOG.append('last')\nt = last()",
    "def over():\n    for k in range(3):\n        try:\n            if k == n: return k\n"
    "        finally:\n            if k == 1: break\n    return 7\nt = t + over()",
    "def hidden():\n    try:\n        raise Own('h')\n    finally:\n        return n\n"
    "t = t + hidden()",
    "try:\n    raise ExceptionGroup('g', [ValueError(1), TypeError(2), Own('x')])\n"
    "except* ValueError as e:\n    LOG.append(('v', len(e.exceptions)))\n"
    "except* (TypeError, Own) as e:\n    LOG.append(str(e.exceptions[0]))",
    "g = talking(t)\nt = next(g) + g.send(n)\nLOG.append([*g])",
    "g = talking(t)\nnext(g)\nt = t + g.throw(ValueError('thrown'))\ng.close()",
    "g = talking(t)\nnext(g)\ntry:\n    g.throw(KeyError('k'))\nexcept KeyError as e:\n"
    "    LOG.append(repr(e))",
    "def outer():\n    got = yield from talking(t)\n    LOG.append(got)\n    yield t\n"
    "for k, each in enumerate(outer()):\n    t = t + each\n    if k > n: break",
    "ys = [y for k in xs if (y := k * 2) > n]\nt = t + len(ys) + y",
    "match xs:\n    case []: t = t + 1\n    case [a]: t = t + a\n"
    "    case [a, *rest] if a > n: t = t + len(rest)\n    case [_, b, *_]: t = t * b",
    "match {'k': n, 'l': t}:\n    case {'k': 0 | 1 as v}: t = t + v\n"
    "    case {'k': int(v), **rest}: t = t - v * len(rest)",
    "match Pair(t, n):\n    case Pair(a, 2): t = a\n    case Pair(b=3 | 4): t = t + 3\n"
    "    case Pair(a, b) if b: t = a * b\n    case _: t = t - 1",
    "match n, t.dim():\n    case (1, d) | (d, 2): t = t + d\n    case (_, 1): t = t * 5",
    "s = f'{n:>4}|{n:#x}|{1 / 3:.3f}|{xs!r:^14}|{t.shape}|{n=}'\nLOG.append(s)",
    "LOG.append('%s %5.2f %r' % (n, n / 3, xs))\nLOG.append('{0:<5}{k}'.format(n, k=xs))",
    "def kept(a, into=[], *, table={}):\n    into.append(a)\n    table[a] = len(into)\n"
    "    return sum(table.values())\nt = t + kept(n) + kept(n + 1)",
    "t = t + remembered(n) + remembered(n + 1)", "COUNT[0] += 1\nt = t + COUNT[0]",
    "global TOTAL\nTOTAL = TOTAL + n\nt = t * TOTAL", "t = t + bump() + bump()",
    "def adder():\n    total = 0\n    def add(k):\n        nonlocal total, n\n"
    "        total += k\n        n += 1\n        return total\n    return add\n"
    "add = adder()\nt = t + add(1) + add(n)",
    "fs = []\nfor k in range(3):\n    def each(k=k): return t * k + n\n    fs.append(each)\n"
    "t = fs[0]() + fs[2]()",
    "fs = [lambda: t * k for k in xs]\nt = fs[0]()",
    "with contextlib.ExitStack() as stack:\n    stack.enter_context(noted('s'))\n"
    "    stack.callback(LOG.append, 'back')\n    t = t + 1",
    "with contextlib.suppress(KeyError, IndexError):\n    t = t + 1\n    xs[50]\nt = t * 2",
    "with contextlib.nullcontext(n) as k, noted('q'):\n    t = t + k",
    "with Swallow(ZeroDivisionError) as sw:\n    t = t + 1\n    n / 0\nLOG.append(sw.kinds)",
    "@noted('decor')\ndef run(): return t + 1\nt = run() + run()",
    "t = t + kinds(n) + kinds('s') + kinds(xs)",
    "t = t + sorted(xs, key=lambda k: (-k % 3, k))[0]", "xs.sort(reverse=n > 2)",
    "d = {k: v for v, k in enumerate(xs)}\ntry:\n    for k in d: d[k + 50] = 1\n"
    "except RuntimeError as e:\n    LOG.append(str(e))",
    "q = collections.deque(xs, maxlen=3)\nq.append(n)\nq.rotate(1)\nt = t + q[0] + len(q)",
    "c = collections.Counter(xs)\nc[n] += 2\nt = t + c.most_common(1)[0][1]",
    "o = collections.OrderedDict(a=1, b=n)\no.move_to_end('a')\nLOG.append(list(o.items()))",
    "dd = collections.defaultdict(list)\ndd[n].append(t)\nt = t + len(dd) + len(dd[n])",
    "*a, b = xs\n(c, [d, *e]) = (b, [n, *a])\nt = t + c + d + len(e)",
    "xs[0], n = n, xs[0]", "xs[1:] = [n] * 2", "del xs[-1]",
    "a = b = [n]\nb.append(1)\nt = t + len(a)",
    "ys = xs\nys += [n]\nLOG.append(ys is xs)", "LOG.append(xs)",
    "same = [t]\nLOG.append((same, same))",
    "LOG.append((0.1 + 0.2, -7 // 2, -7 % 3, 7 % -3, divmod(-7, 2), 2 ** 70 % 97, round(2.5)))",
    "LOG.append((n << 3 | 1, ~n, n ^ 6, (n + 70).bit_length(), float('inf') > n, -0.0 == 0.0))",
    "LOG.append(('Ab c'.swapcase().split(), 'a,b'.partition(','), 'x'.join('abc'), 'é'.encode()))",
    "import copy\nys = copy.deepcopy([xs, xs])\nLOG.append((ys[0] is ys[1], ys[0] is xs))",
    "it = iter(xs)\nt = t + sum(a * b for a, b in zip(it, it))\nLOG.append(next(it, 'none'))",
    "for k in (a := [1, n]):\n    if k > 3: break\nelse:\n    t = t + len(a)",
    "while True:\n    n += 1\n    if n > 4: break\n    try:\n        continue\n    finally:\n"
    "        LOG.append(n)",
    "LOG.append(1 < n < 4 != 3)", "t = t + (n if n is not None and not n > 3 else 2)",
    "class Inner(Pair):\n    def __post_init__(self):\n        super().__post_init__()\n"
    "        self.c += n\nt = t + Inner(t).c",
    "t = t + Lazy(n).value + Lazy(n).value", "r = Lazy(t)\nt = r.value\nLOG.append(r.value is t)",
    "if t.shape[0] == n: LOG.append('n')\nelif t.shape[0] > n: t = t[:n + 1].sum() + t",
    "t = t + Shade(1 + n % 2).value + len(Shade)", "t = t.view(-1)[: 2 + n % 2].sum() + u.sum()",
    "LOG.append([type(e).__name__ for e in (n, 1.5, xs, t, None, Own)])",
    "t = torch.stack([t, t + n])[n % 2]",
)  # fmt: skip

HEADS = (
    "for k in range({r}):", "for k, v in enumerate(xs[:4]):", "if n > {r}:",
    "if t.shape[0] > {r}:", "while n < {r}:\n    n += 1", "with noted('w'):",
    "with torch.no_grad():", "if isinstance(n, int) and xs:", "with Swallow(ValueError, Own):",
    "for k in doubled({r}):", "try:", "try:", "for a, b in zip(xs[:3], reversed(xs[:3])):",
    "if t.sum() > 0:", "with noted('a') as a, noted('b'):", "match n % 3:",
    "for k in {{1, 2}}:", "for key in {{'p': 1, 'q': 2}}:",
)  # fmt: skip
ENDS = (
    "break",
    "continue",
    "raise ValueError(n)",
    "raise Own('x')",
    "return (t, u)",
    "pass",
    "xs[99]",
    "{}['no']",
    "1 / 0",
    "raise",
    "None.no",
    "n = int('x')",
)


def block(chance: random.Random, depth: int, loop: bool) -> str:
    """Statements, each of one line or more."""
    lines = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        if depth and chance.random() < 0.4:
            lines.append(compound(chance, depth - 1, loop))
        else:
            lines.append(simple(chance))
    if chance.random() < 0.15:
        end = chance.choice(ENDS)
        if end in ("break", "continue") and not loop:
            end = "raise Own('y')"
        if end == "raise":
            end = "raise KeyError(n) from None"
        lines.append(f"if n > {chance.randrange(6)}:\n    {end}")
    return "\n".join(lines)


def simple(chance: random.Random) -> str:
    if chance.random() < 0.35:
        return chance.choice(WHOLE)
    text = chance.choice(SIMPLE)
    return text.format(e=chance.choice(EXPRESSIONS)) if "{e}" in text or "{{" in text else text


def compound(chance: random.Random, depth: int, loop: bool) -> str:
    head = chance.choice(HEADS).format(r=chance.randrange(1, 5))
    loops = head.startswith(("for", "while"))
    inner = indent(block(chance, depth, loop or loops), "    ")
    if head.startswith("try"):
        kinds = chance.choice(("(ValueError, KeyError)", "Own", "Exception", "ZeroDivisionError"))
        text = f"try:\n{inner}\nexcept {kinds} as error:\n    LOG.append(type(error).__name__)\n"
        text += indent(block(chance, 0, loop), "    ")
        if chance.random() < 0.3:
            text += f"\nelse:\n{indent(block(chance, 0, loop), '    ')}"
        if chance.random() < 0.4:
            text += f"\nfinally:\n    LOG.append('finally')\n{indent(simple(chance), '    ')}"
        return text
    if head.startswith("match"):
        return (
            f"{head}\n    case 0:\n{indent(inner, '    ')}\n    case 1 | 2 as m:\n        t = t + m"
        )
    text = f"{head}\n{inner}"
    if (head.startswith(("if", "for", "while"))) and chance.random() < 0.35:
        text += f"\nelse:\n{indent(block(chance, 0, loop), '    ')}"
    return text


def draw(chance: random.Random) -> Program:
    body = ["t, u = x, x + 1"]
    for _ in range(chance.randrange(1, 6)):
        body.append(compound(chance, 2, False) if chance.random() < 0.6 else simple(chance))
    results = ["t", "u", "n", "xs"]
    if any("global TOTAL" in part for part in body):  # declared once, before it is used
        body = ["global TOTAL", *(part.replace("global TOTAL", "pass") for part in body)]
    if chance.random() < 0.08:  # a generator
        body.append("yield t\nyield u")
        body = [
            "def made():\n    nonlocal t, u, n, xs\n"
            + indent("yield t\nt = t + 1\nyield u", "    "),
            *body[:-1],
            "for each in made():\n    u = u + each",
        ]
    calls = []
    for _ in range(chance.randrange(2, 5)):
        dtype = chance.choice(("torch.float32", "torch.float32", "torch.int64"))
        shape = chance.choice(("(3,)", "(3,)", "(2, 3)", "(4,)"))
        x = f"make({shape}, {dtype}, {chance.randrange(20)}, 'whole')"
        if dtype == "torch.float32" and chance.random() < 0.2:
            x = f"leaf({x})"
        if chance.random() < 0.06:
            x = f"opened({x})"
        calls.append(
            Call(
                {
                    "x": x,
                    "n": str(chance.randrange(0, 6)),
                    "xs": chance.choice(("[1, 2, 3]", "[2, 1]", "[5, 4, 3, 2]", "[1, 1]")),
                }
            )
        )
    dynamic = chance.choice((None,) * 6 + (True, False))
    return Program(
        "language", 0, tuple(body), tuple(results), tuple(calls), (SETUP,), dynamic=dynamic
    )
