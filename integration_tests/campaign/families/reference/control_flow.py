"""Compound statements: exceptions with nested frames, groups, context managers, patterns.

In: nothing. Out: chapters of forms. Invariant: an exception's class, text, arguments, cause,
context, notes and the names of its traceback's frames are looked at.
"""

from __future__ import annotations

from integration_tests.campaign.families.reference.grammar import Form

_RAISES = (
    "raise Own(k);;raise Own('a', k);;raise ValueError;;1 / (k - k);;[][k];;{}[k];;None.no;;"
    "int('x');;raise Own(k) from KeyError(k);;raise Own(k) from None;;raise KeyError(t.shape);;"
    "raise Own(t);;assert k > 50, k;;next(iter(()));;raise StopIteration(k);;t.view(99);;"
    "undefined;;"
    "raise Own(k).with_traceback(None);;k();;'a' + k;;torch.ones(2) @ torch.ones(3);;raise 3"
)
_LOOKED = (
    "repr(e);;e.args;;str(e);;(type(e).__name__, e.__cause__);;repr(e.__context__);;"
    "e.__suppress_context__;;[f.name for f in traceback.extract_tb(e.__traceback__)];;"
    "e.__traceback__ is not None;;isinstance(e, LookupError);;getattr(e, 'name', None);;"
    "repr(e.__context__ and e.__context__.__context__);;getattr(e, 'value', 0);;"
    "type(e).__mro__[1].__name__;;t * len(e.args);;repr(e.__cause__)"
)
_CHAIN = (
    "import traceback\nclass Held:\n    def __init__(self, k): self.k = k\n"
    "def low(k):\n    $<held = Held(k);;mine = [k];;kept = t * 2;;pass;;d = {'k': t}>$\n"
    f"    $<{_RAISES}>$\n    return k\n"
    "def middle(k):\n    $<return low(k);;w = t + k\nreturn low(k);;try: return low(k)\n"
    "finally: LOG.append('middle');;try: return low(k)\nexcept KeyError: raise;;"
    "try: return low(k)\nexcept (ValueError, Own) as e: raise RuntimeError('middle') from e;;"
    "try: return low(k)\nexcept LookupError as e: raise Own('other');;"
    "try: return low(k)\nexcept Exception as e:\n    e.add_note('noted')\n    raise;;"
    "with contextlib.suppress(KeyError): return low(k);;"
    "return [low(j) for j in (k, 2)];;return sum(low(j) for j in (k, 2))>$\n"
    "def high(k):\n    $<return middle(k);;o = Held(t)\nreturn middle(k);;"
    "return (lambda: middle(k))()>$"
)
_CLASSES = "$<Exception;;Own;;(ValueError, KeyError);;LookupError;;ArithmeticError;;TypeError>$"

