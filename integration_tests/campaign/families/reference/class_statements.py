"""The data model and class statements: metaclasses, hooks, descriptors, slots, special methods.

In: nothing. Out: chapters of forms. Invariant: every hook that the reference names for the making
of a class is in one, with what it answers and what it raises.
"""

from __future__ import annotations

from integration_tests.campaign.families.reference.grammar import Form

_BODY = (
    "$<k = n;;k: int = 3;;@property\ndef k(self): return 4;;shared = [1]\nk = 2;;"
    "k = 1\n__slots__ = ();;'words'\nk = 5;;for k in range(3): pass>$\n"
    "def m(self): return $<self.k;;t * self.k;;type(self).__name__;;__class__.__name__>$"
)
_INSTANCE = ("C().m()", "C.k", "C.__name__", "type(C).__name__", "C().k", "isinstance(C(), C)",
             "vars(C).get('k')", "C.__qualname__[-1]", "C.__doc__", "C.__bases__[0].__name__",
             "[b.__name__ for b in C.__mro__]", "o = C()\no.z = t\nR.append(o.z)")  # fmt: skip
_METHODS = (
    "def __call__(cls, *args, **kw):\n    R2.append('made')\n    return super().__call__(*args);;"
    "def __new__(mcs, name, bases, space, **kw):\n    space['added'] = len(bases)\n"
    "    return super().__new__(mcs, name, bases, space);;"
    "def __init__(cls, name, bases, space, **kw):\n    super().__init__(name, bases, space)\n"
    "    cls.told = sorted(kw);;"
    "@classmethod\ndef __prepare__(mcs, name, bases, **kw):\n"
    "    return $<{'given': name};;collections.OrderedDict();;dict(kw)>$;;"
    "def __instancecheck__(cls, o): return $<True;;False;;o == 3;;1>$;;"
    "def __subclasscheck__(cls, o): return $<True;;False>$;;"
    "def __iter__(cls): return iter((1, cls.k));;def __len__(cls): return 2;;"
    "def __getitem__(cls, i): return (cls.__name__, i);;def __contains__(cls, i): return i == 1;;"
    "def __add__(cls, o): return 'added';;def __eq__(cls, o): return o is cls\n"
    "__hash__ = type.__hash__;;def __getattr__(cls, name): return name * 2;;"
    "def __setattr__(cls, name, value): super().__setattr__(name, [value]);;"
    "@property\ndef whole(cls): return cls.__name__ + '!';;"
    "def __bool__(cls): return False;;def __repr__(cls): return 'shown';;"
    "def __or__(cls, o): return 'either';;def mro(cls): return super().mro();;"
    "def __dir__(cls): return ['z'];;flag = 3"
)
_HOOK = (
    "$<def __init_subclass__(cls, **kw):\n    $<super().__init_subclass__();;pass>$\n    "
    "$<kinds.append(cls.__name__);;cls.tag = sorted(kw.items());;kinds.append(len(kw))>$;;"
    "def __init_subclass__(cls, /, tag=$<1;;'d'>$, **kw):\n    super().__init_subclass__(**kw)\n"
    "    cls.tag = tag\n    table[tag] = cls;;"
    "def __init_subclass__(cls): $<raise Own(cls.__name__);;cls.tag = t;;cls.tag = n>$;;"
    "@classmethod\ndef __init_subclass__(cls, **kw): cls.tag = $<list(kw);;cls.__name__>$>$"
)
_NAMED = (
    "class Named:\n    $<def __init__(self, k=2): self.k = k;;k = 2;;__slots__ = ('k', 'name')\n"
    "def __init__(self, k=2): self.k = k>$\n    def __set_name__(self, owner, name):\n"
    "        $<self.name = '_' + name;;self.name = '_' + name\n"
    "told.append((owner.__name__, name));;"
    "self.name = '_' + name\nowner.registry = [*getattr(owner, 'registry', ()), name];;"
    "self.name = '_x'\n"
    "raise Own(name)>$\n    def __get__(self, o, kind=None):\n"
    "        $<if o is None: return self\nreturn getattr(o, self.name, self.k);;return 3;;"
    "if o is None: return kind.__name__\nreturn vars(o).get(self.name, self.k)>$\n    "
    "$<def __set__(self, o, value):\n    setattr(o, self.name, value);;def other(self): pass;;"
    "def __set__(self, o, value): raise AttributeError('read');;"
    "def __set__(self, o, value): vars(o)[self.name] = value\n"
    "def __delete__(self, o): told.append('del')>$"
)

