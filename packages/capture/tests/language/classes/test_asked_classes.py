"""What capture asks of the program's classes: nothing that Python does not ask. Generated: each of
the metaclass's special methods and each kind of descriptor, under uses of class and instance.
"""

import copy
import enum
import functools
import itertools
import operator
import re
import typing
import weakref

import pytest
import torch
from flambeau_capture import optimize

USES = (
    "len([o])", "bool(o)", "isinstance(o, C)", "str(type(o))[:3]", "o.a", "setattr(o, 'b', 1)",
    "[o, C][0] is o", "C()", "o == o", "hasattr(o, 'zz')", "C.known", "issubclass(C, object)",
    "C is type(o)", "{1: o}", "o.m()", "type(o).__name__", "C.d", "o.d", "not C", "all([C])",
    "copy.copy(o).a", "copy.deepcopy([o, o])", "super(C, o).__init__()", "o.sup()",
    "isinstance(1, typing.Sized)", "weakref.ref(o)() is o", "weakref.ref((1, 2))", "C and 1",
    "type(object.__new__(C)) is C", "L((1, 2))", "[*reversed(L((1, 2)))]", "L((1, 2)).index(3)",
    "L.__new__(L) + [1]", "T.__new__(T, (1, 2))", "T((1,)) + (2,)", "T((1, 2)) == (1, 2)",
    "torch.cat(L([x, x])).sum()", "str(ValueError(T((1, 2))))", "L((1,)).append(1, 2)",
    "E(1).with_traceback(1)", "operator.add(T((1,)), 1)",
)  # fmt: skip
METHODS = {
    "__getattr__": "raise AttributeError(name)",
    "__bool__": "return False",
    "__len__": "return 0",
    "__eq__": "return True",
    "__contains__": "return True",
    "__call__": "return type.__call__(cls, *given)",
    "__hash__": "return 5",
}
TAKES = {
    "__getattr__": ", name",
    "__eq__": ", other",
    "__contains__": ", item",
    "__call__": ", *given",
}


def program(method, uses):
    lines = [
        "class Meta(type):",
        f"    def {method}(cls{TAKES.get(method, '')}):",
        f"        LOG.append('{method}')",
        f"        {METHODS[method]}",
        *["    __hash__ = type.__hash__"][method == "__hash__" :],
        "class D:",
        "    def __get__(self, owner, cls):",
        "        LOG.append('get')",
        "        return 4",
        "class C(metaclass=Meta):",
        "    known, d = 1, D()",
        "    def __init__(self): self.a = 2",
        "    def m(self): return self.a",
        "    def sup(self): return super().bump() if hasattr(super(), 'bump') else 3",
        "    def bump(self): return 5",
        "    def __deepcopy__(self, memo):",
        "        LOG.append('copied')",
        "        return self",
        "class L(list, metaclass=Meta): pass",
        "class T(tuple, metaclass=Meta): pass",
        "class E(ValueError, metaclass=Meta): pass",
        "o = C()",
        "def f(x):",
        "    R = [x + 1]",
    ]
    for use in uses:
        lines.append(f"    try: R.append({use})")
        lines.append("    except Exception as e: R.append((type(e), str(e)))")
    lines.append("    return R")
    space = {
        "__name__": "of_the_program",
        "LOG": [],
        "copy": copy,
        "operator": operator,
        "torch": torch,
        "typing": typing,
        "weakref": weakref,
    }
    exec("\n".join(lines), space)
    return space["f"], space["LOG"]


@pytest.mark.parametrize("method", METHODS)
def test_a_metaclass_is_asked_as_python_asks_it(method):
    for start in range(0, len(USES), 7):
        f, log = program(method, USES[start : start + 7])
        log.clear()
        expected, heard = f(torch.ones(2))[1:], log[:]
        f, log = program(method, USES[start : start + 7])  # copying leaves notes on the class
        log.clear()
        ours = optimize("eager", raise_internal_errors=True)(f)(torch.ones(2))[1:]
        assert [repr(each).partition(" at ")[0] for each in ours] == [
            repr(each).partition(" at ")[0] for each in expected
        ]
        assert log == heard


