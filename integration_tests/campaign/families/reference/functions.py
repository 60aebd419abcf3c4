"""Function definitions, arguments of calls, scopes, names.

In: nothing. Out: chapters of forms. Invariant: every kind of parameter and of argument is met by
every other, right and wrong.
"""

from __future__ import annotations

from integration_tests.campaign.families.reference.grammar import Form

_CALLS = (
    "f()", "f(1)", "f(1, 2)", "f(1, 2, 3)", "f(t, n)", "f(a=1)", "f(1, b=2)", "f(b=n, a=t)",
    "f(1, c=3)", "f(*xs)", "f(*xs, c=1)", "f(**{'a': 1})", "f(1, **{'b': 2, 'c': t})",
    "f(*[1], *(2,), **{}, **{'c': 4})", "f(1, a=2)", "f(1, **{'a': 1})", "f(c=1, **{'c': 2})",
    "f(*n)", "f(**xs)", "f(**{1: 2})", "f(1, z=9)", "f(*'ab')", "f(*(j for j in xs))",
    "f(*range(n))", "f(1, 2, 3, 4, 5)", "f(*xs, *xs)", "f(1, *xs, b=3)", "f.__defaults__",
    "f.__kwdefaults__", "f.__code__.co_varnames", "str(inspect.signature(f))", "f.__annotations__",
    "inspect.signature(f).bind(1).arguments", "functools.partial(f, 1)(c=n)", "f.__name__",
    "inspect.getfullargspec(f).args", "f.__code__.co_argcount", "functools.partial(f, c=2)(1)",
    "f.k = n\nR.append(f.k)", "f.__defaults__ = (7,)\nR.append(f(1))", "f.__doc__",
    "f.__code__.co_flags & 4", "f.__qualname__[-1]", "f.__kwdefaults__ = {'c': 8}\nR.append(f(1))",
)  # fmt: skip

CHAPTERS: dict[str, tuple[Form, ...]] = {
    "8.7 function definitions": (
        Form(
            "def f($<a;;a, /;;a=1;;a: int = n>$$<;;, b=2;;, b=t>$, $<*d;;*;;e=5>$, "
            "c$<=2;;=3;;: 'k' = 4>$$<;;, **h>$)$<;; -> int>$:\n    $<'words'\n;;>$return locals()",
            _CALLS,
        ),
        Form(
            "def f($<a, b, /, c=3, *, d=4;;*a, c=1;;**h;;a, b=2, /, **c;;a, /, b, *, c;;"
            "*a, **b;;a, *b, c=5, **h;;a=[], *, c={}>$):\n    return {k: v for k, v in "
            "locals().items"
            "() if not k.startswith('.')}",
            _CALLS,
        ),
        Form(
            "def f(a, into=$<[];;{};;set();;[t];;[[]]>$):\n    $<into.append(a);;into[a] = n;;"
            "into.add(a);;into += [a];;into[0].append(a)>$\n    return into",
            ("f(1)", "f(n)", "f(1)\nR.append(f(2))", "f(1, [9])", "f.__defaults__", "len(f(3))",
             "f(1) is f(2)", "f.__defaults__ = ([5],)\nR.append(f(1))"),
        ),
        Form(
            "def deco($<fn;;fn, k=1>$):\n    @functools.wraps(fn)\n    def inner(*args, **kw):\n"
            "        LOG.append((fn.__name__, len(args), sorted(kw)))\n"
            "        return $<fn(*args, **kw);;fn(*args, **kw) * 2;;(fn(*args), kw)>$\n"
            "    $<inner.calls = 0\n;;>$return inner\n"
            "def named(name, *more):\n    def wrap(fn):\n        fn.name = name\n        return "
            "fn\n"
            "    return wrap\n@named('q', 1)\n@deco\ndef f(a, k=2):\n    'doc'\n    return a * k\n"
            "class C:\n    @deco\n    def m(self, a): return a + 1\n    @property\n    @deco\n"
            "    def p(self): return 3\n    @staticmethod\n    @deco\n    def s(a): return a",
            ("f(n)", "f(t)", "f(t, k=3)", "f.__name__", "f.__wrapped__(2)", "f.name", "C().m(t)",
             "C().p", "C.s(n)", "f.__doc__", "C().m.__name__", "f.calls += 1\nR.append(f.calls)",
             "C.m.__wrapped__(C(), 2)", "inspect.signature(f)", "inspect.unwrap(f)(n)", "f()",
             "@deco\ndef late(a): return a - n\nR.append(late(t))", "vars(f).keys()"),
        ),
    ),
    "4.2 naming and binding": (
        Form(
            "TOTAL = 1\ndef counter(k=0):\n    def bump(by=1):\n        nonlocal k\n"
            "        k = k + by\n        return k\n    def reset():\n        nonlocal k\n"
            "        $<k = 0;;del k>$\n    return bump, reset\nbump, reset = counter(n)",
            ("bump()", "bump(t)", "reset()\nR.append(bump())", "b, r = counter()\nR.append([b(), "
             "b(2), r(), b()])", "bump.__closure__[0].cell_contents", "bump.__code__.co_freevars",
             "fs = [lambda: j for j in xs]\nR.append([f() for f in fs])",
             "fs = [lambda j=j: j * t for j in xs]\nR.append(fs[1]())",
             "R.append([(lambda: j)() for j in xs])", "def f():\n    return later\nlater = n\n"
             "R.append(f())", "def f():\n    R.append(unset)\n    unset = 1\nf()",
             "def f():\n    def g(): return unset\n    R.append(g())\n    unset = 1\nf()",
             "def f():\n    global TOTAL\n    TOTAL = TOTAL + n\n    return TOTAL\nR.append(f())",
             "def f():\n    global FRESH\n    FRESH = t\nf()\nR.append(FRESH)",
             "j = 'kept'\nys = [j for j in xs]\nR.append(j)", "ys = [y := j for j in xs]\n"
             "R.append(y)", "def f(a):\n    class C:\n        a = a if False else 3\n    return "
             "C.a\n"
             "R.append(f(1))", "def f(a):\n    class C:\n        b = a\n        def g(self): "
             "return a\n"
             "    a = 5\n    return (C.b, C().g())\nR.append(f(1))", "locals()['n']",
             "sorted(k for k in locals() if len(k) == 1)", "globals()['TOTAL']",
             "del n\nR.append(n)", "k = n\ndel k\nR.append(k)", "for j in []: pass\nR.append(j)",
             "try: raise Own\nexcept Own as oops: pass\nR.append(oops)", "vars()['n']",
             "exec('R.append(3)')", "eval('n + 1')", "def f(): return __class__\nR.append(f())",
             "import math as m\nfrom math import pi as p\nR.append(m.floor(p))",
             "from math import nothing", "import not_there", "n: int\nR.append(n)",
             "def f():\n    for i in range(3):\n        def g(): return i\n    return g\n"
             "R.append(f()())", "fact = lambda k: 1 if k < 2 else k * fact(k - "
             "1)\nR.append(fact(n))",
             "def even(k): return k == 0 or odd(k - 1)\ndef odd(k): return k != 0 and even(k - 1)\n"
             "R.append(even(n))", "print(n, xs, sep='-', end='!')", "__name__", "dir()[:0]"),
        ),
    ),
}  # fmt: skip
