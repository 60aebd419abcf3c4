"""Modules of functions and values: what programs call of each.

In: nothing. Out: by module and name, texts of uses. Invariant: a text is a statement, or an
expression whose value is kept.
"""

from __future__ import annotations

from integration_tests.conformance.construct import caught

FUNCTIONS: dict[str, dict[str, tuple[str, ...]]] = {
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
}  # fmt: skip