CHANGES = {
    "__setattr__": "lambda self, name, value: None",
    "__delattr__": "lambda self, name: None",
    "__getattr__": "lambda self, name: 7",
    "__len__": "lambda self: 0",
    "__eq__": "lambda self, other: False",
    "a": "property(lambda self: 9, lambda self, value: None)",
    "b": "property(lambda self: 8, lambda self, value: None)",
    "bump": "lambda self: 6",
}
READS = ("o.a", "len(o) if hasattr(o, '__len__') else 1", "o == o", "vars(o).get('a', 0)", "o.zz",
         "vars(o).get('b', 0)", "bool(o)")  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_class_gains_after_the_first_call(name):
    """Of instances that are made in the call."""
    lines = ["class C:", "    def __init__(self):", "        self.a = 2", "def f(x):"]
    lines += ["    o = C()", "    R = [x + 1]", "    o.b = 3", "    o.c = 1", "    del o.c"]
    for read in READS:
        lines.append(f"    try: R.append({read})")
        lines.append("    except Exception as e: R.append((type(e), str(e)))")
    space = {"__name__": "of_the_program"}
    exec("\n".join([*lines, "    return R"]), space)
    f = space["f"]
    ours = optimize("eager", raise_internal_errors=True)(f)
    assert ours(torch.ones(2))[1:] == f(torch.ones(2))[1:]
    setattr(space["C"], name, eval(CHANGES[name]))
    expected = tried(f)
    assert tried(ours) == expected


def tried(f):
    try:
        return f(torch.ones(2))[1:]
    except Exception as error:
        return type(error), str(error)


def test_named_tuples_refuse_in_their_own_words():
    class Pair(typing.NamedTuple):
        a: int
        b: int = 2

    def f(x):
        answers = [x + 1]
        for given, named in (((), {}), ((1, 2, 3), {}), ((1,), {"a": 2}), ((1,), {"c": 3})):
            try:
                answers.append(Pair(*given, **named))
            except TypeError as error:
                answers.append(str(error))
        return answers

    assert optimize("eager")(f)(torch.ones(1))[1:] == f(torch.ones(1))[1:]


def test_an_object_that_no_graph_holds_is_not_compared():
    heard = []

    class Own(Exception):
        def __eq__(self, other):
            heard.append(other)
            return True

        def __pow__(self, other):
            return other

        __hash__ = None

    own = Own()
    assert optimize("eager")(lambda x: own ** (x * 2))(torch.ones(1)).tolist() == [2.0]
    assert not heard


ONLY_C_MAKES = (re.Match, re.Pattern, type({}.keys()))


@pytest.mark.parametrize("kind", ONLY_C_MAKES, ids=lambda kind: kind.__name__)
def test_classes_without_calls(kind):
    def f(x):
        try:
            return kind(), x + 1
        except TypeError as error:
            return str(error), x + 2

    assert optimize("eager")(f)(torch.ones(1)) == f(torch.ones(1))


def test_tuples_that_are_themselves():
    def f(x, t):
        return x + 1, t[:] is t, copy.deepcopy(t) is t, t[0:9] is t, t[1:] is t, copy.copy(t) is t

    class Shade(enum.Enum):
        DARK = 1

    for t in ((1, "a"), (), (Shade.DARK, (1, 2)), (1, [2])):
        ours = optimize("eager")(f)(torch.ones(1), t)
        assert ours[1:] == f(torch.ones(1), t)[1:]


SPECS = ("", ">", "5", "F", "d", "s", "<9s", ",", "z", "08.3f")
VALUES = {"list": [1], "class": int, "function": len, "set": {1}, "dict": {}, "none": None,
          "own": object, "enum": enum.IntEnum("E", "A").A, "number": 3, "text": "t"}  # fmt: skip


