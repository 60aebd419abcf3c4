"""Generators, coroutines and asynchronous generators, driven by hand.

In: nothing. Out: chapters of forms. Invariant: a coroutine is driven by `send`, `throw` and
`close`; no event loop.
"""

from __future__ import annotations

from integration_tests.campaign.families.reference.grammar import Form

_BODY = (
    "$<got = yield $<t;;n;;k;;xs>$;;got = k;;got = ((yield k), (yield n));;"
    "got = yield from inner(k);;got = yield from xs;;got = yield;;for j in range(k): got = "
    "yield j;;"
    "while (got := (yield k)) is None and k < 5: k += 1>$"
)
_DRIVEN = (
    "[*g(2)]", "next(g(n))", "next(g(1), 'none')", "sum(j for j in g(2) if isinstance(j, int))",
    "it = g(n)\nR.append(next(it))\nR.append(it.send($<None;;5;;t;;'s'>$))",
    "it = g(n)\nit.send(3)", "it = g(2)\nnext(it)\nR.append(it.throw($<Own('th');;Own;;"
    "KeyError(1);;"
    "GeneratorExit>$))", "it = g(2)\nnext(it)\nR.append(it.close())\nR.append(next(it, 'closed'))",
    "it = g(2)\ntry:\n    while True: R.append(next(it))\nexcept StopIteration as e: "
    "R.append(e.value)", "for j in g(n):\n    R.append(j)\n    if j == 1: break",
    "a, *b = g(2)\nR.append(b)", "def outer():\n    got = yield from g(2)\n    R.append(('got', "
    "got))"
    "\nR.append([*outer()])", "it = g(2)\nR.append(iter(it) is it)", "g(n).gi_running",
    "it = g(2)\nnext(it)\nR.append(it.gi_frame is None)", "R.append(g.__name__)", "list(map(str, "
    "[j for j in g(2) if not isinstance(j, torch.Tensor)]))", "list(zip(g(2), g(3)))",
    "it = g(2)\nR.append(next(it))\nR.append([*it])\nR.append([*it])", "g(n)", "3 in g(2)",
    "def outer():\n    try: yield from g(2)\n    except Own as e: yield repr(e)\nit = outer()\n"
    "next(it)\nR.append(it.throw(Own('deep')))", "inspect.isgenerator(g(1))",
    "inspect.getgeneratorstate(g(1))", "max(j for j in g(2) if isinstance(j, int))",
    "it = g(2)\nit2 = itertools.tee(it)\nR.append([next(it2[0]), next(it2[1])])",
    "it = g(2)\nt = t + len([*itertools.islice(it, 2)])", "tuple(j for i in g(1) for j in xs)",
    "x2 = [*g(1), *g(2)]\nR.append(len(x2))", "type(g(1)).__name__",
)  # fmt: skip
_WALK = (
    "def walk(c, *sends):\n    seen = []\n    try:\n        seen.append(c.send(None))\n"
    "        for s in sends: seen.append(c.send(s))\n    except StopIteration as e: "
    "seen.append(('end', e.value))\n    except Exception as e: seen.append(repr(e))\n"
    "    return seen\n"
    "class Step:\n    def __init__(self, k): self.k = k\n    def __await__(self):\n"
    "        got = yield self.k\n        return got\n"
    "@types.coroutine\ndef step(k):\n    got = yield k\n    return (k, got)\n"
)

