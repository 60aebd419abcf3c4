"""What classes have under a name, taken as objects: descriptors, `__dict__` beside slots, metaclass
checks, signatures. Generated: each use of each, of classes of the program and of classes that the
frame makes."""

import inspect

import pytest
import torch

CLASSES = """
class Meta(type):
    def __subclasscheck__(cls, other): return True
class AbstractMeta(abc.ABCMeta):
    def __subclasscheck__(cls, other): return other is int
class Refusing(type):
    def __instancecheck__(cls, other): return other == 3
class Open(metaclass=Meta): k = 1
class Abstract(metaclass=AbstractMeta): k = 1
class Kept(metaclass=Refusing): k = 1
class Base: pass
class C(Base):
    __slots__ = ("a", "empty")
    def __init__(self): self.a, self.late = 2, 3
    @property
    def p(self): return self.a + 1
    @p.setter
    def p(self, value): self.a = value
    @property
    def q(self): return 5
    @functools.cached_property
    def c(self): return self.a * 2
    @classmethod
    def cm(cls, k: int = 2) -> "int": return cls.__name__, k
    @staticmethod
    def sm(k, /, j: str = "a", *rest, z=1, **more): return k
    def m(self, k, *, b=1) -> None: return k
def fn(a, b: int = 1, *c: str, d=2, **e: float) -> "text": return b
def plain(a, b): return a
"""
USES = {
    "descriptors": (
        "vars(C)['p'].__get__(o)", "vars(C)['p'].__get__(o, C)",
        "vars(C)['p'].__get__(None, C) is C.p",
        "C.p.fget(o)", "C.p.fset is C.p.fset", "C.q.fset", "C.p.__set__(o, 7), o.a",
        "C.q.__set__(o, 7)", "C.q.__delete__(o)", "C.a.__get__(o)", "C.a.__set__(o, 4), o.p",
        "C.a.__delete__(o), hasattr(o, 'a')", "C.empty.__get__(o)", "C.a.__get__(3)",
        "C.a.__name__", "C.a.__objclass__ is C", "vars(C)['cm'].__func__(C)",
        "vars(C)['sm'].__func__(1)", "vars(C)['sm'].__wrapped__(2)", "C.c.attrname",
        "C.c.func(o)", "vars(C)['c'] is C.c", "type.__dict__['__mro__'].__get__(C)[1].__name__",
        "type.__dict__['__mro__'].__get__(3)", "type(vars(C)['cm']).__name__",
        "type.__dict__['__dict__'].__get__(Base).get('zz')", "hasattr(C.p, 'fget')",
    ),
    "statically": tuple(
        f"type(inspect.getattr_static({owner}, {name!r}, None)).__name__"
        for owner in ("C", "o", "3", "Base") for name in ("a", "p", "cm", "sm", "late", "zz")
    ),
    "slots": (
        "o.__dict__", "sorted(vars(o))", "o.__dict__.get('a')", "'a' in o.__dict__", "o.a",
        "'late' in vars(o)", "[*o.__dict__.items()]", "len(vars(o))", "o.__dict__.pop('a', 8)",
        "vars(o).update(b=4), o.b, vars(o)", "setattr(o, 'a', 9), vars(o), o.a",
        "delattr(o, 'a'), vars(o), hasattr(o, 'a')", "copy.copy(o).a", "vars(copy.copy(o))",
    ),
    "checks": tuple(
        f"{test}({value}, {kind})"
        for kind in ("Open", "Abstract", "Kept", "(Open, Abstract)")
        for test, values in (
            ("isinstance", ("3", "o", "Open()", "x", "'s'")),
            ("issubclass", ("int", "C", "Open", "bool")),
        )
        for value in values
    ),
    "signatures": (
        *(f"str(inspect.signature({one}))"
          for one in ("fn", "plain", "C.m", "C().m", "C.cm", "C.sm", "lambda k=1: k")),
        "setattr(fn, '__defaults__', (7,)), str(inspect.signature(fn))",
        "setattr(fn, '__kwdefaults__', {'d': 8}), str(inspect.signature(fn))",
        "setattr(fn, '__annotations__', {'a': 3}), str(inspect.signature(fn))",
        "setattr(fn, 'note', 1), str(inspect.signature(fn))",
        "setattr(fn, '__wrapped__', plain), str(inspect.signature(fn))",
        "setattr(fn, '__wrapped__', plain), str(inspect.signature(fn, follow_wrapped=False))",
        "[p.kind.name for p in inspect.signature(fn).parameters.values()]",
        "[p.annotation for p in inspect.signature(fn).parameters.values()]",
        "inspect.signature(fn).return_annotation",
        "str(inspect.signature(functools.wraps(plain)(fn)))",
    ),
}  # fmt: skip
CASES = [(subject, use) for subject, uses in USES.items() for use in uses]


def program(use, made):
    body = [
            "o = C()", "try:", f"    found = ({use})", "except Exception as error:",
            "    found = type(error).__name__, str(error)", "return x + 1, repr(found)",
    ]  # fmt: skip
    imports = "import abc, copy, functools, inspect\n"
    before, inside = ("", CLASSES) if made else (CLASSES, "")
    lines = "\n".join(f"    {line}" for line in [*inside.splitlines(), *body])
    return f"{imports}{before}def f(x):\n{lines}\n"


def answer(text, wrap):
    names = {"__name__": "__main__"}
    exec(text, names)
    wrapped = wrap(names["f"])
    return [wrapped(torch.ones(2))[1] for _ in range(2)]


@pytest.mark.sweep(10)
@pytest.mark.parametrize("made", [False, True], ids=["given", "made"])
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_uses(capture, case, made):
    text = program(case[1], made)
    assert answer(text, capture) == answer(text, lambda fn: fn)


CHANGES = {
    "defaults": lambda h, C: setattr(h, "__defaults__", (5, [1])),
    "what a default holds": lambda h, C: h.__defaults__[1].append(2),
    "keywords": lambda h, C: setattr(h, "__kwdefaults__", {"k": 7}),
    "a keyword": lambda h, C: h.__kwdefaults__.update(k=8),
    "annotations": lambda h, C: setattr(h, "__annotations__", {"a": float}),
    "an annotation": lambda h, C: h.__annotations__.update(c=bool),
    "a signature": lambda h, C: setattr(h, "__signature__", inspect.signature(lambda q: 1)),
    "what it wraps": lambda h, C: setattr(h, "__wrapped__", lambda r: 1),
    "a method's default": lambda h, C: setattr(C.m, "__defaults__", (3,)),
    "how it is made": lambda h, C: setattr(C, "__init__", lambda self, z=3: None),
    "the class's own": lambda h, C: setattr(C, "__signature__", inspect.signature(lambda q: 1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_signatures_change_between_calls(capture, change):
    def h(a, b: int = 1, c=[0], *, k=2) -> str:  # noqa: B006 - it is written to
        return b

    class C:
        def __init__(self, a=1):
            pass

        def m(self, a=1):
            return a

    def fn(x):
        return x + 1, [str(inspect.signature(one)) for one in (h, C, C.m, C().m)]

    compiled = capture(fn)
    assert compiled(torch.ones(1))[1] == fn(torch.ones(1))[1]
    CHANGES[change](h, C)
    assert compiled(torch.ones(1))[1] == fn(torch.ones(1))[1]
