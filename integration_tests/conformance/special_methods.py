"""The special methods of the data model, and what classes are made of besides.

In: the campaign's table of methods with what uses them. Out: a construct a method: all of its uses,
of an instance that lived before the call and of one that the function makes. Invariant: a method
notes that it was called; the answers of its uses are those of the table in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent

from integration_tests.campaign.families import classes
from integration_tests.conformance.construct import Construct, caught, together

HEAD = f"""{classes.SETUP}
{classes.DESCRIPTORS}
import threading, weakref
T = make((3,), torch.float32, 5, 'whole')"""
BEGIN = "def __init__(self, *given):\n    {begin}self.a = 2\n    self.b = 1.5\n    self.t = T"
BUMP = "def bump(self, k=None):\n    self.a += 1\n    return self.a"
NO_BEGINNING = ("tuple", "str", "int", "float")
#: members that a method is useless without
WITH = {
    "__next__": "def __iter__(self): return self",
    "__hash__": "def __eq__(self, other): return self is other",
    "__enter__": "def __exit__(self, *e): return False",
    "__exit__": "def __enter__(self): return self",
    "__missing__": "",
}
#: members that the table has none of: a class's own text, and uses
MORE: dict[str, tuple[str, tuple[str, ...]]] = {
    "__new__": (
        "def __new__(cls, *k):\n    LOG.append('new')\n    return super().__new__(cls)", ("o.a",)),
    "__del__": ("def __del__(self): LOG.append('del')", ("o.a", "k = C()\ndel k")),
    "__init__": ("", ("C().a", "C(1, 2).t")),
    "__init_subclass__": (
        "def __init_subclass__(cls, **kw): LOG.append(sorted(kw))",
        ("type('Sub', (C,), {}).__name__", "class Sub(C, k=1): pass")),
    "__class_getitem__": ("def __class_getitem__(cls, k): return (cls.__name__, k)", ("C[1]",)),
    "__set_name__, __get__, __set__": ("d = Noted(2)", ("o.d", "o.d = 5\nR.append(o.d)", "C.d",
                                                        "o.d += 1")),
    "__get__": ("e = Getter()", ("o.e", "o.e = 2\nR.append(o.e)", "C.e")),
    "__delete__": (
        "class E:\n    def __delete__(self, o): LOG.append('deleted')\n    def __set__(self, o, "
        "k): "
        "pass\ne = E()", ("del o.e",)),
    "__slots__": ("__slots__ = ('a', 'b', 't')", ("o.a", "o.a = 3\nR.append(o.a)", "o.none = 1",
                                                  "del o.b\no.b", "C.a.__name__")),
    "__match_args__": ("__match_args__ = ('a', 't')",
                       ("match o:\n    case C(2, k): t = t + k",)),
    "__dict__": ("", ("o.__dict__", "vars(o)['a']", "o.__dict__['k'] = 1\nR.append(o.k)",
                      "sorted(vars(o))", "'a' in o.__dict__", "C.__dict__['bump'].__name__")),
    "__class__": ("", ("o.__class__ is C", "type(o) is C", "o.__class__ = type(o)",
                       "o.__class__.__name__")),
    "__doc__, __name__, __module__, __qualname__": (
        "'doc'", ("C.__doc__", "C.__name__", "C.__qualname__", "o.__module__ is None",
                  "o.__doc__")),
    "__mro__, __bases__, __subclasses__": (
        "", ("C.__mro__[-1] is object", "C.__bases__", "C.mro()[0] is C", "C.__subclasses__()",
             "C.__base__ is object")),
    "__annotations__": ("k: int = 3\nj: 'text'", ("C.__annotations__", "o.k", "o.__annotations__",
                                                  "typing.get_type_hints(C, {'text': str})")),
    "__reduce__, __getstate__": (
        "def __getstate__(self): return {'a': 7}\ndef __setstate__(self, s): vars(self).update(s)",
        ("copy.copy(o).a", "o.__reduce_ex__(2)[0].__name__", "__import__('pickle').dumps(1)[:2]")),
    "__prepare__": (
        "", ("class M(type):\n    @classmethod\n    def __prepare__(cls, *k): return {'p': 1}\n"
             "class D(metaclass=M): pass\nR.append(D.p)",)),
    "__aenter__, __aexit__": (
        "async def __aenter__(self): return 1\nasync def __aexit__(self, *e): pass",
        ("async def g():\n    async with o as k: return k\ntry: g().send(None)\n"
         "except StopIteration as e: R.append(e.value)",)),
    "__aiter__, __anext__": (
        "def __aiter__(self): return self\nasync def __anext__(self): raise StopAsyncIteration",
        ("async def g():\n    async for k in o: pass\n    return 1\ntry: g().send(None)\n"
         "except StopIteration as e: R.append(e.value)",)),
    "__subclasscheck__": (
        "", ("class M(type):\n    def __subclasscheck__(c, k): return True\n"
             "class D(metaclass=M): pass\nR.append(issubclass(int, D))",)),
    "__mro_entries__": ("def __mro_entries__(self, bases): return (Plain,)",
                        ("class D(o): pass\nR.append(D.__bases__[0] is Plain)",)),
    "__weakref__": ("", ("weakref.ref(o)() is o", "weakref.proxy(o).a")),
    "__getattr__ of a module": ("", ("MODULE.o is o", "MODULE.none", "getattr(MODULE, 'k', 1)")),
    "__torch_function__": (
        "@classmethod\ndef __torch_function__(cls, f, types, args=(), kw=None): return f.__name__",
        ("torch.add(o, 1)", "torch.sum(o)", "torch.stack([o])")),
    "__array__": ("def __array__(self, dtype=None): return __import__('numpy').ones(2)",
                  ("torch.as_tensor(o)",)),
}  # fmt: skip
META = ("__call__", "__iter__", "__len__", "__contains__", "__instancecheck__",
        "__getitem__", "__eq__", "__bool__")  # fmt: skip


def class_text(members: list[str], base: str = "object", head: str = "") -> str:
    """`class C`, whose instances have `a`, `b` and `t`."""
    given = classes.BASES[base]
    begins = given or "torch" in base or "Exit" in base
    begin = f"super().__init__({given})\n    " if begins and base not in NO_BEGINNING else ""
    parts = [*members, BEGIN.format(begin=begin), BUMP]
    heads = ", ".join(filter(None, (base, head)))
    return f"class C({heads}):\n" + indent("\n".join(filter(None, parts)), "    ")


def _rows(
    chapter: str, name: str, text: str, uses: tuple[str, ...], made: str = "C()"
) -> Iterator[Construct]:
    head = f"{HEAD}\n{text}"
    uses = tuple(use.replace("changed(o) ", "o ") for use in uses)  # written to a name
    lived = f"global o, o2\n{together(map(caught, uses))}"
    new = together(f"o, o2 = {made}, {made}\n{caught(use)}" for use in uses)
    fresh = f"{head}\ndef build(): return {made}\no, o2 = build(), build()"
    if uses:
        yield Construct(chapter, name, (lived, new), fresh)


def constructs() -> Iterator[Construct]:
    """Every row: special methods, members of classes, bases, classes that the library makes."""
    for name, special in classes.METHODS.items():
        for at, answer in enumerate(special.answers[:3]):
            uses = special.uses[at :: min(3, len(special.answers))] or special.uses[:1]
            head = f"def {name}({', '.join(filter(None, ('self', special.takes)))}):\n"
            note = "" if name in ("__getattribute__", "__hash__") else f"    LOG.append({name!r})\n"
            if name == "__getattr__":
                note += (
                    "    if name in ('a', 't') or name[:2] == '__': raise AttributeError(name)\n"
                )
            text = class_text([WITH.get(name, ""), f"{head}{note}    return {answer}"])
            suffix = "" if at == 0 else f", answering {answer}"
            yield from _rows("Special methods", name + suffix, text, uses)
    for name, (member, uses) in MORE.items():
        slots = member if "__slots__" in member else ""
        text = class_text([member] if not slots else [slots])
        yield from _rows("Special methods", name, text, uses)
    for name in META:
        special = classes.METHODS[name]
        takes = ", ".join(filter(None, ("cls", special.takes)))
        answer = special.answers[0].replace("self.a", "1").replace("self.t", "T")
        answer = "super().__call__()" if name == "__call__" else answer
        hashed = "    __hash__ = type.__hash__\n" if name == "__eq__" else ""
        meta = f"class Meta(type):\n{hashed}    def {name}({takes}):\n        return {answer}"
        text = f"{meta}\n{class_text([], 'object', 'metaclass=Meta')}"
        uses = tuple(
            use.replace("o2", "D").replace("o)", "C)").replace("o[", "C[").replace("o.", "C.")
            for use in special.uses if len(use) < 14 and "for" not in use and "range" not in use
        )  # fmt: skip
        yield from _rows(
            "Special methods", f"{name} of a metaclass", text, uses, "object.__new__(C)"
        )
    for member, uses in classes.MEMBERS.items():
        uses = tuple(use.replace("type(a=1)", "object(a=1)") for use in uses)
        title = member.splitlines()[0].split("(")[0].split("=")[0].strip().removeprefix("def ")
        yield from _rows("Members of classes", title, class_text([member]), uses)
    for base, given in classes.BASES.items():
        general = (
            "o.a", "o.a = o.a + 1\nR.append(o.a)", "o.t * 2", "o.bump()", "isinstance(o, C)",
            "bool(o)", "o == o2", "vars(o)", "C.__mro__[1].__name__", "o.new = t\nR.append(o.new)",
        )  # fmt: skip
        yield from _rows("Bases of classes", base, class_text([], base), general, f"C({given})")
    for text, made, uses in classes.MADE:
        pair = "@dataclasses.dataclass\nclass Pair:\n    o: object\n    k: int = 1\n"
        options = (
            ("", "(frozen=True)", "(order=True)", "(slots=True)") if "{opt}" in text else ("",)
        )
        if "{kind}" in text:
            options = ("enum.Enum", "enum.IntEnum", "enum.Flag", "enum.IntFlag")
        for option in options:
            whole = pair + text.replace("{opt}", option).replace("{kind}", option)
            kind = "dataclass" if "{opt}" in text else "NamedTuple"
            name = option if "{kind}" in text else kind + option
            wanted = uses if not option or option == "enum.Enum" else uses[::3]
            yield from _rows("Classes that the library makes", name, whole, wanted, made)