CHAPTERS: dict[str, tuple[Form, ...]] = {
    "8.4 try": (
        Form(
            _CHAIN,
            (
                f"try:\n    R.append(high(n))\nexcept {_CLASSES} as e:\n    "
                f"R.append($<{_LOOKED}>$)",
                f"try:\n    $<t = t + 1\n>$R.append(middle(n))\nexcept Exception as e:\n"
                f"    R.append(($<{_LOOKED}>$, $<{_LOOKED}>$))\nelse:\n    R.append('else')\n"
                "finally:\n    R.append('finally')",
                "try:\n    try:\n        low(n)\n    finally:\n        t = t * 2\nexcept "
                "Exception: "
                "R.append('out')",
                f"try: low(n)\nexcept Exception as first:\n    try: middle(n)\n"
                f"    except Exception as e: R.append(($<{_LOOKED}>$, e.__context__ is first))",
                "for j in xs:\n    try:\n        high(j)\n    except Exception as e:\n"
                "        R.append(type(e).__name__)\n        $<continue;;break;;t = t + j>$\n"
                "    finally: R.append(j)",
                "def handled(k):\n    try: return high(k)\n    except Exception as e: return "
                "repr(e)"
                "\n    finally: R.append('f')\nR.append(handled(n))",
                "def over():\n    try: high(n)\n    finally: return 'over'\nR.append(over())",
                "low(n)", "high(n)", "kept = None\ntry: high(n)\nexcept Exception as e: kept = e\n"
                "R.append((repr(kept), 'e' in dir()))",
                "try: high(n)\nexcept Exception as e:\n    b = e.__traceback__\n    names = []\n"
                "    while b:\n        names.append(b.tb_frame.f_code.co_name)\n"
                "        b = b.tb_next\n    R.append(names)",
                "try: high(n)\nexcept Exception as e: R.append(getattr(e, '__notes__', None))",
                "import sys\ntry: high(n)\nexcept Exception: R.append(sys.exc_info()[0].__name__)",
                "try: high(n)\nexcept Exception: R.append(traceback.format_exc().count('File'))",
                "try: high(n)\nexcept: R.append('bare')", "try: high(n)\nexcept n: pass",
                "with contextlib.suppress(Exception): high(n)", "R.append(e)",
            ),
        ),
        Form(
            "class Base(Own):\n    def __init__(self, k, more=None):\n"
            "        $<super().__init__(k);;self.k = k;;super().__init__(k, more)\nself.k = more;;"
            "pass>$\n    $<def __str__(self): return f'<{self.args}>';;code = n;;"
            "def __repr__(self): return 'Base!'>$\n"
            "class Leaf(Base, $<ValueError;;KeyError;;LookupError>$): pass",
            ("try: raise Leaf(n)\nexcept $<Base;;Own;;ValueError;;KeyError>$ as e: "
            "R.append((str(e),"
             " e.args, vars(e)))", "raise Base(n)", "raise Base", "str(Leaf(1, t))",
             "repr(Leaf(n))",
             "Leaf(t).args", "issubclass(Leaf, Exception)", "try: raise Base(n, 2) from Leaf(1)\n"
             "except Own as e: R.append(e.__cause__.args)",
             "pickle.loads(pickle.dumps(Own(1))).args",
             "copy.copy(Leaf(1)).args", "Leaf.__mro__[2].__name__", "Base(1) == Base(1)",
             "try: raise Leaf(n)\nexcept Exception as e: R.append(e.code)",
             "e = Base(t)\ntry: raise e\nexcept Base as f: R.append(e is f)"),
        ),
    ),
    "8.4.2 except* and groups": (
        Form(
            "def failing(k):\n    raise ExceptionGroup('g', [Own(k), KeyError('b'), "
            "$<ExceptionGroup('h', [Own(9), ValueError(k)]);;TypeError(k);;OSError(2, 'no')>$])",
            (
                "try: failing(n)\nexcept* Own as e: R.append([len(e.exceptions), str(e)])\n"
                "except* Exception as e: R.append([type(j).__name__ for j in e.exceptions])",
                "try: failing(n)\nexcept* (KeyError, TypeError) as e: R.append(repr(e))",
                "try: failing(n)\nexcept* ValueError: t = t + 1\nexcept* Own as e: raise Own(5)\n"
                "except* Exception: R.append('rest')",
                "try: raise Own(n)\nexcept* Own as e: R.append((repr(e), e.exceptions[0].args))",
                "try: t = t + 1\nexcept* Own: R.append(1)\nelse: R.append('else')\nfinally: "
                "R.append('f')",
                "try: failing(n)\nexcept* Own: pass\nexcept* LookupError: pass\n"
                "except* (ValueError, TypeError, OSError): raise",
                "try: failing(n)\nexcept ExceptionGroup as e: R.append(repr(e.split(Own)))",
                "try: failing(n)\nexcept ExceptionGroup as e: R.append(repr(e.subgroup(KeyError)))",
                "try: failing(n)\nexcept ExceptionGroup as e: R.append(repr(e.derive([Own(1)])))",
                "try: failing(n)\nexcept ExceptionGroup as e: R.append((e.message, "
                "len(e.exceptions)"
                "))", "ExceptionGroup('e', [])", "BaseExceptionGroup('b', [Own(1)])",
                "try: failing(n)\nexcept* ExceptionGroup: pass", "failing(n)",
                "for j in xs:\n    try: failing(j)\n    except* Exception as e: R.append(j)",
            ),
        ),
    ),
    "8.5 with and contextlib": (
        Form(
            "class W:\n    def __init__(self, name='w'): self.name = name\n    def "
            "__enter__(self):\n"
            "        LOG.append('in ' + self.name)\n        return $<self;;t;;self.name;;(1, n)>$\n"
            "    def __exit__(self, kind, e, tb):\n        LOG.append((self.name, kind and "
            "kind.__name__, repr(e), tb is None))\n        return $<False;;True;;None;;kind is "
            "Own;;"
            "self.name == 'w'>$",
            ("with W(): R.append(1)", "with W() as k: R.append(type(k).__name__)",
             "with W(), W('v'): raise Own(n)", "with W(): 1 / 0", "with W() as (a, b): R.append(b)",
             "for k in xs:\n    with W('v'):\n        $<break;;continue;;pass>$",
             "def g():\n    with W(): return t\nR.append(g())",
             "with contextlib.ExitStack() as s:\n    s.enter_context(W())\n    "
             "s.callback(LOG.append"
             ", n)\n    s.push(W('p'))\n    $<raise Own(1);;t = t + 1;;s.pop_all()>$",
             "with contextlib.closing(W()) as k: pass", "with (W() as a, W('b')): t = t * 2",
             "def g():\n    with W('g'):\n        yield n\n        yield t\nR.append(next(g()))",
             "with W(), contextlib.nullcontext(3) as k: R.append(k)", "with n: pass"),
        ),
        Form(
            "@contextlib.contextmanager\ndef around(k=1):\n    LOG.append('enter')\n"
            "    $<try:\n    yield k\nexcept Own as e:\n    LOG.append(repr(e));;"
            "try:\n    yield t * k\nfinally:\n    LOG.append('leave');;yield k;;"
            "try:\n    yield k\nexcept Own as e:\n    raise KeyError('new') from e;;return;;"
            "yield 1\nyield 2;;raise Own('early')\nyield>$\n    LOG.append('end')",
            ("with around() as k: R.append(k)", "with around(): raise Own(n)",
             "with around(2) as k: t = t + k", "with around(): 1 / 0",
             "@around()\ndef run(a): return a * 2\nR.append(run(t))",
             "@around()\ndef run(): raise Own('r')\nR.append(run())",
             "with around() as a, around(3) as b: R.append((a, b))",
             "with contextlib.ExitStack() as s: R.append([s.enter_context(around(j)) for j in xs])",
             "k = around()\nwith k: pass\nwith k: pass", "with around(): raise StopIteration(1)",
             "with contextlib.suppress(KeyError, ZeroDivisionError): {}[n]",
             "import io\nwith contextlib.redirect_stdout(io.StringIO()) as f: print(n)\n"
             "R.append(f.getvalue())", "class D(contextlib.ContextDecorator):\n"
             "    def __enter__(self): R.append('d')\n    def __exit__(self, *e): return False\n"
             "@D()\ndef run(): return n\nR.append(run())",
             "with around() as k:\n    with around(k):\n        raise Own('inner')",
             "around.__wrapped__.__name__", "around.__name__"),
        ),
    ),
    "8.6 match": (
        Form(
            "@dataclasses.dataclass\nclass P:\n    a: object\n    b: object = 2\n"
            "class E(enum.Enum):\n    A = 1\n    B = 2\nclass Q:\n"
            "    __match_args__ = ('k', 'm')\n    def __init__(self, k): self.k = k\n"
            "def which(s):\n    match s:\n"
            + "".join(
                f"        case $<{case}>$: return $<{done}>$\n"
                for case, done in (
                    ("0;;None;;'ab';;-1;;1.5;;b'x';;True;;1j;;1 + 2j", "'value';;t"),
                    ("E.A;;math.pi;;E.B | E.A;;collections.OrderedDict.x", "'dotted'"),
                    ("[];;[k];;[k, *_];;(k, l);;[1, *k, 3];;[[k]];;*_, k;;[_, _]", "('seq', k);;k"),
                    ("{};;{'a': k};;{'a': int(k), **rest};;{1: _, 'b': k};;{'a': [k, *_]}",
                     "('map', k);;rest"),
                    ("P(k);;P(a=k);;P(1, k);;P(P(k));;P(k, b=3);;Q(k);;Q(k, 2);;P(1, 2, k)",
                     "('class', k)"),
                    ("int(k);;str() as k;;float() | int() as k;;list(k);;bool(k);;dict(k);;"
                     "torch.Tensor() as k;;object(k);;tuple([k, _]);;complex()", "('type', k)"),
                    ("k if k;;(1 | 2) as k;;k if isinstance(k, str);;[*k] if len(k) > 1;;k if 1 "
                    "/ 0",
                     "('guard', k)"),
                    ("_", "'none'"),
                )
            ),
            tuple(f"which({s})" for s in (
                "n", "0", "None", "'ab'", "-1", "1.5", "b'x'", "True", "E.A", "E.B", "[]", "[n]",
                "[1, 2, 3]", "(1, n)", "[[t]]", "{}", "{'a': n}", "{'a': 1, 'b': t}",
                "{'a': [1, 2]}",
                "P(n)", "P(1, 3)", "P(P(n))", "P(t)", "Q(n)", "t", "t.shape", "xs", "range(3)",
                "collections.deque(xs)", "collections.OrderedDict(a=1)", "'x'", "object", "2j",
                "collections.defaultdict(int)", "types.MappingProxyType({'a': 1})", "iter(xs)",
                "collections.ChainMap({'a': 5})", "math.pi", "bytearray(b'x')", "{1}", "E",
            )),
        ),
        Form("", (
            "match n:\n    case 2: t = t + 1\n    case 3 | 5: t = t * 2\n    case _: t = t - 1",
            "match xs:\n    case [a, b] as whole: R.append((a, whole))\n    case [a, *rest]: "
            "R.append((a, rest))", "match n, xs:\n    case (k, [a, *_]) if k > a: R.append(k)\n"
            "    case (k, _): R.append(-k)", "match {'t': t, 'n': n}:\n    case {'n': 2, **rest}: "
            "R.append(rest)\n    case {'t': torch.Tensor() as k}: R.append(k)",
            "match t.shape:\n    case (3,): t = t + 1\n    case (k,): t = t + k",
            "match t.dim(), n:\n    case 1, (2 | 3) as k: R.append(k)\nR.append('k' in dir())",
        )),
    ),
}  # fmt: skip
