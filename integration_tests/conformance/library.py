"""Modules of the standard library: what programs around models call of each.

In: each module's names. Out: a construct a name: by the table, else by drawn calls. Invariant: a
name of a module of `DRAWN` has a row; of other modules, those that the table lists.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator

from integration_tests.conformance import drawing
from integration_tests.conformance.construct import Construct, caught

#: modules all of whose names are called, with drawn arguments where the table has no row
DRAWN = ("functools", "itertools", "operator", "math", "cmath", "copy", "heapq", "bisect", "string",
         "textwrap", "statistics", "collections", "re", "json", "struct", "numbers",
         "fractions")  # fmt: skip
IMPORTS = (
    "import abc, array, bisect, cmath, collections, contextlib, contextvars, copy, dataclasses, "
    "datetime, decimal, enum, fractions, functools, gc, hashlib, heapq, inspect, io, itertools, "
    "json, "
    "logging, math, numbers, operator, os, pathlib, pickle, queue, random, re, statistics, string, "
    "struct, sys, textwrap, threading, time, traceback, types, typing, uuid, warnings, weakref"
)
STREAM = "stream = io.StringIO()\nlog = logging.getLogger('conformance')\n" \
    "log.handlers[:] = [logging.StreamHandler(stream)]\nlog.propagate = False\n"  # fmt: skip
WARNED = (
    "with warnings.catch_warnings(record=True) as w:\n    warnings.simplefilter('always')\n    "
)

TABLE: dict[str, dict[str, tuple[str, ...]]] = {
    "functools": {
        "partial": ("functools.partial(add, 1)(n)", "functools.partial(add, b=n)(t)",
                    "p = functools.partial(torch.add, t)\nt = p(n)",
                    "p = functools.partial(add, 1, b=n)\nR.append((p.func is add, p.args, "
                    "p.keywords))",
                    "functools.partial(functools.partial(add, 1), n)()",
                    "R.append(functools.partial(add))",
                    "p = functools.partial(add)\np.k = n\nR.append(p.k)"),
        "partialmethod": ("class C:\n    def m(self, a, b): return (a, b)\n"
                          "    p = functools.partialmethod(m, 1)\nR.append(C().p(n))",),
        "reduce": ("functools.reduce(operator.add, xs)", "functools.reduce(lambda a, b: a * b, "
                                                         "xs, t)",
                   caught("functools.reduce(operator.add, [])"),
                   "functools.reduce(operator.add, [], n)"),
        "lru_cache": ("cached(n)", "cached(n) + cached(n)", "cached.cache_info().hits >= 0",
                      "cached.cache_clear()\nt = t + cached(n)", "@functools.lru_cache\ndef "
                          "g(k): return k\n"
                      "R.append(g(n))", "@functools.lru_cache(2)\ndef g(k): return k * t\nt = "
                                        "g(2)"),
        "cache": ("@functools.cache\ndef g(k): return k * 2\nR.append(g(n) + g(n))",),
        "cached_property": ("Lazy(n).value", "k = Lazy(t)\nR.append(k.value is k.value)"),
        "wraps": ("plus(t)", "plus.__wrapped__.__name__", "def deco(f):\n    @functools.wraps(f)\n"
                  "    def g(*a): return f(*a)\n    return g\nt = deco(add)(t)"),
        "update_wrapper": ("def g(): pass\nR.append(functools.update_wrapper(g, add).__name__)",),
        "singledispatch": ("kinds(n)", "kinds(xs)", "kinds('a')", "kinds.dispatch(int)(n)"),
        "singledispatchmethod": ("class C:\n    @functools.singledispatchmethod\n    def m(self, "
                                 "k): return 1\n"
                                 "    @m.register\n    def _(self, k: int): return "
                                 "k\nR.append(C().m(n))",),
        "total_ordering": ("@functools.total_ordering\nclass C:\n    def __lt__(self, o): return "
                           "True\n"
                           "    def __eq__(self, o): return False\nR.append(C() <= C())",),
        "cmp_to_key": ("sorted(xs, key=functools.cmp_to_key(lambda a, b: b - a))",),
        "WRAPPER_ASSIGNMENTS": ("functools.WRAPPER_ASSIGNMENTS[0]",),
        "WRAPPER_UPDATES": ("functools.WRAPPER_UPDATES",),
    },
    "itertools": {
        name: tuple(text.replace("{}", f"itertools.{name}") for text in texts)
        for name, texts in {
            "accumulate": ("[*{}(xs)]", "[*{}(xs, operator.mul)]", "[*{}([t, t], initial=n)]"),
            "batched": ("[*{}(xs, 2)]",),
            "chain": ("[*{}(xs, 'ab')]", "[*{}.from_iterable([xs, [t]])]", "[*{}()]"),
            "combinations": ("[*{}(xs, 2)]",),
            "combinations_with_replacement": ("[*{}(xs, 2)]",),
            "compress": ("[*{}(xs, [1, 0, n])]",),
            "count": ("[a for a, _ in zip({}(n), xs)]", "next({}(1.5, 2))",
                "k = {}()\nnext(k)\nR.append(next(k))"),
            "cycle": ("[a for a, _ in zip({}(xs), range(5))]",),
            "dropwhile": ("[*{}(lambda k: k < 2, xs)]",),
            "takewhile": ("[*{}(lambda k: k < 3, xs)]",),
            "filterfalse": ("[*{}(lambda k: k > 1, xs)]", "[*{}(None, [0, n])]"),
            "groupby": ("[(k, [*g]) for k, g in {}('aab')]", "dict((k, len([*g])) for k, g in "
                "{}(xs, key=lambda v: v > 1))"),
            "islice": ("[*{}(xs, 2)]", "[*{}(xs, 1, None, 2)]", "[*{}(itertools.count(), n)]",
                "[*{}(t, 2)]"),
            "pairwise": ("[*{}(xs)]", "[b - a for a, b in {}([t, t * 2])]"),
            "permutations": ("[*{}(xs, 2)]", "[*{}(xs)]"),
            "product": ("[*{}(xs, 'ab')]", "[*{}([0, 1], repeat=2)]"),
            "repeat": ("[*{}(t, 2)]", "[*map(pow, xs, {}(2))]"),
            "starmap": ("[*{}(add, [(1, 2), (t, n)])]",),
            "tee": ("a, b = {}(xs)\nR.append(([*a], [*b]))",),
            "zip_longest": ("[*{}(xs, 'a')]", "[*{}(xs, [t], fillvalue=n)]"),
        }.items()
    },
    "operator": {
        "attrgetter": ("operator.attrgetter('shape')(t)", "operator.attrgetter('a', 'b')(Pair(t))",
                       "operator.attrgetter('a.shape')(Pair(t))"),
        "itemgetter": ("operator.itemgetter(0)(xs)", "operator.itemgetter(0, 1)([t, n])",
                       "sorted([(1, 2), (2, 1)], key=operator.itemgetter(1))"),
        "methodcaller": ("operator.methodcaller('relu')(t)", "operator.methodcaller('split', "
            "',')('a,b')"),
    },
    "math": {"fsum": ("math.fsum([0.1] * 10)",), "prod": ("math.prod(xs)", "math.prod(t.shape)"),
             "sqrt": ("math.sqrt(n)", "t / math.sqrt(t.shape[-1])", caught("math.sqrt(-1)")),
             "isnan": ("math.isnan(float('nan'))", "math.isnan(n)")},
    "copy": {
        "copy": ("copy.copy(xs)", "copy.copy(t) is t", "copy.copy({'a': t})",
            "copy.copy(Pair(t)).b",
                 "copy.copy(xs) is xs"),
        "deepcopy": ("copy.deepcopy([xs, xs])", "copy.deepcopy({'a': [n]})",
            "copy.deepcopy(Pair(n)).a",
                     "copy.deepcopy(t)", "copy.deepcopy([t])"),
    },
    "collections": {
        "namedtuple": ("P = collections.namedtuple('P', 'a b')\nR.append(P(1, n).b)",
                       "P = collections.namedtuple('P', ['a'], defaults=[1])\nt = t + P().a"),
        "abc": ("isinstance(xs, collections.abc.Mapping)", "isinstance({}, "
                                                           "collections.abc.Mapping)",
                "isinstance(add, collections.abc.Callable)", "isinstance('a', "
                    "collections.abc.Iterable)"),
        "defaultdict": ("d = collections.defaultdict(list)\nd[n].append(t)\nR.append(d)",
                        "d = collections.defaultdict(lambda: n)\nR.append(d['a'])"),
        "Counter": ("collections.Counter(xs)", "collections.Counter('aab').most_common(1)",
                    "collections.Counter(a=1) + collections.Counter(a=n)"),
        "OrderedDict": ("d = collections.OrderedDict(a=1, b=2)\nd.move_to_end('a')\nR.append(d)",),
        "deque": ("d = collections.deque(xs, 2)\nd.append(t)\nR.append(d)",
            "collections.deque(xs)[0]"),
        "ChainMap": ("collections.ChainMap({'a': n}, {'b': t})['b']",),
    },
    "cmath": {}, "heapq": {}, "bisect": {}, "string": {}, "textwrap": {},
    "statistics": {}, "re": {}, "json": {}, "struct": {}, "numbers": {},
    "fractions": {"Fraction": ("fractions.Fraction(1, n) + 1", "float(fractions.Fraction(n, 4))",
                               "fractions.Fraction('0.5')", "fractions.Fraction(1, 3) * "
                                   "t.shape[0]")},
    "decimal": {
        "Decimal": ("decimal.Decimal('1.1') + n", "float(decimal.Decimal('2.5'))",
            "decimal.Decimal(n) / 3",
                    "decimal.Decimal('1.234').quantize(decimal.Decimal('0.1'))"),
        "getcontext": ("decimal.getcontext().prec",),
        "localcontext": ("with decimal.localcontext() as c:\n    c.prec = 3\n    "
                         "R.append(decimal.Decimal(1) / 3)",),
        "ROUND_HALF_UP": ("decimal.ROUND_HALF_UP",),
    },
    "random": {
        "random": ("random.random()", "random.random() < 2", "if random.random() > 1: t = t * 2"),
        "randint": ("random.randint(0, n)",), "randrange": ("random.randrange(5)",
            "random.randrange(0, 9, n)"),
        "choice": ("random.choice(xs)", caught("random.choice([])")),
        "choices": ("random.choices(xs, k=2)", "random.choices('ab', weights=[1, n])"),
        "sample": ("random.sample(range(9), n)",), "shuffle": ("random.shuffle(xs)\nR.append(xs)",),
        "uniform": ("random.uniform(0, n)", "t = t * random.uniform(1, 2)"), "gauss": (
            "random.gauss(0, 1)",),
        "normalvariate": ("random.normalvariate(0, 1)",), "expovariate": (
            "random.expovariate(1.0)",),
        "betavariate": ("random.betavariate(1, 2)",), "triangular": ("random.triangular(0, 1, "
            "0.5)",),
        "lognormvariate": ("random.lognormvariate(0, 1)",), "gammavariate": (
            "random.gammavariate(1, 2)",),
        "getrandbits": ("random.getrandbits(8)",), "randbytes": ("random.randbytes(2)",),
        "seed": ("random.seed(n)\nR.append(random.random())",),
        "getstate and setstate": ("k = random.getstate()\na = random.random()\nrandom.setstate(k)\n"
                                  "R.append(a == random.random())",),
        "Random": ("random.Random(n).random()", "k = random.Random(0)\nR.append((k.random(), "
                                                "k.randint(0, 9)))",
                   "k = random.Random(1)\nk.shuffle(xs)\nR.append((xs, k.choice([1, 2])))",
                   "HELD = random.Random(n)\nR.append([HELD.uniform(0, 1) for _ in xs])",
                   "random.Random(n).sample(range(5), 2)"),
        "Random given": ("held.random()", "held.randint(0, 9) + held.random()",
            "held.shuffle(xs)\nR.append(xs)"),
        "SystemRandom": ("random.SystemRandom().random() < 1",),
    },
    "enum": {
        "Enum": ("Shade(n % 2 + 1).name", "[k.name for k in Shade]", "Shade['DARK'].value",
            "Shade.DARK",
                 "class E(enum.Enum):\n    A = 1\nR.append(E.A.value)"),
        "Flag": ("class E(enum.Flag):\n    A = 1\n    B = 2\nR.append((E.A | E.B).value)",),
        "auto": ("class E(enum.Enum):\n    A = enum.auto()\nR.append(E.A.value)",),
        "IntEnum": ("t + Shade.DARK", "Shade.DARK > 1", "range(Shade.DARK)", "xs[Shade.LIGHT]"),
        "StrEnum": ("class E(enum.StrEnum):\n    A = enum.auto()\nR.append(E.A == 'a')",),
        "unique": ("@enum.unique\nclass E(enum.Enum):\n    A = 1\nR.append(E.A.name)",),
        "functional": ("enum.Enum('E', 'A B').B.value",),
        "member and nonmember": ("class E(enum.Enum):\n    A = enum.member(1)\n    k = "
                                 "enum.nonmember(2)\nR.append(E.k)",),
    },
    "dataclasses": {
        "dataclass": ("Pair(t, n).b", "Pair(t) == Pair(t, 2)", "repr(Pair(n))",
            "R.append(Pair(t, n))",
                      "@dataclasses.dataclass\nclass D:\n    a: int = 1\nR.append(D(n).a)",
                      "@dataclasses.dataclass(frozen=True)\nclass D:\n    a: object\nt = D(t).a",
                      caught("Pair()")),
        "field": ("@dataclasses.dataclass\nclass D:\n    a: list = "
                  "dataclasses.field(default_factory=list)\n"
                  "R.append(D().a)", "dataclasses.fields(Pair)[1].default"),
        "fields": ("[f.name for f in dataclasses.fields(Pair)]", "[getattr(Pair(t), f.name) for "
            "f in "
                   "dataclasses.fields(Pair(t))]", caught("dataclasses.fields(n)")),
        "asdict": ("dataclasses.asdict(Pair(n))", "dataclasses.asdict(Pair([xs], Pair(1)))",
                   "dataclasses.asdict(Pair(t))['b']"),
        "astuple": ("dataclasses.astuple(Pair(n))",),
        "replace": ("dataclasses.replace(Pair(t), b=n).b", caught("dataclasses.replace(Pair(t), "
            "z=n)")),
        "is_dataclass": ("dataclasses.is_dataclass(Pair)", "dataclasses.is_dataclass(n)"),
        "make_dataclass": ("dataclasses.make_dataclass('D', ['a'])(n).a",),
        "MISSING": ("dataclasses.fields(Pair)[0].default is dataclasses.MISSING",),
        "KW_ONLY": ("@dataclasses.dataclass\nclass D:\n    _: dataclasses.KW_ONLY\n    a: int = "
                    "1\nR.append(D(a=n).a)",),
        "InitVar": ("@dataclasses.dataclass\nclass D:\n    a: dataclasses.InitVar[int]\n"
                    "    def __post_init__(self, a): self.k = a\nR.append(D(n).k)",),
        "FrozenInstanceError": (
            "@dataclasses.dataclass(frozen=True)\nclass D:\n    a: int\n" + caught("D(n).a = 2"),),
    },
    "contextlib": {
        "contextmanager": ("with noted('a') as k: R.append(k)", "@noted('d')\ndef g(): return "
            "n\nR.append(g())",
                           "@contextlib.contextmanager\ndef own():\n    yield n\nwith own() as "
                           "k: t = t + k",
                           "try:\n    with noted('a'): raise Own\nexcept Own: t = t + 1"),
        "closing": ("with contextlib.closing(doubled(3)) as k: R.append(next(k))",),
        "suppress": ("with contextlib.suppress(KeyError, IndexError): xs[9]",
                     caught("with contextlib.suppress(KeyError): xs[9]")),
        "redirect_stdout": ("k = io.StringIO()\nwith contextlib.redirect_stdout(k): "
                            "print(n)\nR.append(k.getvalue())",),
        "redirect_stderr": ("k = io.StringIO()\nwith contextlib.redirect_stderr(k): print(n, "
                            "file=sys.stderr)\n"
                            "R.append(k.getvalue())",),
        "nullcontext": ("with contextlib.nullcontext(): t = t + 1", "with "
            "contextlib.nullcontext(n) as k: t = t + k"),
        "ExitStack": ("with contextlib.ExitStack() as s:\n    "
                      "R.append(s.enter_context(noted('a')))",
                      "with contextlib.ExitStack() as s: s.callback(LOG.append, n)",
                      "with contextlib.ExitStack() as s:\n    s.enter_context(torch.no_grad())\n "
                      "   t = t + 1",
                      "s = contextlib.ExitStack()\ns.push(lambda *e: LOG.append(n))\ns.close()",
                      "with contextlib.ExitStack() as s:\n    s.enter_context(noted('a'))\n    k "
                      "= s.pop_all()\nk.close()"),
        "AsyncExitStack": ("type(contextlib.AsyncExitStack()).__name__",),
        "ContextDecorator": ("class C(contextlib.ContextDecorator):\n    def __enter__(self): "
                             "LOG.append(1)\n"
                             "    def __exit__(self, *e): LOG.append(2)\n@C()\ndef g(): return "
                             "n\nR.append(g())",),
        "asynccontextmanager": ("@contextlib.asynccontextmanager\nasync def g(): yield "
                                "n\nR.append(g.__name__)",),
        "chdir": ("with contextlib.chdir('.'): t = t + 1",),
        "AbstractContextManager": ("isinstance(Swallow(), contextlib.AbstractContextManager)",),
    },
    "datetime": {
        "date": ("datetime.date(2024, 1, n)", "datetime.date(2024, 1, 1).isoformat()",
            "datetime.date(2024, 3, 1) - "
                 "datetime.date(2024, 2, 1)", caught("datetime.date(2024, 99, 1)")),
        "datetime": ("datetime.datetime(2024, 1, n).year", "datetime.datetime(2024, 1, "
                                                           "1).strftime('%Y-%m')",
                     "datetime.datetime.strptime('2024', '%Y').year",
                     "datetime.datetime.fromisoformat('2024-01-02').day"),
        "timedelta": ("datetime.timedelta(seconds=n).total_seconds()",
            "datetime.timedelta(1) * n > datetime.timedelta(2)",
                      "str(datetime.timedelta(hours=n))"),
        "timezone": ("datetime.timezone.utc", "datetime.timezone(datetime.timedelta(hours=n))"),
        "datetime.now": ("datetime.datetime.now().year > 2000", "datetime.date.today().year > "
            "2000"),
    },
    "time": {
        name: (f"time.{name}() > 0", f"k = time.{name}()\nt = t + 1\nR.append(time.{name}() >= k)",
               f"k = time.{name}()\nt = t + 1\nLOG.append(time.{name}() - k >= 0)")
        for name in ("time", "perf_counter", "monotonic", "process_time", "time_ns",
        "perf_counter_ns",
                     "monotonic_ns", "thread_time")
    } | {
        "sleep": ("time.sleep(0)",), "strftime": ("len(time.strftime('%Y')) == 4",),
        "localtime": ("time.localtime().tm_year > 2000",), "gmtime": ("time.gmtime(0).tm_year",),
        "ctime": ("len(time.ctime()) > 5",), "mktime": ("time.mktime(time.gmtime(0)) < 1e6",),
    },
    "threading": {
        "local": ("k = threading.local()\nk.v = n\nR.append(k.v)", "mine.v = n\nR.append(mine.v)",
                  "getattr(mine, 'none', n)", "hasattr(mine, 'none')",
                  "mine.count = getattr(mine, 'count', 0) + 1\n"
                  "R.append(mine.count)", "mine.t = t\nt = mine.t + 1", caught("mine.none")),
        "Lock": ("with lock: t = t + 1", "with lock: LOG.append(n)", "with threading.Lock(): t = "
            "t + 1",
                 "lock.acquire()\ntry: t = t + 1\nfinally: lock.release()", "lock.locked()",
                 "R.append(lock.acquire(blocking=False))\nlock.release()",
                 "with lock: R.append(lock.locked())", "try:\n    with lock: raise Own\nexcept "
                                                       "Own: R.append(lock.locked())",
                 caught("threading.Lock().release()"),
                 "k = threading.Lock()\nR.append(k.locked())"),
        "RLock": ("with rlock: t = t + 1", "with rlock:\n    with rlock: t = t + 1",
            "with threading.RLock(): pass"),
        "Event": ("k = threading.Event()\nk.set()\nR.append(k.is_set())",),
        "Condition": ("with threading.Condition(): t = t + 1",),
        "Semaphore": ("with threading.Semaphore(1): t = t + 1",),
        "Thread": ("k = threading.Thread(target=lambda: LOG.append(n))\nk.start()\nk.join()",),
        "current_thread": ("threading.current_thread().name", "threading.current_thread() is "
            "threading.main_thread()"),
        "get_ident": ("threading.get_ident() == threading.get_ident()",), "active_count": (
            "threading.active_count() > 0",),
        "main_thread": ("threading.main_thread().name",),
    },
    "types": {
        "SimpleNamespace": ("types.SimpleNamespace(a=t, b=n).a",
            "k = types.SimpleNamespace()\nk.a = n\nR.append(k.a)",
                            "R.append(types.SimpleNamespace(a=n))",
                            "repr(types.SimpleNamespace(a=n))",
                            "vars(types.SimpleNamespace(a=n))", "types.SimpleNamespace(a=1) == "
                                "types.SimpleNamespace(a=1)",
                            "types.SimpleNamespace(**{'a': n})"),
        "MappingProxyType": ("types.MappingProxyType({'a': n})['a']", caught(
            "types.MappingProxyType({})['k'] = 1")),
        "MethodType": ("types.MethodType(add, t)(n)", "p = Pair(t)\np.m = "
                                                      "types.MethodType(lambda s, k: s.b + k, p)\n"
                       "R.append(p.m(n))"),
        "FunctionType": ("isinstance(add, types.FunctionType)",
            "types.FunctionType(add.__code__, globals())(1, 2)"),
        "GeneratorType": ("isinstance(doubled(2), types.GeneratorType)",),
        "ModuleType": ("isinstance(math, types.ModuleType)", "types.ModuleType('m').__name__"),
        "NoneType": ("isinstance(None, types.NoneType)",), "UnionType": (
            "isinstance(int | str, types.UnionType)",),
        "GenericAlias": ("isinstance(list[int], types.GenericAlias)",),
        "BuiltinFunctionType": ("isinstance(len, types.BuiltinFunctionType)",),
        "LambdaType": ("isinstance(lambda: 1, types.LambdaType)",),
        "CodeType": ("isinstance(add.__code__, types.CodeType)",),
        "TracebackType": ("try: 1 / 0\nexcept Exception as e: "
                          "R.append(isinstance(e.__traceback__, types.TracebackType))",),
        "new_class": ("types.new_class('C', (Plain0,)).__name__",), "resolve_bases": (
            "types.resolve_bases((int,))",),
        "DynamicClassAttribute": ("class C:\n    k = types.DynamicClassAttribute(lambda self: "
                                  "n)\nR.append(C().k)",),
        "coroutine": ("@types.coroutine\ndef g(): yield n\nR.append(g().send(None))",),
        "CellType": ("types.CellType(n).cell_contents",),
    },
    "typing": {
        "Any": ("k: typing.Any = n\nR.append(k)",), "Optional": ("typing.Optional[int]",
            "def g(a: typing.Optional[int] = None): "
                "return a\nR.append(g(n))"), "Union": ("typing.Union[int, str]",
                "typing.Union[int, None] == typing.Optional[int]"),
        "cast": ("typing.cast(int, t)", "typing.cast('torch.Tensor', t) + 1"), "List": (
            "typing.List[int]",),
        "Dict": ("typing.Dict[str, int]", "typing.Dict[str, int]().get('a')"), "Tuple": (
            "typing.Tuple[int, ...]",),
        "Callable": ("typing.Callable[[int], str]",), "Literal": ("typing.Literal['a', 1]",
            "typing.get_args(typing.Literal['a'])"),
        "TypeVar": ("typing.TypeVar('T').__name__",), "Generic": ("class "
            "C(typing.Generic[typing.TypeVar('T')]): k = n\nt = t + C().k",),
        "NamedTuple": ("class P(typing.NamedTuple):\n    a: int\nR.append(P(n).a)",
            "typing.NamedTuple('P', [('a', int)])(n).a"),
        "TypedDict": ("class D(typing.TypedDict):\n    a: int\nR.append(D(a=n))",), "Protocol": (
            "class P(typing.Protocol):\n    def m(self): ...\nR.append(P.__name__)",),
        "runtime_checkable": ("isinstance(n, typing.SupportsInt)", "isinstance(t, typing.Sized)",
                              "isinstance('a', typing.SupportsIndex)"),
        "get_type_hints": ("typing.get_type_hints(Pair)['b']",), "get_origin": (
            "typing.get_origin(typing.List[int])",),
        "get_args": ("typing.get_args(typing.Union[int, str])",), "TYPE_CHECKING": (
            "typing.TYPE_CHECKING",),
        "overload": ("@typing.overload\ndef g(a: int): ...\ndef g(a): return a\nR.append(g(n))",),
        "final": ("@typing.final\ndef g(): return n\nR.append(g())",), "NewType": (
            "typing.NewType('K', int)(n)",),
        "assert_never": (caught("typing.assert_never(n)"),), "assert_type": (
            "typing.assert_type(n, int)",),
        "Annotated": ("typing.Annotated[int, 'm']",), "ClassVar": ("typing.ClassVar[int]",),
            "Final": ("k: typing.Final = n\nR.append(k)",),
        "reveal_type": ("typing.is_typeddict(dict)",), "no_type_check": (
            "typing.no_type_check(add)(n)",),
        "Sequence": ("isinstance(xs, typing.Sequence)",), "Iterable": (
            "isinstance(xs, typing.Iterable)",),
        "Type": ("typing.Type[int]",), "ParamSpec": ("typing.ParamSpec('P').__name__",), "Self": (
            "typing.Self",),
        "NoReturn": ("typing.NoReturn",), "Text": ("typing.Text('a')",),
    },
    "abc": {
        "ABC": ("class C(abc.ABC):\n    k = n\nt = t + C().k", caught("Abstract()"),
            "Concrete().m()", "isinstance(Concrete(), Abstract)",
                "issubclass(Concrete, Abstract)"),
        "abstractmethod": ("Abstract.m.__isabstractmethod__", "class C(Abstract):\n    def "
            "m(self): return n\nR.append(C().m())"),
        "ABCMeta": ("type(Abstract) is abc.ABCMeta", "Abstract.__abstractmethods__"), "register": (
            "isinstance(1.5, Registered)",
                    "class C: pass\nAbstract.register(C)\nR.append(issubclass(C, Abstract))"),
        "get_cache_token": ("abc.get_cache_token() == abc.get_cache_token()",),
        "update_abstractmethods": ("abc.update_abstractmethods(Concrete) is Concrete",),
    },
    "inspect": {
        "signature": ("[*inspect.signature(add).parameters]", "str(inspect.signature(add))",
                      "inspect.signature(Pair).parameters['b'].default",
                      "inspect.signature(add).bind(1).arguments",
                      "'b' in inspect.signature(lambda a, b: a).parameters",
                      "inspect.signature(torch.nn.Linear.forward).parameters.keys()"),
        "Parameter": ("inspect.signature(add).parameters['a'].kind == "
                      "inspect.Parameter.POSITIONAL_OR_KEYWORD",
                      "inspect.signature(add).parameters['a'].default is inspect.Parameter.empty"),
        "isclass": ("inspect.isclass(Pair)", "inspect.isclass(n)"), "isfunction": (
            "inspect.isfunction(add)",
                    "inspect.isfunction(len)"), "ismethod": ("inspect.ismethod(Vec(t).__len__)",),
                    "ismodule": ("inspect.ismodule(math)",),
        "isbuiltin": ("inspect.isbuiltin(len)",), "isgenerator": (
            "inspect.isgenerator(doubled(1))",),
        "isgeneratorfunction": ("inspect.isgeneratorfunction(doubled)",), "iscoroutinefunction": (
            "inspect.iscoroutinefunction(add)",),
        "isabstract": ("inspect.isabstract(Abstract)",), "isroutine": ("inspect.isroutine(len)",),
            "isdatadescriptor": (
            "inspect.isdatadescriptor(property())",), "iscode": ("inspect.iscode(add.__code__)",),
        "getmembers": ("len(inspect.getmembers(Pair(1))) > 3",), "getattr_static": (
            "inspect.getattr_static(Pair(t), 'b')",),
        "getdoc": ("inspect.getdoc(len)[:3]",), "getmro": ("inspect.getmro(Pair)[-1] is object",),
            "getmodule": (
            "inspect.getmodule(torch.nn.Linear).__name__",), "getfullargspec": (
            "inspect.getfullargspec(add).args",),
        "getsource": (caught("inspect.getsource(add)"), "len(inspect.getsource(functools.wraps)) "
                                                        "> 9"),
        "getfile": (caught("inspect.getfile(math)"),), "unwrap": ("inspect.unwrap(plus).__name__",),
        "currentframe": ("inspect.currentframe() is not None",
            "inspect.currentframe().f_code.co_name"),
        "stack": ("len(inspect.stack()) > 0", "inspect.stack()[0].function"), "cleandoc": (
            "inspect.cleandoc('  a')",),
        "getclosurevars": ("inspect.getclosurevars(add).unbound",), "getcallargs": (
            "inspect.getcallargs(add, 1)",),
    },
    "weakref": {
        "ref": ("weakref.ref(o)() is o", "k = weakref.ref(t)\nR.append(k() is t)",
            "k = Vec(t)\nr = weakref.ref(k)\nR.append(r() is k)",
                "r = weakref.ref(Vec(t))\nR.append(r() is None)", caught("weakref.ref(n)"),
                "held_ref().t.shape", "held_ref() is o"),
        "proxy": ("weakref.proxy(o).t", "held_proxy.t"), "WeakKeyDictionary": (
            "k = weakref.WeakKeyDictionary()\nk[o] = n\nR.append(k[o])",
                  "weak_keys.get(o)", "weak_keys[o] = n\nR.append(len(weak_keys))"),
        "WeakValueDictionary": ("k = weakref.WeakValueDictionary()\nk['a'] = o\nR.append(k['a'] "
                                "is o)", "weak_values['o'] is o"),
        "WeakSet": ("k = weakref.WeakSet()\nk.add(o)\nR.append(o in k)",), "finalize": (
            "k = weakref.finalize(o, print)\nR.append((k.alive, k.detach() is not None))",),
        "getweakrefcount": ("weakref.getweakrefcount(o) > 0",), "WeakMethod": (
            "weakref.WeakMethod(o.__len__)() is not None",),
        "ReferenceType": ("isinstance(held_ref, weakref.ReferenceType)",),
    },
    "warnings": {
        "warn": (WARNED + "warnings.warn('a')\nR.append([str(k.message) for k in w])",
                 WARNED + "warnings.warn(f'n {n}', UserWarning, stacklevel=2)\nR.append(len(w))",
                 "warnings.warn('seen')\nt = t + 1",
                 WARNED + "t = t + 1\n    warnings.warn(DeprecationWarning('d'))\n    t = t * 2"),
        "catch_warnings": ("with warnings.catch_warnings(): t = t + 1",
            "with warnings.catch_warnings():\n    "
                           "warnings.simplefilter('ignore')\n    t = t + 1"),
        "simplefilter": ("with warnings.catch_warnings():\n    warnings.simplefilter('error')\n  "
                         "  " +
                         caught("warnings.warn('w')").replace("\n", "\n    "),),
        "filterwarnings": ("with warnings.catch_warnings():\n    "
                           "warnings.filterwarnings('ignore', 'a')\n    warnings.warn('a')",),
        "warn_explicit": (WARNED + "warnings.warn_explicit('a', UserWarning, 'f', 1)",),
            "formatwarning": (
            "warnings.formatwarning('m', UserWarning, 'f', 1, 'l')",), "resetwarnings": (
            "with warnings.catch_warnings(): warnings.resetwarnings()",),
    },
    "array": {"array": ("array.array('i', xs)", "array.array('f', [1.5])[0]",
        "sum(array.array('i', xs))", "torch.tensor(array.array('i', [1, 2]))",
                        "a = array.array('i', xs)\na.append(n)\nR.append(a.tolist())")},
    "queue": {"Queue": ("q = queue.Queue(2)\nq.put(t)\nR.append(q.get())",
        "q = queue.Queue()\n" + caught("q.get(block=False)"))},
    "uuid": {"UUID": ("uuid.UUID(int=n).hex", "str(uuid.UUID(int=n))"), "uuid4": (
        "len(str(uuid.uuid4()))", "uuid.uuid4() != uuid.uuid4()"),
             "uuid1": ("uuid.uuid1().version",), "uuid5": ("uuid.uuid5(uuid.NAMESPACE_DNS, "
                                                           "'a').hex",), "uuid3": (
                                                           "uuid.uuid3(uuid.NAMESPACE_DNS, "
                                                           "'a').hex",)},
    "hashlib": {"md5": ("hashlib.md5(b'a').hexdigest()",), "sha256": (
        "hashlib.sha256(str(n).encode()).hexdigest()", "k = hashlib.sha256()\nk.update(b'a')\n"
                "R.append(k.digest())"), "sha1": ("hashlib.sha1(b'a').hexdigest()",), "new": (
                "hashlib.new('sha256', b'a').hexdigest()",),
                "blake2b": ("hashlib.blake2b(b'a', digest_size=4).hexdigest()",),
                    "algorithms_available": ("'md5' in hashlib.algorithms_available",)},
    "pathlib": {
        "Path": ("pathlib.Path('a') / 'b'", "str(pathlib.Path('a', 'b'))",
            "pathlib.Path('a/b.txt').suffix", "pathlib.Path('/no').exists()",
                 "pathlib.Path('a').joinpath('b').name", "pathlib.Path('a/b').parent == "
                                                         "pathlib.Path('a')",
                                                         "[*pathlib.Path('/no/no').glob('*')]",
                 "pathlib.Path.cwd().is_dir()", "path / 'k'", "path.name", "path.is_file()",
                 "f'{path}'"),
        "PurePath": ("pathlib.PurePath('a/b').parts", "pathlib.PurePath('a.b').stem",
            "pathlib.PureWindowsPath('a').as_posix()"),
    },
    "io": {"StringIO": ("k = io.StringIO()\nk.write('a')\nR.append(k.getvalue())",
        "k = io.StringIO()\nprint(n, file=k)\nR.append(k.getvalue())",
                        "io.StringIO('a\\nb').readlines()"),
           "BytesIO": ("k = io.BytesIO()\nk.write(b'a')\nR.append(k.getvalue())",
               "k = io.BytesIO()\ntorch.save(n, k)\nk.seek(0)\nR.append(torch.load(k))"),
           "open": ("with io.open(os.devnull) as k: R.append(k.read())",)},
    "logging": {
        "getLogger": ("logging.getLogger('conformance').name", "logging.getLogger('conformance') "
            "is log", "logging.getLogger(__name__).level"),
        "Logger.debug": ("log.debug('a %s', n)", "log.debug(f'{t.shape}')"),
        "Logger.info": ("log.info('a')", "log.info('%d of %s', n, xs)"),
        "Logger.warning": ("log.warning('a %s', n)\nR.append(stream.getvalue())",
            "log.warning(f'{n}')", "t = t + 1\nlog.warning('m')\nt = t * 2",
                           "log.warning('%s', t.shape)", "if n > 5: log.warning(f'{t}')"),
        "Logger.error": ("log.error('a', extra={'k': 1})", "log.error('%s', Own('e'))"),
        "Logger.exception": ("try: 1 / 0\nexcept ZeroDivisionError: log.exception('e')",),
        "Logger.log": ("log.log(logging.WARNING, 'a')", "log.log(n, 'a')"),
        "Logger.isEnabledFor": ("log.isEnabledFor(logging.DEBUG)", "if log.isEnabledFor(10): "
            "print(t)"),
        "Logger.setLevel": ("log.setLevel(logging.WARNING)",
            "log.setLevel('ERROR')\nlog.warning('a')\nlog.setLevel('WARNING')"),
        "Logger.level": ("log.level", "log.getEffectiveLevel()", "log.parent.name",
            "log.handlers[0] is not None"),
        "warning": ("logging.warning('root') if n > 9 else None", "logging.info('root')",
            "logging.debug('root %s', n)"),
        "levels": ("logging.WARNING", "logging.getLevelName(30)"),
    },
    "traceback": {
        "format_exc": ("try: 1 / 0\nexcept ZeroDivisionError: "
                       "R.append(traceback.format_exc().splitlines()[-1])",),
        "format_exception": ("try: 1 / 0\nexcept ZeroDivisionError as e: "
                             "R.append(traceback.format_exception(e)[-1])",),
        "format_exception_only": ("traceback.format_exception_only(Own(n))",),
        "print_exc": ("try: 1 / 0\nexcept ZeroDivisionError: "
                      "traceback.print_exc(file=io.StringIO())",),
        "format_stack": ("len(traceback.format_stack()) > 0",), "extract_stack": (
            "traceback.extract_stack()[-1].name",),
        "extract_tb": ("try: 1 / 0\nexcept ZeroDivisionError as e: "
                       "R.append(len(traceback.extract_tb(e.__traceback__)))",),
        "TracebackException": ("try: 1 / 0\nexcept ZeroDivisionError as e: "
                               "R.append(str(traceback.TracebackException.from_exception(e)))",),
    },
    "os and sys": {
        "os.environ": ("os.environ.get('NO_SUCH')", "'NO_SUCH' in os.environ",
            "os.getenv('NO_SUCH', n)", caught("os.environ['NO_SUCH']"),
                       "os.environ['CONFORMANCE'] = '1'\nR.append(os.environ['CONFORMANCE'])"),
        "os.path": ("os.path.join('a', 'b')", "os.path.exists('/no')", "os.path.basename('a/b')",
            "os.path.splitext('a.b')", "os.path.isfile('/no')",
                    "os.path.abspath('/a/../b')", "os.path.dirname('a/b')",
                    "os.path.normpath('a//b')"),
        "os": ("os.getpid() == os.getpid()", "os.sep", "os.name", "os.cpu_count() > 0",
            "os.getcwd() == os.getcwd()", "os.urandom(2)[:0]"),
        "sys": ("sys.version_info >= (3, 8)", "sys.platform", "sys.maxsize",
            "sys.getrecursionlimit() > 9", "sys.byteorder", "'math' in sys.modules",
                "sys.modules['math'] is math", "sys.argv is sys.argv", "sys.getsizeof(1) > 0",
                "sys.getrefcount(xs) > 0", "sys.float_info.eps", "sys.exc_info()"),
        "sys.stdout": ("sys.stdout.write('a')", "print('a', file=sys.stdout)",
            "sys.stdout.flush()"),
        "sys._getframe": ("sys._getframe().f_code.co_name", "sys._getframe(0).f_lineno > 0"),
        "gc": ("gc.isenabled()", "gc.collect() >= 0"),
        "contextvars": ("variable.get()",
            "k = variable.set(n)\nR.append(variable.get())\nvariable.reset(k)",
                        "contextvars.ContextVar('k', default=n).get()",
                        "contextvars.copy_context().run(lambda: n)"),
        "pickle": ("pickle.loads(pickle.dumps(xs))", "pickle.loads(pickle.dumps({'a': n}))",
            "pickle.loads(pickle.dumps(t))"),
    },
}  # fmt: skip
#: what rows of the table have besides, made before the calls
HELD = f"""{IMPORTS}
{STREAM}
class Plain0: pass
class Abstract(abc.ABC):
    @abc.abstractmethod
    def m(self): ...