def test_format_specifications():
    lines = ["def f(x):", "    R = []"]
    for name, spec in itertools.product(VALUES, SPECS):
        lines.append(f'    try: R.append(f"{{VALUES[{name!r}]:{spec}}}")')
        lines.append("    except Exception as e: R.append((type(e), str(e)))")
    space = {"VALUES": VALUES}
    exec("\n".join([*lines, "    return x + 1, R"]), space)
    ours = optimize("eager", raise_internal_errors=True)(space["f"])(torch.ones(1))
    assert ours[1] == space["f"](torch.ones(1))[1]


@pytest.mark.parametrize("kind", (enum.Enum, enum.IntEnum, enum.Flag), ids=lambda k: k.__name__)
def test_attributes_of_members(kind):
    """A program may set them at any time."""
    space = {"enum": enum, "kind": kind, "__name__": "of_the_program"}
    exec("class Shade(kind):\n    DARK = 1\n    LIGHT = 2", space)
    made = space["Shade"]

    def f(x, member):
        return x + 1, getattr(member, "tone", None), hasattr(member, "tone"), member.name

    ours = optimize("eager", raise_internal_errors=True)(f)
    for tone in (None, "a", "b", 3):
        if tone is not None:
            made.DARK.tone = tone
        for member in made:
            assert ours(torch.ones(1), member)[1:] == f(torch.ones(1), member)[1:]


class Copied:
    def __init__(self):
        self.items = [1]

    def __copy__(self):
        return "copied", self.items

    def __deepcopy__(self, memo):
        return "deeply copied", self.items


class CopiedByItsClass:
    def __init__(self):
        self.items = [1]

    @classmethod
    def __copy__(cls, given):
        return cls.__name__, given.items


class Uncopied:
    def __init__(self):
        self.items = [1]


@pytest.mark.parametrize("names", [["__copy__"], ["__deepcopy__"], ["__copy__", "__deepcopy__"]])
@pytest.mark.parametrize("kind", [Copied, CopiedByItsClass, Uncopied])
def test_who_is_asked_for_a_copy(capture, kind, names):
    """The class for `__copy__`, the object for `__deepcopy__`."""

    def shown(made):
        return made if isinstance(made, tuple | int) else sorted(vars(made))

    def program(t, given):
        return t * 2, shown(copy.copy(given)), shown(copy.deepcopy(given))

    given, run = kind(), capture(program)
    assert run(torch.ones(1), given)[1:] == program(torch.ones(1), given)[1:]
    for name in names:
        setattr(given, name, lambda *_: 3)
    assert run(torch.ones(1), given)[1:] == program(torch.ones(1), given)[1:]


class Slotted:
    __slots__ = ("items",)


class Row(typing.NamedTuple):
    items: int = 1
    other: float = 2.0


class Rows(tuple):
    __slots__ = ()

    def __iter__(self):
        return iter("xy")


@pytest.mark.parametrize("make", [Slotted, Row, Rows])
def test_copies_of_objects_without_a_dict(capture, make):
    def program(t, given):
        made = copy.copy(given), copy.deepcopy(given)
        return t * 2, [type(each).__name__ for each in made], [given is each for each in made]

    given = make()
    assert capture(program)(torch.ones(1), given)[1:] == program(torch.ones(1), given)[1:]


def test_classes_are_told_apart_without_being_asked(capture):
    """By what an order of a tensor, and a cache of a function, look at."""
    log = []

    class Meta(type):
        __hash__ = type.__hash__

        def __eq__(cls, other):
            log.append(cls.__name__)
            return cls is other

    class Text(str, metaclass=Meta):
        pass

    def program(x):
        cached = functools.lru_cache(lambda given: str(given) + "!")
        try:
            return x < Text("a")
        except TypeError as error:
            return x + 1, str(error), cached(Text("b")), cached("b")

    found = capture(program)(torch.ones(2))[1:]
    assert not log
    assert found == program(torch.ones(2))[1:]