CHAPTERS: dict[str, tuple[Form, ...]] = {
    "6.2.9 generators": (
        Form(
            "def inner(k):\n    try:\n        got = yield k\n        LOG.append(got)\n"
            "        yield k + 1\n    except Own as e:\n        LOG.append(repr(e))\n"
            "        yield 'inner'\n    return 'done'\n"
            f"def g(k):\n    $<try:\n    {_BODY}\n    LOG.append(got)\nexcept Own as e:\n"
            "    LOG.append(repr(e))\n    yield 'caught'\nfinally:\n    LOG.append('finally');;"
            f"{_BODY}\nyield got;;{_BODY}\n{_BODY}\nreturn (k, got);;"
            f"with contextlib.suppress(Own):\n    {_BODY}\nyield 'after';;"
            f"try:\n    {_BODY}\nfinally:\n    yield 'last';;"
            f"try:\n    {_BODY}\nexcept GeneratorExit:\n    LOG.append('exit')\n    raise>$",
            _DRIVEN,
        ),
        Form(
            "def count(k=0):\n    while True:\n        step = yield k\n        k += step or 1\n"
            "def pipe(source, fn):\n    for j in source: yield fn(j)\n"
            "def flat(items):\n    for i in items:\n        if isinstance(i, list): "
            "yield from flat(i)\n        else: yield i\n"
            "def averaged():\n    total = count = 0\n    value = None\n    while True:\n"
            "        value = yield value\n        total = total + value\n        count += 1\n"
            "        value = total / count",
            ("c = count(n)\nR.append([next(c), c.send(5), next(c)])", "[*flat([1, [2, [n]], [t]])]",
             "[*pipe(pipe(xs, lambda j: j * n), str)]",
             "a = averaged()\nnext(a)\nR.append(a.send(n)"
             ")\nR.append(a.send(t))", "[j for j, _ in zip(count(), xs)]",
             "sum(itertools.islice(count(1), n))", "dict(zip('abc', count()))",
             "g = (j * t for j in xs)\nR.append(next(g))\nR.append([*g])",
             "g = (n for _ in xs)\nn += 1\nR.append([*g])", "any(j > 1 for j in count())",
             "g = (j for j in undefined_name)", "[*(i + j for i in xs for j in range(i) if j)]",
             "def r():\n    yield 1\n    raise StopIteration\nR.append([*r()])",
             "def r():\n    me = yield\n    next(me)\ni = r()\nnext(i)\ni.send(i)"),
        ),
    ),
    "6.4 coroutines": (
        Form(
            _WALK + "async def low(k):\n    $<return k * 2;;return await Step(k);;"
            "return await step(k);;raise Own(k);;return t * k>$\n"
            "async def main(k):\n    $<return await low(k);;a = await low(k)\nb = await step(a)\n"
            "return (a, b);;try: return await low(k)\nexcept Own as e: return repr(e);;"
            "return [await low(j) for j in xs];;async with Res() as r: return (r, await low(k));;"
            "return [j async for j in agen(k)];;total = 0\nasync for j in agen(k): total += j\n"
            "else: total += 100\nreturn total;;return {j: 1 async for j in agen(k) if j}>$\n"
            "class Res:\n    async def __aenter__(self): return $<await step('in');;n>$\n"
            "    async def __aexit__(self, *e):\n        LOG.append(e[0] and e[0].__name__)\n"
            "        return $<True;;False;;await step('out')>$\n"
            "async def agen(k):\n    try:\n        for j in range(k):\n"
            "            $<yield j;;yield j\nawait step(j)>$\n    finally: LOG.append('a')",
            ("walk(main(n))", "walk(main(n), 'x')", "walk(main(n), 'x', 'y', t)", "walk(low(n), 1)",
             "c = main(1)\nc.close()", "c = low(n)\ntry: c.send(None)\nexcept StopIteration as e: "
             "R.append(e.value)", "c = main(n)\nc.send(None)\nR.append(c.throw(Own('thrown')))",
             "inspect.iscoroutinefunction(main)", "c = main(1)\nR.append(inspect.iscoroutine(c))\n"
             "c.close()", "a = agen(2)\nR.append(walk(a.__anext__()))\nR.append(walk(a.aclose()))",
             "a = agen(2)\nR.append(walk(a.asend(None)))", "a = agen(0)\ntry: "
             "a.__anext__().send(None)"
             "\nexcept StopAsyncIteration: R.append('ended')", "walk(anext(agen(1), 'd'))",
             "walk(aiter(agen(1)).__anext__())", "type(agen(1)).__name__",
             "main.__name__",
             "c = low(n)\nwalk(c)\nc.send(None)", "t = t + len(walk(low(2)))"),
        ),
    ),
}  # fmt: skip
