"""Classes of the program, by the table of Python's data model.

In: chance. Out: classes with some of the special methods, properties, slots, descriptors,
metaclasses, what `dataclasses`, `enum` and `typing` make of classes; instances that live before the
call, are arguments or are made in it; each method used by the syntax that asks for it; changes of
class and instance between calls. Invariant: special methods note that they were called, and answer
what Python takes, what it refuses, `NotImplemented`, a tensor, or raise.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from textwrap import indent

from integration_tests.campaign.program import Call, Program, tried

SETUP = """import abc, collections, contextlib, copy, dataclasses, enum, functools, math, operator
import typing
class Own(Exception):
    pass
class Plain:
    pass
def text_of(error):
    return (type(error).__name__, str(error), type(error.__cause__).__name__)"""


@dataclass(frozen=True)
class Special:
    """A special method: what it takes besides self, what it may answer, what asks for it."""

    takes: str
    answers: tuple[str, ...]
    uses: tuple[str, ...]


NUMBER = ("1", "self.a", "2.5", "n_of(self)", "True")
ANY = (*NUMBER, "self", "self.t", "NotImplemented", "None", "'s'")
TRUTH = ("True", "False", "self.a > 1", "1", "NotImplemented", "self.t.shape[0] > 2")


def _arithmetic() -> dict[str, Special]:
    symbols = {
        "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
        "pow": "**", "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<",
        "rshift": ">>",
    }  # fmt: skip
    found = {}
    for name, symbol in symbols.items():
        function = {"and": "and_", "or": "or_"}.get(name, name)
        found[f"__{name}__"] = Special(
            "other", ANY, (f"o {symbol} 2", f"o {symbol} o2", f"operator.{function}(o, t)")
        )
        found[f"__r{name}__"] = Special(
            "other", ANY, (f"2 {symbol} o", f"o2 {symbol} o", f"t {symbol} o", f"'s' {symbol} o")
        )
        found[f"__i{name}__"] = Special(
            "other", ANY, (f"(k := o, k := operator.i{name}(k, 2))", f"changed(o) {symbol}= 3")
        )
    return found


METHODS: dict[str, Special] = _arithmetic() | {
    "__neg__": Special("", ANY, ("-o",)),
    "__pos__": Special("", ANY, ("+o",)),
    "__invert__": Special("", ANY, ("~o",)),
    "__abs__": Special("", ANY, ("abs(o)",)),
    "__int__": Special("", NUMBER, ("int(o)", "range(5)[int(o)]")),
    "__float__": Special("", NUMBER, ("float(o)", "math.sqrt(o)")),
    "__complex__": Special("", ("1j", "1"), ("complex(o)",)),
    "__index__": Special("", NUMBER, (
        "[1, 2, 3, 4][o]", "operator.index(o)", "hex(o)", "[*range(o)]", "t[o]", "'ab' * o",
        "int(o)", "[1, 2, 3][o:]", "torch.ones(o)",
    )),
    "__round__": Special("*k", ANY, ("round(o)", "round(o, 1)")),
    "__trunc__": Special("", ANY, ("math.trunc(o)",)),
    "__floor__": Special("", ANY, ("math.floor(o)",)),
    "__ceil__": Special("", ANY, ("math.ceil(o)",)),
    "__divmod__": Special("other", ANY, ("divmod(o, 2)",)),
    "__rdivmod__": Special("other", ANY, ("divmod(2, o)",)),
    "__bool__": Special("", TRUTH, (
        "bool(o)", "not o", "1 if o else 2", "o and 1", "o or 2", "any([0, o])", "all([o])",
        "[*filter(None, [o])]", "(lambda: [k for k in (1, 2) if o])()",
    )),
    "__len__": Special("", ("2", "self.a", "0", "-1", "True", "1.5"), (
        "len(o)", "bool(o)", "not o", "[*range(len(o))]", "1 if o else 2",
    )),
    "__length_hint__": Special("", ("2", "NotImplemented", "-1"), ("operator.length_hint(o)",)),
    "__str__": Special("", ("'s'", "str(self.a)", "1", "f'{self.a:>3}'"), (
        "str(o)", "f'{o}'", "'%s' % o", "'{}'.format(o)", "print(o)", "[str(k) for k in [o]]",
    )),
    "__repr__": Special("", ("'r'", "repr(self.a)", "1"), (
        "repr(o)", "f'{o!r}'", "str(o)", "f'{[o]}'", "'%r' % o", "str({1: o})", "print([o])",
    )),
    "__format__": Special("spec", ("spec", "'f' + spec", "1"), (
        "f'{o}'", "f'{o:>4}'", "format(o)", "format(o, 'x')", "'{:a}'.format(o)",
    )),
    "__bytes__": Special("", ("b'b'", "'s'"), ("bytes(o)",)),
    "__hash__": Special("", ("1", "hash(self.a)", "self.a", "2.0"), (
        "hash(o) == hash(o)", "{o: 1}[o]", "len({o, o2})", "o in {1: 2}", "o in {o2, 1}",
    )),
    "__eq__": Special("other", (*TRUTH, "self is other", "self.t"), (
        "o == 1", "o == o2", "o != o2", "1 == o", "o in [o2, 1]", "[o2, o].index(o)",
        "[o2, o].count(o)", "(o,) == (o2,)", "{1: o} == {1: o2}",
    )),
    "__ne__": Special("other", TRUTH, ("o != o2", "o != 1", "not o == o2")),
    "__lt__": Special("other", TRUTH, (
        "o < o2", "o < 1", "1 > o", "sorted([o, o2]) == [o, o2]", "min(o, o2) is o", "[o] < [o2]",
    )),
    "__le__": Special("other", TRUTH, ("o <= o2", "1 >= o")),
    "__gt__": Special("other", TRUTH, ("o > o2", "max(o, o2) is o", "1 < o")),
    "__ge__": Special("other", TRUTH, ("o >= o2", "1 <= o")),
    "__iter__": Special("", ("iter([1, self.a])", "iter((self.t,))", "self", "1", "(yield 3)"), (
        "[*o]", "list(o)", "[k for k in o]", "tuple(o)", "(lambda *a: len(a))(*o)", "2 in o",
        "dict(zip('ab', o))", "sum(o)", "next(iter(o))", "max(o)", "sorted(o)",
        "[(p, q) for p, *q in [o]]", "set(o)", "list(enumerate(o))", "list(map(str, o))",
    )),
    "__next__": Special("", ("1", "self.bump()", "self.bump(2)"), ("next(o)", "next(o, 3)")),
    "__reversed__": Special("", ("iter([2, 1])", "[1]"), ("list(reversed(o))",)),
    "__contains__": Special("item", TRUTH, ("1 in o", "1 not in o", "o in o")),
    "__getitem__": Special("key", ("key", "self.a", "self.t", "[1, 2][key]", "(key, 1)"), (
        "o[1]", "o[1:2]", "o['a']", "o[1, 2]", "[k for k, _ in zip(o, range(3))]", "2 in o",
        "o[...]", "(lambda p, q: q)(*[k for k, _ in zip(o, range(2))])", "o[-1]",
        "operator.itemgetter(0)(o)",
    )),
    "__setitem__": Special("key, value", ("None",), (
        "operator.setitem(o, 1, 2)", "assigned(o)[1] = 2", "assigned(o)['k'] = t",
    )),
    "__delitem__": Special("key", ("None",), ("operator.delitem(o, 1)", "del o[1]", "del o['k']")),
    "__call__": Special("*args, **kw", ("self.a", "self.t", "(args, sorted(kw))", "self"), (
        "o()", "o(1, k=2)", "[*map(o, [1, 2])]", "callable(o)", "functools.partial(o, 1)()",
        "sorted([2, 1], key=lambda k: (o(), k)[1])", "(lambda f: f(t))(o)",
    )),
    "__getattr__": Special("name", ("7", "name", "self.t"), (
        "o.missing", "getattr(o, 'gone', 3)", "hasattr(o, 'gone')", "o.a", "o._hidden",
        "operator.attrgetter('deep')(o)", "[getattr(o, k) for k in ('a', 'z')]",
    )),
    "__getattribute__": Special("name", ("object.__getattribute__(self, name)",), (
        "o.a", "o.missing", "hasattr(o, 'z')", "getattr(o, 'b', 4)", "o.bump()",
    )),
    "__setattr__": Special("name, value", ("object.__setattr__(self, name, value)", "None"), (
        "setattr(o, 'a', 5)", "o.fresh = 3", "o.a = o.a + 1", "o.t = t",
    )),
    "__delattr__": Special("name", ("object.__delattr__(self, name)", "None"), (
        "delattr(o, 'b')", "del o.b", "del o.nothing",
    )),
    "__dir__": Special("", ("['z', 'a']",), ("dir(o)",)),
    "__enter__": Special("", ("self", "self.a", "self.t"), ("with o as k: R.append(k)",)),
    "__exit__": Special("*e", ("False", "True", "None", "e[0] is not None"), (
        "with o: R.append(1)", "with o: raise ValueError('w')", "with o as k, o2: 1 / 0",
        "with o2, o: raise Own",
    )),
    "__copy__": Special("", ("self", "Plain()"), ("copy.copy(o)", "copy.copy([o])[0] is o")),
    "__deepcopy__": Special("memo", ("self", "Plain()"), ("copy.deepcopy([o, o])",)),
    "__missing__": Special("key", ("key", "self.a"), ("o['none']", "o.get('none')")),
    "__instancecheck__": Special("item", TRUTH, ("isinstance(1, o)", "isinstance(o2, type(o))")),
    "__fspath__": Special("", ("'p'",), ("__import__('os').fspath(o)",)),
    "__await__": Special("", ("iter([])",), ("hasattr(o, '__await__')",)),
}  # fmt: skip

#: whole members of a class, and what asks for them
MEMBERS: dict[str, tuple[str, ...]] = {
    "@property\ndef p(self):\n    LOG.append('p')\n    return self.a + 1\n"
    "@p.setter\ndef p(self, value):\n    self.a = value": ("o.p", "o.p = 3", "o.p += 1", "del o.p"),
    "@functools.cached_property\ndef c(self):\n    LOG.append('c')\n    return self.t * 2": (
        "o.c", "o.c is o.c", "'c' in vars(o)", "del o.c"),
    "@classmethod\ndef cm(cls, k=1):\n    return (cls.__name__, k)": (
        "o.cm()", "type(o).cm(2)", "o.cm.__self__ is type(o)"),
    "@staticmethod\ndef sm(k=1):\n    return k * 2": ("o.sm()", "type(o).sm(t)"),
    "shared = [1]": ("o.shared.append(2)", "o.shared", "type(o).shared", "o.shared = 3",
                     "o.shared += [3]", "type(o).shared = [4]"),
    "limit: int = 3": ("o.limit", "o.limit += 1", "type(o).limit", "type(o).__annotations__",
                       "del type(o).limit"),
    "d = Noted(2)": ("o.d", "o.d = 5", "type(o).d", "o.d += 1", "del o.d"),
    "e = Getter()": ("o.e", "o.e = 2", "type(o).e", "vars(o).get('e')"),
    "def m(self, k=[]):\n    k.append(self.a)\n    return len(k)": (
        "o.m()", "o.m([])", "type(o).m(o)", "o.m.__func__ is type(o).m", "o.m == o.m",
        "o.m is o.m"),
    "def __init_subclass__(cls, **kw):\n    LOG.append(sorted(kw))": (
        "type('Sub', (type(o),), {}).__name__",),
    "def __class_getitem__(cls, k):\n    return (cls.__name__, k)": ("type(o)[1]",),
    "def g(self):\n    try:\n        yield self.a\n        yield self.t\n"
    "    finally:\n        LOG.append('g')": (
        "next(o.g())", "[*o.g()]", "(k := o.g(), next(k), k.close())",),
    "class Inner:\n    v = 4\n    def __init__(self): self.w = 1": ("o.Inner.v", "o.Inner().w"),
    "def bump2(self): return super().bump() if hasattr(super(), 'bump') else __class__.__name__": (
        "o.bump2()",),
    "__match_args__ = ('a', 't')": (
        "match o:\n    case type(a=1): R.append('t')\n    case _: R.append('no')",),
}  # fmt: skip
DESCRIPTORS = """class Noted:
    def __init__(self, k): self.k = k
    def __set_name__(self, owner, name): self.name = name
    def __get__(self, owner, cls):
        LOG.append(f'get {self.name}')
        return self.k if owner is None else vars(owner).get('_' + self.name, self.k)
    def __set__(self, owner, value):
        LOG.append('set')
        vars(owner)['_' + self.name] = value
