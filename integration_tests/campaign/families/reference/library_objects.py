"""Classes and functions by the library: dataclasses, enums, tuples, protocols, copies.

In: nothing. Out: chapters of forms. Invariant: what a module documents for its classes is defined
in the program, with every option, and asked for.
"""

from __future__ import annotations

from integration_tests.campaign.families.reference.grammar import Form

CHAPTERS: dict[str, tuple[Form, ...]] = {
    "dataclasses": (
        Form(
            "@dataclasses.dataclass$<;;(frozen=True);;(slots=True);;(order=True);;(eq=False);;"
            "(kw_only=True);;(unsafe_hash=True);;(repr=False);;(init=False);;(match_args=False);;"
            "(frozen=True, slots=True);;(order=True, frozen=True)>$\nclass C:\n"
            "    a: int = $<2;;dataclasses.field(default=3, repr=False);;"
            "dataclasses.field(default=1, compare=False);;dataclasses.field(default=n, "
            "kw_only=True)>$"
            "\n    $<b: list = dataclasses.field(default_factory=list);;"
            "b: object = dataclasses.field(default=None, metadata={'unit': 'm'});;"
            "b: typing.ClassVar[int] = 5;;b: dataclasses.InitVar[int] = 4;;"
            "b: object = dataclasses.field(init=False, default=7);;_: dataclasses.KW_ONLY\nb: "
            "int = 1;;"
            "b = 9>$\n    $<def __post_init__(self$<;;, b=0>$): $<self.c = 1;;"
            "object.__setattr__(self, 'c', self.a * 2);;LOG.append('post')>$;;"
            "def double(self): return self.a * 2;;@property\ndef c(self): return self.a + 1>$\n"
            "$<class D(C):\n    d: int = 8;;@dataclasses.dataclass\nclass D(C):\n    d: int = 8;;"
            "D = C>$",
            ("C()", "C(1)", "C(t)", "C(a=n)", "C().b", "repr(C(n))", "C() == C()", "C(1) < C(2)",
             "hash(C()) * 0", "o = C()\no.a = t\nR.append(o.a)", "dataclasses.replace(C(), a=5)",
             "dataclasses.asdict(C(n))", "dataclasses.astuple(C())", "[f.name for f in "
             "dataclasses.fields(C)]", "dataclasses.is_dataclass(C)", "C().b is C().b", "C(1, 2)",
             "C(z=1)", "copy.copy(C(t)).a", "copy.deepcopy(C(n))", "D().d", "D(1, d=2)",
             "C.__match_args__",
             "match C(1):\n    case C(a=1): R.append('one')\n    case _: R.append('no')", "C().c",
             "vars(C())", "o = C()\ndel o.a\nR.append(o.a)", "o = C()\no.zz = 1",
             "str(inspect.signature(C))",
             "dataclasses.fields(C)[0].default", "C().double()", "C.__dataclass_params__.frozen",
             "dataclasses.fields(C())[-1].metadata.get('unit')", "sorted([C(a=2), C(a=1)])",
             "{C(): 1}", "t = t + C(a=2).a", "dataclasses.make_dataclass('E', [('q', int, 3)])().q",
             "pickle.loads(pickle.dumps(C()))", "D.__mro__[1].__name__", "C.__doc__",
             "C.__eq__(C(), 1)"),
        ),
    ),
    "enum": (
        Form(
            "class E($<enum.Enum;;enum.IntEnum;;enum.Flag;;enum.IntFlag;;str, enum.Enum;;"
            "enum.StrEnum;;"
            "int, enum.Enum;;float, enum.Enum>$$<;;;;, boundary=enum.KEEP>$):\n"
            "    A = $<1;;enum.auto();;'a'>$\n    B = $<2;;enum.auto();;4;;'b'>$\n"
            "    $<C = A;;C = 3;;C = enum.auto();;_ignore_ = ['z'];;def m(self): return "
            "self.value;;"
            "@property\ndef p(self): return self.name * 2;;@classmethod\ndef first(cls): return "
            "cls.A;;"
            "@classmethod\ndef _missing_(cls, v): return cls.A;;__order__ = 'A B';;"
            "def __str__(self): return 'E!';;@staticmethod\ndef s(): return n;;"
            "def _generate_next_value_(name, *a): return name>$",
            ("E.A", "E.A.name", "E.A.value", "E(1)", "E['B']", "E(99)", "E['Z']", "[*E]", "len(E)",
             "E.A is E(E.A.value)", "E.A == 1", "E.A in E", "E.A < E.B", "E.A | E.B", "E.A & E.B",
             "~E.A",
             "str(E.A)", "repr(E.B)", "f'{E.A}'", "f'{E.B:>5}'", "hash(E.A) == hash(E.A)",
             "{E.A: t}[E.A]",
             "E.__members__", "isinstance(E.A, int)", "E.A.m()", "E.A.p", "E.first()", "E.A = 5",
             "E.A.value = 5", "E.A.zz", "E.C", "E.C is E.A", "match E.B:\n    case E.A: "
             "R.append(1)\n"
             "    case E.B: R.append(2)", "t + E.A.value", "t * E.B", "bool(E.A)", "E.A.B",
             "del E.A",
             "copy.copy(E.A) is E.A", "copy.deepcopy([E.A])[0] is E.A", "class F(E): pass",
             "E.A + 1",
             "type(E.A).__name__", "type(E).__name__", "reversed(E).__class__", "E.A.s()", "E('a')",
             "1 in E", "[e.name for e in E if e is not E.A]", "sorted(E, key=lambda e: e.name)",
             "list(E)[0]",
             "E.A.__class__ is E", "pickle.loads(pickle.dumps(E.A)) is E.A", "{e: i for i, e in "
             "enumerate(E)}[E.B]", "E.B.__doc__ == E.__doc__", "issubclass(E, enum.Enum)",
             "dir(E.A)[-1]",
             "enum.unique(E).__name__", "E(3)", "(E.A | E.B).name", "E.A in (E.A | E.B)", "max(E)"),
        ),
        Form(
            "F = $<enum.Enum('F', 'A B');;enum.IntEnum('F', ['A', 'B']);;enum.Enum('F', {'A': "
            "1, 'B': t});;"
            "enum.Flag('F', [('A', 1), ('B', 2)]);;enum.Enum('F', 'A B', start=5)>$",
            ("F.A.value", "[*F]", "F(1)", "F.B", "F['A'] is F.A", "F.A.name", "len(F)",
            "F.__name__"),
        ),
    ),
    "named tuples and typing": (
        Form(
            "$<class P(typing.NamedTuple):\n    a: int\n    b: object = 2\n"
            "    $<def s(self): return self.a;;'words';;@property\ndef q(self): return self[0]>$;;"
            "P = collections.namedtuple('P', 'a b');;P = collections.namedtuple('P', ['a', 'b'], "
            "defaults=[n]);;class P(collections.namedtuple('Q', 'a b')):\n    __slots__ = ()\n"
            "    def s(self): return self.a;;P = typing.NamedTuple('P', [('a', int), ('b', "
            "int)])>$",
            ("P(1, 2)", "P(t, n).a", "P(1)", "P(b=1, a=2)", "P(1, 2)._replace(a=t)",
            "P(1, 2)._asdict()",
             "P._fields", "P._make(xs[:2])", "a, b = P(1, n)\nR.append(b)", "P(1, 2) == (1, 2)",
             "P(1, 2).s()", "P(1, 2)[0]", "P(1, 2)[::-1]", "o = P(1, 2)\no.a = 3", "P(1, 2, 3)",
             "repr(P(n, 'x'))", "P(1, 2) + (3,)", "len(P(1, 2))", "P._field_defaults", "P(1, 2).q",
             "match P(1, n):\n    case P(a, b): R.append(b)", "match P(1, n):\n    case (1, k): "
             "R.append(k)",
             "isinstance(P(1, 2), tuple)", "hash(P(1, 2)) == hash((1, 2))", "P(1, 2).count(1)",
             "P.__doc__",
             "P(*xs)", "P(**{'a': 1, 'b': 2})", "sorted([P(2, 1), P(1, 2)])", "{P(1, 2): t}[1, 2]",
             "copy.copy(P(1, t)).b", "copy.deepcopy(P(1, [n])).b", "P.a.__doc__", "P.__name__",
             "P(1, 2)._zz", "max(P(1, 9), P(2, 0)).a", "P(1, 2) < P(1, 3)", "P.__match_args__",
             "class D(P): pass\nR.append(D(1, 2))", "typing.get_type_hints(P)",
             "torch.stack([*P(t, u)])"),
        ),
        Form(
            "S = typing.TypeVar('S')\n@typing.runtime_checkable\nclass Sized2(typing.Protocol):\n"
            "    def size2(self) -> int: ...\nclass G(typing.Generic[S]):\n"
            "    def __init__(self, v: S): self.v = v\n    def size2(self): return 2\n"
            "class TD(typing.TypedDict, total=False):\n    a: int\n    b: str\n"
            "class A(abc.ABC):\n    @abc.abstractmethod\n    def run(self, k): ...\n    @property\n"
            "    @abc.abstractmethod\n    def p(self): ...\n    def both(self): return "
            "self.run(1)\n"
            "class I(A):\n    def run(self, k): return t * k\n    p = 3\n"
            "class H(I):\n    $<__subclasshook__ = classmethod(lambda cls, c: hasattr(c, 'v'));;"
            "pass>$",
            ("G(t).v", "G[int](n).v", "G[int]", "isinstance(G(1), Sized2)", "isinstance(n, Sized2)",
             "TD(a=n)", "TD.__annotations__", "A()", "I().both()", "I().p", "isinstance(I(), A)",
             "A.register(int) and isinstance(n, A)", "A.__abstractmethods__ == {'run', 'p'}",
             "typing.get_type_hints(G.__init__)", "typing.get_origin(list[int])",
             "typing.get_args(dict[str,"
             " int])", "typing.cast(int, t)", "typing.Optional[int]", "int | None",
             "class K(A): pass\nK()",
             "issubclass(G, H)", "isinstance(G(1), H)", "G.__parameters__", "class K(G[int]): "
             "pass\n"
             "R.append(K(n).v)", "class K(Sized2): pass\nR.append(K().size2())", "Sized2()",
             "typing.NewType('U', int)(n)", "typing.get_type_hints(TD)", "list[int](xs)",
             "isinstance([], list[int])", "typing.Literal['a'].__args__", "inspect.isabstract(A)",
             "I.__mro__[1] is A", "class K(typing.Generic[S], I): pass\nR.append(K().run(2))"),
        ),
    ),
    "functools": (
        Form(
            "calls = []\n@functools.$<lru_cache;;cache;;lru_cache(maxsize=2);;lru_cache(None);;"
            "lru_cache(typed=True)>$\ndef fn(k, *, j=1):\n    calls.append(k)\n    return $<k * "
            "2;;[k];;"
            "k + j;;t * k>$\n@functools.singledispatch\ndef kind(v, *a): return 'any'\n"
            "@kind.register\ndef _(v: int, *a): return 'int'\n@kind.register(list)\n"
            "@kind.register(tuple)\ndef _(v, *a): return len(v)\n"
            "@functools.total_ordering\nclass O:\n    def __init__(self, k): self.k = k\n"
            "    def __eq__(self, o): return self.k == o.k\n    def __$<lt;;gt;;le;;"
            "ge>$__(self, o): "
            "return self.k < o.k\nclass M:\n    def set(self, k, v=0): return (k, v)\n"
            "    on = functools.partialmethod(set, True)\n    @functools.cached_property\n"
            "    def c(self):\n        calls.append('c')\n        return t * 2\n"
            "    @functools.singledispatchmethod\n    def m(self, v): return 'any'\n    "
            "@m.register\n"
            "    def _(self, v: int): return 'int'\n    @functools.lru_cache\n    def l(self, k): "
            "return k\n    def __eq__(self, o): return True\n    def __hash__(self): return 1",
            ("fn(1)", "fn(n)\nfn(n)\nR.append(calls)", "fn(n, j=2)", "fn.cache_info()",
            "fn.cache_clear()",
             "fn(1.0)", "fn([1])", "fn.__wrapped__(3)", "fn.cache_parameters()", "kind(n)",
             "kind('s')",
             "kind(xs)", "kind(True)", "kind(t)", "kind.dispatch(bool).__name__", "O(1) <= O(2)",
             "O(1) >= O(n)", "sorted([O(2), O(1)])[0].k", "M().on()", "M().on(v=n)", "m = M()\n"
             "R.append((m.c is m.c, calls))", "m = M()\ndel m.c\nR.append(m.c)", "M().m(1)",
             "M().m('s')",
             "M().l(n)", "functools.reduce(lambda a, b: a * b, xs, t)", "functools.reduce(max, [])",
             "functools.partial(fn, n)()", "functools.partial(max, 1)(n)",
             "p = functools.partial(kind, 1)\n"
             "R.append((p.func is kind, p.args, p.keywords))", "sorted(xs, "
             "key=functools.cmp_to_key(lambda "
             "a, b: b - a))", "functools.update_wrapper(lambda: 1, fn).__name__",
             "'c' in vars(M())",
             "kind.registry.keys().__len__()", "kind.register(float, lambda v: "
             "'f')\nR.append(kind(1.5))",
             "@functools.cache\ndef g(): return calls\nR.append(g() is g())", "M.on",
             "M.c.attrname",
             "@functools.wraps(kind)\ndef w(*a): return kind(*a)\nR.append((w.__name__, w(1)))"),
        ),
    ),
    "copy, pickle, weakref": (
        Form(
            "class C:\n    def __init__(self, k=1):\n        self.k = k\n        self.l = [k]\n"
            "    $<def __copy__(self): return C(9);;def __deepcopy__(self, memo): return C(8);;"
            "def __getstate__(self): return {'k': 5};;def __setstate__(self, s): self.k = "
            "('set', s);;"
            "def __reduce__(self): return (C, (7,));;def __getnewargs__(self): return ();;"
            "def __eq__(self, o): return self.k == o.k;;me = 3;;def __del__(self): "
            "LOG.append('del');;"
            "__slots__ = ('k', 'l', '__weakref__')>$\no = C(n)",
            ("copy.copy(o).k", "copy.deepcopy(o).k", "copy.copy(o).l is o.l",
            "copy.deepcopy(o).l is o.l",
             "a = [o, o]\nb = copy.deepcopy(a)\nR.append(b[0] is b[1])", "copy.copy(C(t)).k",
             "copy.deepcopy(C(t)).k", "o.me = o\nR.append(copy.deepcopy(o).me is o)",
             "copy.copy(xs) is xs",
             "pickle.loads(pickle.dumps([1, n]))", "pickle.loads(pickle.dumps(o)).k",
             "copy.copy(t) is t",
             "weakref.ref(o)() is o", "r = weakref.ref(C())\nR.append(r())", "weakref.proxy(o).k",
             "d = weakref.WeakKeyDictionary()\nd[o] = t\nR.append(len(d))",
             "weakref.WeakSet([o]).__len__()",
             "d = weakref.WeakValueDictionary(a=o)\nR.append(d['a'] is o)",
             "copy.deepcopy({'a': [t]})",
             "a = C(1)\nw = weakref.ref(a, lambda r: R.append('dead'))\ndel a\nR.append(w())",
             "copy.deepcopy(xs, {})", "copy.replace", "o.__reduce_ex__(2)[0].__name__",
             "hash(weakref.ref(o))"
             " * 0", "copy.copy({1: t})[1] is t", "copy.deepcopy((1, (2, n)))", "copy.copy(C)  "
             "is C",
             "a = C(1)\ndel a\nR.append(len(LOG))"),
        ),
    ),
    "types and inspect": (
        Form(
            "ns = types.SimpleNamespace(a=1, b=t)\nmp = types.MappingProxyType({'a': n})\n"
            "def fn(self, k=2): return (self, k)\nclass C:\n    def m(self, a, *, b=1): return a\n"
            "    @classmethod\n    def cm(cls): return cls\n    @staticmethod\n    def sm(): "
            "return 1",
            ("ns.a", "ns.c = n\nR.append(ns)", "vars(ns)", "ns == types.SimpleNamespace(a=1, "
            "b=t)", "repr("
             "types.SimpleNamespace(z=n))", "mp['a']", "mp['b']", "mp['a'] = 1", "dict(mp)",
             "len(mp)",
             "mp | {'c': 1}", "types.MethodType(fn, 5)()", "types.MethodType(fn, t)(k=n)",
             "C().m.__func__.__name__",
             "types.FunctionType(fn.__code__, globals(), 'g')(1)", "isinstance(fn, "
             "types.FunctionType)",
             "types.new_class('N', (C,), {}, lambda s: s.update(z=n)).z",
             "inspect.signature(C.m).parameters"
             "['b'].default", "inspect.isfunction(fn)", "inspect.ismethod(C().m)",
             "inspect.isclass(C)",
             "[k for k, _ in inspect.getmembers(C(), inspect.ismethod)]",
             "inspect.getattr_static(C, 'cm')"
             ".__class__.__name__", "inspect.getmodule(fn) is None", "inspect.getdoc(fn)",
             "str(inspect.signature(fn))",
             "[p.kind.name for p in inspect.signature(C.m).parameters.values()]",
             "types.DynamicClassAttribute",
             "inspect.signature(fn).replace(parameters=[])", "inspect.signature(fn).bind(1, "
             "k=3).args", "fn.__code__"
             ".co_name", "inspect.isgeneratorfunction(fn)", "types.GenericAlias(list, int)",
             "types.NoneType is "
             "type(None)", "isinstance(int | str, types.UnionType)", "type('D', (C,), {'q': "
             "n})().q", "C.cm() is C",
             "types.CellType(n).cell_contents", "inspect.getcallargs(fn, 1)", "mp.get('q', t)",
             "[*mp]", "del ns.a\n"
             "R.append(vars(ns))", "types.resolve_bases((C,))", "types.prepare_class('N')[1]",
             "C().sm()"),
        ),
    ),
    "contextvars, random, hashes": (
        Form(
            "var = contextvars.ContextVar('var', default=n)\nrnd = random.Random(n)",
            ("var.get()", "tok = var.set(t)\nR.append(var.get())\nvar.reset(tok)", "var.get(5)",
            "var.name",
             "contextvars.copy_context().run(lambda: var.set(9))\nR.append(var.get())",
             "random.random()",
             "random.randint(1, 9)", "random.choice(xs)", "random.sample(range(9), 3)",
             "random.shuffle(xs)\n"
             "R.append(xs)", "random.uniform(0, n)", "random.gauss(0, 1)", "rnd.random()",
             "rnd.choice('abc')",
             "random.seed(n)\nR.append(random.random())", "random.choices(xs, k=2)",
             "rnd.shuffle(xs)\nR.append(xs)",
             "s = random.getstate()\na = random.random()\nrandom.setstate(s)\nR.append(a == "
             "random.random())",
             "t * random.random()", "R.append(1) if random.random() > 0.5 else R.append(2)",
             "rnd.getrandbits(8)",
             "random.randrange(0, 10, 3)", "random.Random(4).random()", "t + (1 if "
             "random.random() < 0.5 else 2)",
             "xs[random.randrange(2)]", "int(random.random() * 10)", "random.random() < 0.3",
             "random.betavariate(1, 2)",
             "hashlib.$<md5;;sha256;;sha1>$(b'a').hexdigest()",
             "hashlib.sha256(str(n).encode()).digest()[0]",
             "k = random.random()\nif k > 0.5: t = t + 1\nR.append(k)", "[random.randint(0, 3) "
             "for _ in xs]",
             "uuid.UUID(int=n).hex", "base64.b64encode(b'abc')", "base64.b64decode('YWJj')",
             "torch.rand(2)",
             "range(random.randint(1, 4)).__len__()", "{random.randint(0, 2): t}",
             "f'{random.random():.3f}'",
             "'a' * random.randint(0, 3)", "max(random.random(), 0.5)",
             "random.normalvariate(0, 1) > 0", "rnd.gauss(0, 1)",
             "t.sum() * random.random() > 0", "round(random.random(), 2)",
             "random.expovariate(1) < n"),
        ),
    ),
}  # fmt: skip