class Concrete(Abstract):
    def m(self): return 4
class Registered(abc.ABC): pass
Registered.register(float)
mine, lock, rlock = threading.local(), threading.Lock(), threading.RLock()
held, path = random.Random(5), pathlib.Path('a/b.txt')
variable = contextvars.ContextVar('v', default=3)
o = Vec(torch.ones(2))
held_ref, held_proxy = weakref.ref(o), weakref.proxy(o)
weak_values = weakref.WeakValueDictionary(o=o)
o.__class__.__hash__ = object.__hash__
weak_keys = weakref.WeakKeyDictionary()
weak_keys[o] = 7"""
#: names that a module shows and that are no part of it, or that ask or end
LEFT_OUT = frozenset(
    "GenericAlias RLock namedtuple_ recursive_repr get_cache_token purge template dump load "
    "RegexFlag error TypeVar".split()
)


def constructs() -> Iterator[Construct]:
    """Every row, a chapter a module."""
    for module, table in TABLE.items():
        rows = dict(table)
        if module in DRAWN:
            loaded = importlib.import_module(module)
            if module == "itertools":
                rows = {name: texts for name, texts in rows.items() if hasattr(loaded, name)}
            public = getattr(loaded, "__all__", None) or library_names(loaded)
            rows |= dict.fromkeys((n for n in public if n not in rows and n not in LEFT_OUT), ())
        for name, texts in rows.items():
            bodies = texts or functools.partial(_drawn, module, name)
            yield Construct(f"Module {module}", name, bodies, HELD)


def library_names(module: object) -> list[str]:
    """Names that a module without a list of them has itself."""
    return [
        name for name in dir(module)
        if not name.startswith("_") and not hasattr(getattr(module, name), "__path__")
        and type(getattr(module, name)).__name__ != "module"
    ]  # fmt: skip


def _drawn(module: str, name: str) -> tuple[str, ...]:
    found = getattr(importlib.import_module(module), name)
    if not callable(found) or (isinstance(found, type) and issubclass(found, BaseException)):
        return (f"R.append(shown({module}.{name}))",)
    return tuple(drawing.calls(f"{module}.{name}({{}})", found, False, setup=IMPORTS))