class Getter:
    def __get__(self, owner, cls):
        LOG.append('getter')
        return 9
def n_of(o): return len(o.__class__.__name__)
def changed(o): return o
def assigned(o):
    LOG.append('asked')
    return o"""
BASES = {
    "object": "", "list": "[1, 2]", "dict": "{'a': 1}", "tuple": "(1, 2)", "str": "'ab'",
    "int": "3", "float": "1.5", "set": "{1}", "Exception": "'e'",
    "collections.OrderedDict": "{'a': 1}", "collections.deque": "[1]",
    "collections.UserDict": "{'a': 1}", "collections.UserList": "[1]",
    "collections.defaultdict": "int, {'a': 1}", "collections.Counter": "'ab'",
    "contextlib.ContextDecorator": "", "abc.ABC": "", "typing.Generic[typing.TypeVar('T')]": "",
    "torch.nn.Module": "", "contextlib.ExitStack": "", "threading.local": "",
}  # fmt: skip
#: classes that a decorator or a metaclass of the library makes; how they are made, what they do
MADE = (
    ("@dataclasses.dataclass{opt}\nclass C:\n    a: int = 2\n    t: object = None\n"
     "    more: list = dataclasses.field(default_factory=list)\n    b: float = 1.0",
     "C(t=T)",
     ("o == o2", "repr(o)", "dataclasses.replace(o, a=5)", "dataclasses.asdict(Pair(o))",
      "dataclasses.astuple(Pair(1))", "[f.name for f in dataclasses.fields(o)]", "o.more.append(1)",
      "o.a = 4", "hash(o) == hash(o2)", "o < o2", "dataclasses.is_dataclass(o)",
      "C(3).more is C(3).more",
      "copy.copy(o).more is o.more", "match o:\n    case C(2, t): R.append(t)", "C(1, bad=2)",
      "o.zzz = 1", "del o.b", "vars(o)", "o.__dataclass_fields__['a'].default")),
    ("class C(typing.NamedTuple):\n    a: int = 2\n    t: object = None\n    b: float = 1.0\n"
     "    def twice(self): return self.a * 2",
     "C(t=T)",
     ("o.a", "o[1]", "o._replace(a=3)", "o._asdict()", "o._fields", "(lambda a, t, b: t)(*o)",
      "o.twice()", "o.a = 1", "C._make([1, 2, 3])", "repr(o[::2])", "len(o)", "o + (1,)",
      "C(1, 2, 3, 4)", "o.index(1.0)", "type(o[:2])", "isinstance(o, tuple)", "hash(o[::2]) * 0",
      "match o:\n    case (a, t, b): R.append(b)", "C._field_defaults", "o == (2, o.t, 1.0)",
      "copy.deepcopy(o).a", "o._zzz")),
    ("class C({kind}):\n    A = 1\n    B = 2\n    AA = 1\n    @property\n"
     "    def t(self): return T\n    def __str__(self): return f'<{self.name}>'",
     "C.B",
     ("o.name", "o.value", "C(1)", "C['B']", "C(9)", "[*C]", "len(C)", "o is C.B", "str(o)",
      "f'{o}'", "repr(o)", "o == 2", "o in C", "{C.A: 1}[C(1)]", "hash(o) == hash(o2)", "o.zzz",
      "C.AA is C.A", "o < C.A", "o | C.A", "int(o)", "C.__members__", "isinstance(o, int)",
      "o.t", "o.value = 3", "C.A = 3", "~o", "o + 1", "list(reversed(C))", "C.A in (C.B, C.A)",
      "match o:\n    case C.A: R.append(1)\n    case C.B: R.append(2)", "copy.copy(o) is o",
      "bool(o)", "o.name in C.__members__", "max(C, key=lambda k: k.value)", "C.Z")),
)  # fmt: skip
GENERAL = (
    "o.a", "o.t", "o.a = o.a + 1", "o.new = t", "del o.b", "o is o2", "o == o2", "type(o) is C",
    "isinstance(o, C)", "o.__class__.__name__", "vars(o)", "getattr(o, 'a', 0)", "[o, o2, o]",
    "hasattr(o, 'b')", "o.__dict__.get('a')", "sorted(o.__dict__)", "issubclass(C, object)",
    "C.__mro__[-1] is object", "o.__class__ = Plain", "copy.copy(o).a", "copy.deepcopy(o).t",
    "o.bump()", "len([o])", "o.a < 3", "R.append(o)", "{'k': o}['k'] is o", "o.missing",
    "C.added = 4", "o.added", "setattr(C, 'b', 9)", "o.b", "t * o.a", "o.t.add_(1)", "repr(o)[:0]",
    "o.__doc__", "C.__name__", "o.__module__ is None", "id(o) == id(o2)", "bool(o)", "str(C)[:6]",
    "o2.a = o", "o.self = o", "(o2 := o)", "print(o.a)", "C.__bases__[0].__name__", "hash(C) * 0",
    "callable(o)", "weakref.ref(o)() is o", "isinstance(o, collections.abc.Hashable)",
)  # fmt: skip
CHANGES = (
    "o.a = 5", "o.a = 2.5", "C.added = 7", "o.t = make((3,), torch.float32, 9, 'whole')", "o2 = o",
    "o = build()", "del o.b", "o.new = 1", "o.__dict__['a'] = 8", "C.a = 11", "o2.a = 0",
    "C.bump = lambda self, k=0: 50", "C.{m} = lambda self, *a, **k: 6", "del C.{m}",
    "o.{m} = lambda *a: 3", "C.b = property(lambda self: 12)", "o.__class__ = Plain",
    "C.__getattr__ = lambda self, name: 13", "C.__bool__ = lambda self: False", "o.a = o2.a",
    "C.__len__ = lambda self: 0", "C.__eq__ = lambda self, other: True", "C.__hash__ = None",
    "C.__setattr__ = lambda self, k, v: LOG.append(k)", "C.__iter__ = lambda self: iter('xy')",
    "o.a = True", "o.a = 'text'", "o.a = None", "Plain.{m} = lambda self, *a: 17",
)  # fmt: skip


def method(chance: random.Random, name: str, special: Special) -> str:
    answer = chance.choice(special.answers)
    head = f"def {name}({', '.join(filter(None, ('self', special.takes)))}):"
    if name in ("__getattribute__", "__hash__"):
        return f"{head}\n    return {answer}"
    lines = [f"LOG.append({name!r})"]
    end = chance.random()
    guarded = name in ("__getattr__",) and chance.random() < 0.5
    if end < 0.08 or guarded:
        kinds = ("AttributeError('no')", "Own('x')", "TypeError", "KeyError(1)", "StopIteration")
        test = "if name.startswith('_'):\n    " if guarded else ""
        lines.append(f"{test}raise {chance.choice(kinds)}")
    if name == "__getattr__":
        lines.insert(0, "if name in ('a', 't'):\n    raise AttributeError(name)")
    lines.append(f"return {answer}")
    return f"{head}\n" + indent("\n".join(lines), "    ")


META_METHODS = (
    "__call__", "__getattr__", "__iter__", "__len__", "__contains__", "__instancecheck__",
    "__getitem__", "__eq__", "__bool__",
)  # fmt: skip


def own_class(chance: random.Random) -> tuple[str, str, list[str], list[str]]:
    """The class, how it is made, what asks for its members, the names of its methods."""
    base = "object" if chance.random() < 0.6 else chance.choice([*BASES])
    chosen = chance.sample([*METHODS], chance.randrange(1, 5))
    members, uses = [], []
    for name in chosen:
        members.append(method(chance, name, METHODS[name]))
        uses += METHODS[name].uses
    for text in chance.sample([*MEMBERS], chance.choice((0, 0, 1, 2))):
        members.append(text)
        uses += MEMBERS[text]
    begin = f"super().__init__({BASES[base]})\n" if BASES[base] or "torch" in base else ""
    if base in ("tuple", "str", "int", "float"):
        begin = ""
    sets = "self.a = 2\nself.b = 1.5\nself.t = T"
    if chance.random() < 0.15:
        sets = "vars(self).update(a=2, b=1.5, t=T)"
    members.insert(0, "def __init__(self, *given):\n" + indent(begin + sets, "    "))
    members.append(
        "def bump(self, k=None):\n    if k is not None and self.a > 3:\n"
        "        raise StopIteration\n    self.a += 1\n    return self.a"
    )
    if base == "object" and chance.random() < 0.2 and "update" not in sets:
        slots = chance.choice(
            ("'a', 'b', 't'", "'a', 'b', 't', '__weakref__'", "'a', 't', 'b', 'zz'")
        )
        members.insert(0, f"__slots__ = ({slots})")
    heads = base
    before = ""
    if base == "object" and chance.random() < 0.2:
        parent = chance.choice([*METHODS])
        before = f"class Parent:\n{indent(method(chance, parent, METHODS[parent]), '    ')}\n"
        heads = "Parent"
        uses += METHODS[parent].uses
    if base == "object" and chance.random() < 0.2:
        kind = chance.choice(META_METHODS)
        inner = method(chance, kind, METHODS[kind]).replace("self.a", "1").replace("self.t", "T")
        if kind == "__call__":
            inner = (
                "def __call__(cls, *args):\n    LOG.append('made')\n"
                "    made = super().__call__(*args)\n    return made"
            )
        before += f"class Meta(type):\n    m = 3\n{indent(inner, '    ')}\n"
        heads += ", metaclass=Meta"
        of_class = [use for use in METHODS[kind].uses if "range" not in use and "for" not in use]
        uses += [use.replace("o2", "D").replace("o", "C") for use in of_class if len(use) < 12]
        uses += ["C.m", "type(C).__name__", "o.m", "C()"]
    text = f"{before}class C({heads}):\n{indent(chr(10).join(members), '    ')}"
    made = f"C({BASES[base]})"
    return text, made, uses, chosen


def made_class(chance: random.Random) -> tuple[str, str, list[str], list[str]]:
    text, made, uses = chance.choice(MADE)
    options = ("", "(frozen=True)", "(order=True)", "(eq=False)", "(slots=True)",
               "(unsafe_hash=True)",
               "(kw_only=True)", "(repr=False)")  # fmt: skip
    kinds = ("enum.Enum", "enum.IntEnum", "enum.Flag", "enum.IntFlag", "int, enum.Enum")
    text = text.replace("{opt}", chance.choice(options)).replace("{kind}", chance.choice(kinds))
    pair = "@dataclasses.dataclass\nclass Pair:\n    o: object\n    k: int = 1\n"
    return pair + text, made, [*uses], ["a"]


def statement(chance: random.Random, use: str) -> str:
    plain = use.startswith(("with ", "del ", "match ", "print(")) or " = " in use
    written = any(f" {s}= " in use for s in ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|",
                                             "^", "<<", ">>"))  # fmt: skip
    if written:
        left, symbol, right = use.split(" ", 2)
        if left.endswith(")"):
            use = f"k = {left}\nk {symbol} {right}\nR.append(k)"
    elif not plain or ":= " in use:
        use = chance.choice((f"R.append({use})", f"r = {use}\nR.append(r)"))
    if chance.random() < 0.85:
        return tried(use).replace("LOG.append(type(error).__name__)", "R.append(text_of(error))")
    return use


def draw(chance: random.Random) -> Program:
    """A class, one or two instances, three to eight uses, two to four calls."""
    text, made, uses, names = (own_class if chance.random() < 0.75 else made_class)(chance)
    instances = f"def build(): return {made}\no, o2 = build(), build()"
    setup = [SETUP, DESCRIPTORS, "import threading, weakref",
             "T = make((3,), torch.float32, 5, 'whole')", text, instances]  # fmt: skip
    body = ["R = []", "t = x * 2"]
    where = chance.random()
    more: dict[str, str] = {}
    if where < 0.25:
        body.append(chance.choice(("o = build()\no2 = build()", f"o = {made}\no2 = {made}")))
    elif where < 0.3:
        body.append(f"{text}\no = {made}\no2 = {made}")
    elif where < 0.5:
        more = {"o": "build()", "o2": chance.choice(("build()", "o"))}
    elif where < 0.6:
        body.append("global o, o2")
    else:
        more = {"o": "o", "o2": "o2"}
    for _ in range(chance.randrange(3, 9)):
        pool = uses if chance.random() < 0.7 else GENERAL
        body.append(statement(chance, chance.choice(pool)))
        if chance.random() < 0.2:
            body.append("t = t + len(R)")
    calls = []
    for number in range(chance.choice((2, 3, 3, 4))):
        before: list[str] = []
        if number and chance.random() < 0.6:
            change = chance.choice(CHANGES).replace("{m}", chance.choice(names))
            before = [tried(change)]
        shape = chance.choice(("(3,)", "(3,)", "(3,)", "(1,)"))
        x = f"make({shape}, torch.float32, {chance.randrange(20)}, 'whole')"
        arguments = {"x": f"leaf({x})" if chance.random() < 0.1 else x} | more
        calls.append(Call(arguments, tuple(before)))
    return Program("classes", 0, tuple(body), ("t", "R"), tuple(calls), tuple(setup))
