"""Function definitions, arguments of calls, scopes, names.

In: nothing. Out: chapters of forms. Invariant: every kind of parameter and of argument is met by
every other, right and wrong.
"""

from __future__ import annotations

from integration_tests.campaign.families.reference.grammar import Form

_CALLS = (
    "fn()", "fn(1)", "fn(1, 2)", "fn(1, 2, 3)", "fn(t, n)", "fn(a=1)", "fn(1, b=2)", "fn(b=n, a=t)",
    "fn(1, c=3)", "fn(*xs)", "fn(*xs, c=1)", "fn(**{'a': 1})", "fn(1, **{'b': 2, 'c': t})",
    "fn(*[1], *(2,), **{}, **{'c': 4})", "fn(1, a=2)", "fn(1, **{'a': 1})", "fn(c=1, **{'c': 2})",
    "fn(*n)", "fn(**xs)", "fn(**{1: 2})", "fn(1, z=9)", "fn(*'ab')", "fn(*(j for j in xs))",
    "fn(*range(n))", "fn(1, 2, 3, 4, 5)", "fn(*xs, *xs)", "fn(1, *xs, b=3)", "fn.__defaults__",
    "fn.__kwdefaults__", "fn.__code__.co_varnames", "str(inspect.signature(fn))",
    "fn.__annotations__",
    "inspect.signature(fn).bind(1).arguments", "functools.partial(fn, 1)(c=n)", "fn.__name__",
    "inspect.getfullargspec(fn).args", "fn.__code__.co_argcount", "functools.partial(fn, c=2)(1)",
    "fn.k = n\nR.append(fn.k)", "fn.__defaults__ = (7,)\nR.append(fn(1))", "fn.__doc__",
    "fn.__code__.co_flags & 4", "fn.__qualname__[-1]", "fn.__kwdefaults__ = {'c': "
    "8}\nR.append(fn(1))",
)  # fmt: skip

CHAPTERS: dict[str, tuple[Form, ...]] = {
    "8.7 function definitions": (
        Form(
            "def fn($<a;;a, /;;a=1;;a: int = n>$$<;;, b=2;;, b=t>$, $<*d;;*;;e=5>$, "
            "c$<=2;;=3;;: 'k' = 4>$$<;;, **h>$)$<;; -> int>$:\n    $<'words'\n;;>$return locals()",
            _CALLS,
        ),
        Form(
            "def fn($<a, b, /, c=3, *, d=4;;*a, c=1;;**h;;a, b=2, /, **c;;a, /, b, *, c;;"
            "*a, **b;;a, *b, c=5, **h;;a=[], *, c={}>$):\n    return {k: v for k, v in "
            "locals().items"
            "() if not k.startswith('.')}",
            _CALLS,
        ),
        Form(
            "def fn(a, into=$<[];;{};;set();;[t];;[[]]>$):\n    $<into.append(a);;into[a] = n;;"
            "into.add(a);;into += [a];;into[0].append(a)>$\n    return into",
            ("fn(1)", "fn(n)", "fn(1)\nR.append(fn(2))", "fn(1, [9])", "fn.__defaults__",
            "len(fn(3))",
             "fn(1) is fn(2)", "fn.__defaults__ = ([5],)\nR.append(fn(1))"),
        ),
        Form(
            "def deco($<fn;;fn, k=1>$):\n    @functools.wraps(fn)\n    def inner(*args, **kw):\n"
            "        LOG.append((fn.__name__, len(args), sorted(kw)))\n"
            "        return $<fn(*args, **kw);;fn(*args, **kw) * 2;;(fn(*args), kw)>$\n"
            "    $<inner.calls = 0\n;;>$return inner\n"
            "def named(name, *more):\n    def wrap(fn):\n        fn.name = name\n        return "
            "fn\n"
            "    return wrap\n@named('q', 1)\n@deco\ndef fn(a, k=2):\n    'doc'\n    return a * k\n"
            "class C:\n    @deco\n    def m(self, a): return a + 1\n    @property\n    @deco\n"
            "    def p(self): return 3\n    @staticmethod\n    @deco\n    def s(a): return a",
            ("fn(n)", "fn(t)", "fn(t, k=3)", "fn.__name__", "fn.__wrapped__(2)", "fn.name",
            "C().m(t)",
             "C().p", "C.s(n)", "fn.__doc__", "C().m.__name__", "fn.calls += 1\nR.append(fn.calls)",
             "C.m.__wrapped__(C(), 2)", "inspect.signature(fn)", "inspect.unwrap(fn)(n)", "fn()",
             "@deco\ndef late(a): return a - n\nR.append(late(t))", "vars(fn).keys()"),
        ),
    ),
    "4.2 naming and binding": (
        Form(
            "TOTAL = 1\ndef counter(k=0):\n    def bump(by=1):\n        nonlocal k\n"
            "        k = k + by\n        return k\n    def reset():\n        nonlocal k\n"
            "        $<k = 0;;del k>$\n    return bump, reset\nbump, reset = counter(n)",
            ("bump()", "bump(t)", "reset()\nR.append(bump())", "b, r = counter()\nR.append([b(), "
             "b(2), r(), b()])", "bump.__closure__[0].cell_contents", "bump.__code__.co_freevars",
             "fs = [lambda: j for j in xs]\nR.append([fn() for f in fs])",
             "fs = [lambda j=j: j * t for j in xs]\nR.append(fs[1]())",
             "R.append([(lambda: j)() for j in xs])", "def fn():\n    return later\nlater = n\n"
             "R.append(fn())", "def fn():\n    R.append(unset)\n    unset = 1\nfn()",
             "def fn():\n    def g(): return unset\n    R.append(g())\n    unset = 1\nfn()",
             "def fn():\n    global TOTAL\n    TOTAL = TOTAL + n\n    return TOTAL\nR.append(fn())",
             "def fn():\n    global FRESH\n    FRESH = t\nfn()\nR.append(FRESH)",
             "j = 'kept'\nys = [j for j in xs]\nR.append(j)", "ys = [y := j for j in xs]\n"
             "R.append(y)", "def fn(a):\n    class C:\n        a = a if False else 3\n    return "
             "C.a\n"
             "R.append(fn(1))", "def fn(a):\n    class C:\n        b = a\n        def g(self): "
             "return a\n"
             "    a = 5\n    return (C.b, C().g())\nR.append(fn(1))", "locals()['n']",
             "sorted(k for k in locals() if len(k) == 1)", "globals()['TOTAL']",
             "del n\nR.append(n)", "k = n\ndel k\nR.append(k)", "for j in []: pass\nR.append(j)",
             "try: raise Own\nexcept Own as oops: pass\nR.append(oops)", "vars()['n']",
             "exec('R.append(3)')", "eval('n + 1')", "def fn(): return __class__\nR.append(fn())",
             "import math as m\nfrom math import pi as p\nR.append(m.floor(p))",
             "from math import nothing", "import not_there", "n: int\nR.append(n)",
             "def fn():\n    for i in range(3):\n        def g(): return i\n    return g\n"
             "R.append(fn()())", "fact = lambda k: 1 if k < 2 else k * fact(k - "
             "1)\nR.append(fact(n))",
             "def even(k): return k == 0 or odd(k - 1)\ndef odd(k): return k != 0 and even(k - 1)\n"
             "R.append(even(n))", "print(n, xs, sep='-', end='!')", "__name__", "dir()[:0]"),
        ),
    ),
}  # fmt: skip