CHAPTERS: dict[str, tuple[Form, ...]] = {
    "3.3.3.1 metaclasses": (
        Form(
            "R2 = []\nclass Meta($<type;;type;;abc.ABCMeta;;type(Own)>$):\n"
            f"    $<{_METHODS}>$\n    $<{_METHODS}>$\n"
            "class C($<metaclass=Meta;;metaclass=Meta, z=1;;object, metaclass=Meta>$):\n"
            f"    $<{_BODY}>$",
            (*_INSTANCE, "R2", "C.added", "C.told", "C.given", "isinstance(3, C)", "[*C]", "len(C)",
             "issubclass(int, C)", "C[1]", "1 in C", "C + 1", "C == C", "C.zzz", "C.whole",
             "C.z = 1\nR.append(C.z)", "bool(C)", "repr(C)[:5]", "C | 1", "C.flag", "C().flag",
             "class D(C): pass\nR.append((type(D).__name__, D().m()))", "hash(C) * 0", "dir(C)[:1]",
             "t = t + len(C.__name__)", "Meta.__name__", "Meta('E', (), {}).__name__",
             "type(C)('E', (C,), {'q': t})().q"),
        ),
        Form(
            "class Single(type):\n    kept = {}\n    def __call__(cls, *args):\n"
            "        if cls not in cls.kept:\n"
            "            cls.kept[cls] = super().__call__(*args)\n        return cls.kept[cls]\n"
            "class C(metaclass=Single):\n    def __init__(self, k=n): self.k = k",
            ("C() is C(4)", "C().k", "C(t).k", "len(Single.kept)", "class D(C): pass\n"
             "R.append(D() is C())"),
        ),
        Form(
            "def meta(name, bases, space, **kw):\n"
            "    $<return type(name, bases, {**space, 'kw': sorted(kw)});;return (name, len(bases))"
            ";;space['j'] = 2\nreturn type(name, bases, dict(space))>$\n"
            "class C(metaclass=meta$<;;, a=1>$): k = n",
            ("C", "C.k", "C.kw", "C.j", "C.__name__", "C().k"),
        ),
        Form(
            "registry = {}\nclass Meta(type):\n    def __new__(mcs, name, bases, space):\n"
            "        made = super().__new__(mcs, name, bases, space)\n"
            "        $<registry[name] = made;;if bases: registry[name] = made;;"
            "registry[name] = len(space)>$\n        return made\n"
            "class Base(metaclass=Meta): scale = 2\n"
            "class C(Base):\n    def run(self, a): return a * self.scale",
            ("C().run(t)", "sorted(registry)", "registry['C']().run(t)", "registry.get('Base')",
             "t = registry['C']().run(t)", "type(C) is Meta"),
        ),
        Form("", ("class A(type): pass\nclass B(type): pass\nclass P(metaclass=A): pass\n"
                  "class Q(metaclass=B): pass\nclass C(P, Q): pass",
                  "class P: pass\nclass Q(P): pass\nclass C(P, Q): pass",
                  "class C(n): pass", "class C(int, str): pass", "class C(bool): pass",
                  "class C(object, object): pass", "class C(metaclass=3): pass",
                  "class C:\n    __slots__ = ('k',)\n    k = 1", "class C(type(None)): pass",
                  "class C(z=1): pass", "class C(*[Own], **{}): pass\nR.append(C.__mro__[1])")),
    ),
    "3.3.3 class creation": (
        Form(
            f"kinds, table = [], {{}}\nclass B:\n    {_HOOK}\n"
            f"class C(B$<;;;;, tag=2;;, tag='q', other=1>$):\n    $<{_BODY}>$",
            (*_INSTANCE, "kinds", "C.tag", "sorted(map(str, table))", "table[2]().m()",
             "class D(C): pass\nR.append((D().m(), kinds))", "class D(B, tag=n): k = 1\n"
             "R.append((D.tag, D.k))", "type('D', (B,), {'k': n})().k", "hasattr(B, 'tag')",
             "type('D', (B,), {}, tag=4).tag", "t = t + len(kinds)"),
        ),
        Form(
            f"told = []\n{_NAMED}\nclass C:\n    d = Named()\n    $<e = Named(n);;e = 1;;e = d>$\n"
            "    def __init__(self): self.y = 1",
            ("C().d", "C.d", "told", "o = C()\no.d = 4\nR.append(o.d)", "o = C()\no.d = t\n"
             "R.append(o.d)", "o = C()\ndel o.d\nR.append(told)", "vars(C)['d'].name", "C.registry",
             "class D(C): pass\nR.append(D().d)", "C().e", "C.new = Named()\nR.append(C().new)",
             "o = C()\no.d += 1\nR.append(vars(o))", "type('D', (), {'q': Named()})().q",
             "class D(C):\n    f = Named(7)\nR.append((D().f, told))", "C().d is C().e"),
        ),
        Form(
            "class C:\n    def __class_getitem__(cls, k): return $<(cls.__name__, k);;cls;;k;;"
            "types.GenericAlias(cls, k)>$\n    k = 1",
            ("C[1]", "C['a', 2]", "C[n]", "C[t]", "C[int]().k", "C[...]", "C[1:2]", "C()[1]",
             "class D(C): pass\nR.append(D[1])"),
        ),
        Form(
            "class Alias:\n    def __mro_entries__(self, bases): return $<(B,);;();;(B, Own);;B>$\n"
            "class B: k = 1",
            ("class C(Alias()): pass\nR.append([k.__name__ for k in C.__mro__])",
             "class C(Alias()): pass\nR.append(C.__orig_bases__[0].__class__.__name__)",
             "class C(Alias()): j = n\nR.append((C.k, C.j))"),
        ),
        Form(
            "class C:\n    __slots__ = $<('a', 'b');;['a'];;'a';;();;('a', '__dict__');;"
            "{'a': 'words'};;('a', '__weakref__')>$\n"
            "    def __init__(self, a=n):\n        self.a = a",
            ("C().a", "C(t).a", "o = C()\no.b = t\nR.append(o.b)", "o = C()\ndel o.a\no.a",
             "C().zzz", "hasattr(C(), '__dict__')", "C.__slots__", "copy.copy(C(t)).a",
             "class D(C): pass\no = D()\no.z = 1\nR.append(vars(o))", "type(C.a).__name__",
             "class D(C):\n    __slots__ = ('c',)\no = D()\no.c = t\nR.append(o.c)",
             "weakref.ref(C())", "C.a.__name__", "o = C()\no.a += 1\nR.append(o.a)"),
        ),
        Form(
            "class C:\n    @property\n    def p(self):\n        $<return self._p;;return 3;;"
            "raise AttributeError('own');;raise Own('p')>$\n    $<@p.setter\ndef p(self, value):\n"
            "    self._p = value;;@p.deleter\ndef p(self): self._p = 'gone';;def q(self): "
            "return 1;;"
            "@p.getter\ndef p(self): return 9>$\n    def __init__(self, p=1): self._p = p\n"
            "    $<;;def __getattr__(self, name): return 'else ' + name>$",
            ("C().p", "C(t).p", "o = C()\no.p = t\nR.append(o.p)", "o = C()\ndel o.p\n"
             "R.append(o._p)", "hasattr(C(), 'p')", "getattr(C(), 'p', 7)", "C.p.fget(C())",
             "o = C()\no.p += n\nR.append(o.p)", "C.p.fset is None", "C.p.__doc__",
             "class D(C):\n    @C.p.getter\n    def p(self): return n\nR.append(D().p)",
             "class D(C):\n    p = 4\nR.append(D().p)", "isinstance(C.p, property)"),
        ),
        Form(
            "class A:\n    def go(self, k): return ['A', k]\n    @classmethod\n"
            "    def made(cls): return cls()\n    @staticmethod\n    def twice(k): return k * 2\n"
            "class B(A):\n    def go(self, k): return ['B', *super().go(k)]\n"
            "class M:\n    def go(self, k): return ['M', *super().go(k)]\n"
            "class C($<M, B;;B;;M, A;;B, M>$):\n    $<def go(self, k): return ['C', *super().go(k)]"
            ";;go2 = A.go;;go = A.__dict__['go'];;"
            "def go(self, k): return ['C', *super(C, self).go(k)];;"
            "def go(self, k): return [c.__name__ for c in type(self).__mro__]>$",
            ("C().go(n)", "C().go(t)", "C.made().go(1)", "C.twice(t)", "C().twice(n)",
             "C.mro()[1].__name__", "super(C, C()).go(1)", "C.go(C(), 2)", "A.go(C(), 2)",
             "C().go.__self__.__class__.__name__", "C.made.__func__ is A.made.__func__",
             "C.made().__class__ is C", "issubclass(C, A)", "super(B, C()).go(n)",
             "super(C).__class__.__name__", "C.go2(C(), t)"),
        ),
        Form(
            "k = 5\nclass C:\n    k = $<k + 1;;[k for _ in range(2)];;(lambda: k)();;k>$\n"
            "    js = [$<i;;i * n>$ for i in range(3)]\n"
            "    def f(self, d=k): return (d, k, self.k)\n"
            "    $<class Inner:\n    z = n\n    def g(self): return k;;locals()['w'] = 1;;"
            "if n > 2: big = True\nelse: big = False;;del js;;import math as m;;"
            "with contextlib.suppress(KeyError): {}['k']>$",
            ("C.k", "C.js", "C().f()", "C.Inner().g()", "C.Inner.z", "C.w", "C.big", "C.m.pi",
             "C.Inner.__qualname__[-7:]", "sorted(v for v in vars(C) if v[0] != '_')"),
            inside=True,
        ),
    ),
    "3.3.1 basic customization": (
        Form(
            "class C:\n    def __new__(cls, *args):\n        $<made = super().__new__(cls);;"
            "made = object.__new__(cls)>$\n        made.a = len(args)\n        return $<made;;"
            "made;;"
            "args;;None>$\n    def __init__(self, *args): self.b = args",
            ("C().a", "C(1, t).b", "C(1)", "C().b", "type(C(1)).__name__",
             "class D(C):\n    def __init__(self): self.c = 2\nR.append(vars(D()))", "C(k=1)"),
        ),
        Form(
            "class C($<int;;float;;str;;tuple;;list;;dict;;set;;frozenset;;bytes;;complex>$):\n"
            "    $<def __new__(cls, *a): return super().__new__(cls, *a);;z = 1;;"
            "def __repr__(self): return 'C!';;def __len__(self): return 9;;"
            "def __add__(self, o): return 'sum';;def __eq__(self, o): return True;;"
            "def __init__(self, *a):\n    super().__init__(*a)\n    self.k = a;;"
            "def __getitem__(self, i): return i;;def __iter__(self): return iter('z');;"
            "def __contains__(self, i): return True;;def __bool__(self): return False>$",
            ("C()", "repr(C())", "C() + C()", "C() == C()", "bool(C())", "C() * 2", "len(C())",
             "[*C()]", "1 in C()", "C().k", "isinstance(C(), collections.abc.Hashable)", "C()[0]",
             "type(C() + C()).__name__", "hash(C()) * 0", "C().z", "copy.copy(C())", "f'{C()}'",
             "o = C()\no.q = t\nR.append(o.q)", "sorted([C(), C()])", "str(C())", "t + C()",
             "{C(): 1}", "dict(k=C())", "C('12')", "C([1, 2])", "C(3)", "C.__mro__[1].__name__"),
        ),
        Form(
            "class C:\n    def __init__(self, k=n): self.k = k\n"
            "    def __$<eq;;lt;;gt;;le;;ge;;ne>$__(self, o): return $<NotImplemented;;"
            "self.k == getattr(o, 'k', o);;True;;[1];;[];;self.k if isinstance(self.k, int) "
            "else 0;;"
            "t>$\n    $<def __hash__(self): return hash(self.k);;__hash__ = None;;>$",
            ("C() == C()", "C() != C()", "C() < C()", "C() > 1", "1 <= C()", "C() in [C()]",
             "[C(1), C(2)].index(C(2))", "{C(): 1}[C()]", "sorted([C(2), C(1)])[0].k",
             "max(C(1), C(2)).k", "C(1) < C(2) < C(3)", "len({C(1), C(1)})", "(C(1),) == (C(1),)",
             "[C(1)] < [C(2)]", "not C() == C()", "C() is not C()", "[C(1)].count(1)",
             "hash(C()) * 0", "C() == t", "t == C()"),
        ),
        Form(
            "class C:\n    def __$<str;;repr;;format;;bytes;;bool;;len;;hash;;index;;int;;float;;"
            "iter;;contains;;call;;enter;;dir;;sizeof;;length_hint;;complex;;round;;trunc;;"
            "reversed;;class_getitem;;abs;;neg;;ceil>$__(self, *a):"
            " return $<1;;'s';;None;;(1, 2);;b'b';;1.5;;NotImplemented;;iter('ab');;t;;a>$",
            ("str(C())", "repr(C())", "f'{C():x}'", "bytes(C())", "bool(C())", "len(C())",
             "hash(C()) * 0", "[1, 2, 3][C()]", "int(C())", "float(C())", "[*C()]", "1 in C()",
             "C()(1)",
             "with C(): pass", "dir(C())", "operator.length_hint(C())", "complex(C())",
             "round(C())",
             "math.trunc(C())", "[*reversed(C())]", "C[1]", "abs(C())", "-C()", "math.ceil(C())",
             "'%s %r' % (C(), 1)", "'{!r:>5}'.format(C())", "[C()].__repr__()[:3]", "print(C())",
             "' '.join([str(C())])", "range(C())", "t[C()]", "'ab' * C()", "bin(C())", "not C()",
             "sum(C())", "dict(C())", "a, b = C()\nR.append(a)"),
        ),
    ),
    "3.3.2 attribute access": (
        Form(
            "class C:\n    z = 1\n    def __init__(self): self.k = n\n"
            "    def __$<getattr__(self, name): return $<name;;t;;getattr(self, name[1:]);;"
            "self.k>$;;getattr__(self, name): raise AttributeError($<name;;>$);;"
            "getattribute__(self, name):\n    $<return super().__getattribute__(name);;"
            "if name == 'k': return 'seen'\nreturn object.__getattribute__(self, name);;"
            "try: return super().__getattribute__(name)\nexcept AttributeError: return 'none'>$;;"
            "setattr__(self, name, value): $<super().__setattr__(name, [value]);;"
            "self.__dict__['_' + name] = value;;raise AttributeError('fixed')>$;;"
            "delattr__(self, name): $<super().__delattr__(name);;self.gone = name>$;;"
            "dir__(self): return ['b', 'a']>$",
            ("C().k", "C().zz", "o = C()\no.w = t\nR.append(vars(o))", "o = C()\ndel o.k\n"
             "R.append(vars(o))", "hasattr(C(), 'q')", "getattr(C(), 'q', 5)", "dir(C())",
             "o = C()\nsetattr(o, 'p', 1)\nR.append(o.p)", "o = C()\no.k += 1\nR.append(o.k)",
             "C().__class__.__name__", "vars(C())", "o = C()\no.__dict__['s'] = 2\nR.append(o.s)",
             "operator.attrgetter('k')(C())", "C().z", "o = C()\ndel o.nothing",
             "C().__dict__.get('k')", "[getattr(C(), a) for a in ('k', 'z')]", "copy.copy(C()).k"),
        ),
        Form(
            "class C:\n    k = 1\n    $<def __getattr__(self, name): return 5;;>$\n"
            "o = C()",
            ("C.k = 2\nR.append(o.k)", "o.k = 3\nR.append((o.k, C.k))", "del C.k\nR.append(o.k)",
             "C.m = lambda self: self.k\nR.append(o.m())", "o.f = lambda: 4\nR.append(o.f())",
             "setattr(C, 'p', property(lambda self: 7))\nR.append(o.p)", "vars(o)", "o.__class__",
             "class D(C): j = 3\no.__class__ = D\nR.append(o.j)", "delattr(o, 'k')",
             "o.__dict__ = {'k': 6}\nR.append(o.k)", "o.__dict__.update(k=8)\nR.append(o.k)",
             "C.__len__ = lambda self: 2\nR.append(len(o))", "type(o).k", "C.__name__ = 'E'\n"
             "R.append(C.__name__)", "C.__doc__ = 'words'\nR.append(C.__doc__)"),
        ),
    ),
    "3.3.5-8 emulating types": (
        Form(
            "class V:\n    def __init__(self, k): self.k = k\n    def __repr__(self): return"
            " f'V({self.k})'\n    def __$<add;;radd;;iadd;;mul;;rmul;;imul;;sub;;rsub;;isub;;"
            "matmul;;"
            "rmatmul;;truediv;;rtruediv;;floordiv;;mod;;rmod;;pow;;rpow;;and;;ror;;xor;;lshift;;"
            "rshift;;divmod;;rdivmod>$__(self, o, *m):\n        $<if not isinstance(o, V): return"
            " NotImplemented\nreturn V((self.k, o.k));;return V(self.k);;return NotImplemented;;"
            "raise Own('op');;return o;;self.k = o\nreturn self>$\nclass W(V):\n    $<pass;;"
            "def __radd__(self, o): return 'W';;def __rsub__(self, o): return 'W';;"
            "def __rmul__(self, o): return 'W'>$",
            tuple(
                f"{a} {symbol} {b}"
                for symbol in ("+", "*", "-", "@", "/", "%", "**", "&", "|", "^", "<<", "//")
                for a, b in (("V(1)", "$<V(2);;2;;t;;'s';;[1];;W(3)>$"), ("$<n;;t;;'s'>$", "V(1)"))
            ) + (
                "v = V(1)\nv $<+;;*;;-;;@;;/;;**>$= $<V(2);;1;;t>$\nR.append(v)", "divmod(V(1), 2)",
                "divmod(2, V(1))", "pow(V(1), 2, 3)", "sum([V(1), V(2)])", "sum([V(1)], V(0))",
                "operator.$<add;;iadd;;mul;;sub>$(V(1), W(2))", "functools.reduce(operator.add, "
                "[V(1), V(2)])", "d = {'v': V(1)}\nd['v'] += V(2)\nR.append(d)",
                "l = [V(1)]\nl[0] *= 2\nR.append(l)", "math.prod([V(1), 2])",
            ),
        ),
        Form(
            "class S:\n    def __init__(self): self.d = {}\n    def __getitem__(self, k):\n"
            "        if k == 6: raise IndexError(k)\n        return $<k;;self.d[k];;[1, 2][k];;"
            "(k, t)>$\n    def __setitem__(self, k, v): "
            "$<self.d[str(k)] = v;;raise Own('set')>$\n    def __delitem__(self, k): "
            "$<self.d.clear();;raise KeyError(k)>$\n    $<def __len__(self): return 2;;"
            "def __missing__(self, k): return 3;;def __contains__(self, k): return k == n;;"
            "def __index__(self): return 1;;def __iter__(self): return iter((n, t))>$",
            ("S()[1]", "S()[1:2]", "S()[::n]", "S()[..., 1]", "S()['a']", "s = S()\ns[1] = t\n"
             "R.append(s.d)", "s = S()\ns[1:2] = n\nR.append(s.d)", "s = S()\ndel s[1]", "[*S()]",
             "s = S()\ns['a'] = 1\ns['a'] += 2\nR.append(s.d)", "n in S()", "reversed(S())",
             "[1, 2, 3][S()]", "[*map(str, S())]", "a, b = S()\nR.append(a)", "len(S())",
             "S()[*xs, 1]", "iter(S()).__class__.__name__", "operator.itemgetter(1)(S())",
             "xs[S():]", "S()[None:n:-1]"),
        ),
    ),
}  # fmt: skip
