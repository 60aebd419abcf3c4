"""The special methods of Python's data model, each with answers that it may give and may not: what
comes of it in an operator, a built-in function or a statement is what CPython makes of it, class
and words of the exception included. Generated: every method, every answer, every use.
"""

import itertools
import linecache

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from flambeau_capture.builtins.operator_tables import OPERATORS

ANSWERS = {
    "none": "return None",
    "float": "return 1.2",
    "negative": "return -1",
    "zero": "return 0",
    "text": "return 'a'",
    "bytes": "return b'x'",
    "large": "return 10**30",
    "not_implemented": "return NotImplemented",
    "true": "return True",
    "own_integer": "return Integer(3)",
    "own_text": "return Text('q')",
    "own_float": "return Float(2.5)",
    "itself": "return self",
    "another": "return Other()",
    "list": "return [1, 2]",
    "iterator": "return iter([1, 2])",
    "tuple": "return (1, 2)",
    "complex": "return 1j",
    "class": "return int",
    "error": "raise KeyError('own')",
    "stop": "raise StopIteration('own')",
    "attribute_error": "raise AttributeError('own')",
    "type_error": "raise TypeError('own')",
    "index_error": "raise IndexError('own')",
}
FEW = ["none", "float", "text", "not_implemented", "itself", "error", "type_error"]
NUMBERS = "+ - * / // % ** << >> & | ^ @".split()
NAMES = "add sub mul truediv floordiv mod pow lshift rshift and or xor matmul".split()
LIKE_MANY = set()  # methods of which any stands for all: they differ in their sign
USES = {
    "__bool__": [
        "bool(o)",
        "not o",
        "1 if o else 2",
        "o and 1",
        "o or 1",
        "any([o])",
        "all([o])",
        "[1 for _ in [1] if o]",
        "list(filter(None, [o]))",
    ],
    "__len__": [
        "len(o)",
        "bool(o)",
        "not o",
        "list(o)",
        "range(len(o))",
        "o.__len__()",
        "reversed(o)",
    ],
    "__index__": [
        "[1, 2, 3, 4][o]",
        "[1, 2, 3, 4][:o]",
        "range(o)",
        "int(o)",
        "float(o)",
        "hex(o)",
        "operator.index(o)",
        "[1] * o",
        "'a' * o",
        "bin(o)",
        "complex(o)",
        "chr(o)",
        "round(2.567, o)",
        "(1, 2)[o]",
        "'abc'[o]",
        "[1, 2].pop(o)",
        "math.sqrt(o)",
        "list(range(2)).insert(o, 1)",
        "bytes(o)",
    ],
    "__int__": ["int(o)", "'%d' % o", "math.trunc(o)"],
    "__float__": ["float(o)", "math.sqrt(o)", "'%f' % o", "math.floor(o)"],
    "__complex__": ["complex(o)", "cmath.sqrt(o)"],
    "__trunc__": ["math.trunc(o)"],
    "__floor__": ["math.floor(o)"],
    "__ceil__": ["math.ceil(o)"],
    "__round__": ["round(o)", "round(o, 1)"],
    "__contains__": ["1 in o", "1 not in o", "operator.contains(o, 1)"],
    "__hash__": ["hash(o)", "{o: 1}[o]", "{o} == {o}", "o in {}", "len({o, o})"],
    "__eq__": [
        "o == 1",
        "1 == o",
        "o != 1",
        "o == o",
        "o in [1]",
        "[o] == [1]",
        "[1, 2].index(o)",
        "[1].count(o)",
        "(o,) == (1,)",
        "not (o == 1)",
    ],
    "__ne__": ["o != 1", "1 != o", "not (o != 1)"],
    "__lt__": ["o < 1", "1 > o", "sorted([o, o]) and 1", "min(o, 1)", "[o] < [1]", "max(1, o)"],
    "__le__": ["o <= 1", "1 >= o", "1 <= o"],
    "__gt__": ["o > 1", "1 < o", "max(o, 1)"],
    "__ge__": ["o >= 1", "1 <= o"],
    "__iter__": [
        "list(o)",
        "tuple(o)",
        "[x for x in o]",
        "iter(o)",
        "a, b = o",
        "[*o]",
        "{*o}",
        "dict.fromkeys(o)",
        "sum(o)",
        "max(o)",
        "sorted(o)",
        "1 in o",
        "list(zip(o, o))",
        "list(map(str, o))",
        "print(*o, file=None) if False else f_star(*o)",
        "''.join(o)",
        "list(enumerate(o))",
        "next(iter(o))",
        "set(o)",
    ],
    "__next__": ["next(o)", "next(o, 5)"],
    "__reversed__": ["reversed(o)", "list(reversed(o))"],
    "__str__": ["str(o)", "f'{o}'", "'%s' % o", "'{}'.format(o)", "format(o)", "f'{o!s}'"],
    "__repr__": [
        "repr(o)",
        "str(o)",
        "f'{o!r}'",
        "'%r' % o",
        "[o].__repr__()",
        "f'{o}'",
        "ascii(o)",
        "str([o])",
        "str({1: o})",
    ],
    "__format__": ["format(o)", "f'{o}'", "f'{o:>5}'", "'{:x}'.format(o)", "format(o, 'd')"],
    "__bytes__": ["bytes(o)"],
    "__abs__": ["abs(o)"],
    "__neg__": ["-o"],
    "__pos__": ["+o"],
    "__invert__": ["~o"],
    "__divmod__": ["divmod(o, 1)", "divmod(1, o)"],
    "__rdivmod__": ["divmod(1, o)"],
    "__call__": ["o()", "o(1)", "callable(o)", "list(map(o, [1]))", "sorted([2, 1], key=o)"],
    "__getitem__": ["o[0]", "o['a']", "o[1:2]", "a, b = o", "next(iter(o))"],
    "__setitem__": ["o[0] = 1"],
    "__delitem__": ["del o[0]"],
    "__getattr__": ["o.absent", "getattr(o, 'absent', 5)", "hasattr(o, 'absent')"],
    "__getattribute__": ["o.absent", "getattr(o, 'absent', 5)", "hasattr(o, 'absent')"],
    "__setattr__": ["o.absent = 1", "setattr(o, 'absent', 1)"],
    "__delattr__": ["del o.absent", "delattr(o, 'absent')"],
    "__enter__": ["with o as got: got"],
    "__exit__": ["with o: 1", "with o: raise ValueError('inside')"],
    "__init__": ["type(o)()"],
    "__new__": ["type(o)()"],
    "__instancecheck__": ["isinstance(1, o)"],
    "__length_hint__": ["operator.length_hint(o)", "operator.length_hint(o, 3)"],
    "__fspath__": ["os.fspath(o)"],
    "__missing__": ["DictOf(o)['absent']"],
    "__dir__": ["dir(o)"],
    "__sizeof__": ["o.__sizeof__()"],
}
for _sign, _name in zip(NUMBERS, NAMES):
    if _name not in ("add", "mod", "pow"):
        LIKE_MANY |= {f"__{kind}{_name}__" for kind in ("", "r", "i")}
    USES[f"__{_name}__"] = [f"o {_sign} 1", f"1 {_sign} o", f"o {_sign}= 1"]
    USES[f"__r{_name}__"] = [f"1 {_sign} o", f"o {_sign} 1", f"'a' {_sign} o", f"[1] {_sign} o"]
    USES[f"__i{_name}__"] = [f"o {_sign}= 1", f"o {_sign} 1"]

HEAD = """
import cmath, math, operator, os
class Integer(int): pass
class Text(str): pass
class Float(float): pass
class Other: pass
def f_star(*args): return len(args)
class DictOf(dict):
    def __init__(self, o): self.o = o
    def __missing__(self, key): return type(self.o).__missing__(self.o, key)
"""
STATEMENTS = ("a, b = ", "del ", "with ", "o[0] = ", "o.absent = ")


def is_statement(use):
    return use.startswith(STATEMENTS) or any(f" {sign}= 1" in use for sign in NUMBERS if sign)


def program(method, answers):
    made, body = [HEAD], ["def f(t):", "    out = []"]
    for answer in answers:
        static = "    @staticmethod\n" if method == "__new__" else ""
        made += [
            f"class C_{answer}:\n{static}    def {method}(self, *args): {ANSWERS[answer]}",
            f"o_{answer} = object.__new__(C_{answer})",
        ]
        for use in USES[method]:
            body += ["    try:", f"        o = o_{answer}"]
            if is_statement(use):
                body += [f"        {use}", "        found = 'done'"]
                if "= 1" in use and not use.startswith("o"):
                    body += ["        found = o"]
            else:
                body += [f"        found = {use}"]
            body += [
                f"        out.append(({answer!r}, {use!r}, 'answers', found))",
                "    except BaseException as error:",
                f"        out.append(({answer!r}, {use!r}, 'raises', type(error), str(error)))",
            ]
    text = "\n".join([*made, *body, "    return t + 1, out", ""])
    path = f"/special/{method}_{len(answers)}_{answers[0]}.py"
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    namespace = {"__name__": "program"}
    exec(compile(text, path, "exec"), namespace)
    return namespace["f"]


def plain(value):
    """What two runs have in common of a value."""
    kind = type(value).__name__
    if issubclass(type(value), list | tuple):  # the value itself may say that it is of any class
        return kind, [plain(item) for item in value]
    if issubclass(type(value), int | float | complex | str | bytes | type(None) | type):
        return kind, repr(value)
    if issubclass(type(value), set | dict):
        return kind, len(value)
    if hasattr(type(value), "__next__") and type(value).__module__ == "builtins":
        return "iterator", [plain(item) for item in itertools.islice(value, 5)]
    return kind


def differences(method, answers):
    f = program(method, answers)
    compiled = optimize("eager", raise_internal_errors=True)(f)
    want = f(torch.ones(2))[1]
    got = compiled(torch.ones(2))[1]
    assert not compiler_of(compiled).records.faults
    assert len(want) == len(got)
    return [(a, b) for a, b in zip(want, got) if [plain(x) for x in a] != [plain(x) for x in b]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", USES)
def test_a_special_method_may_answer_anything(method):
    assert not differences(method, FEW if method in LIKE_MANY else list(ANSWERS))


if __name__ == "__main__":  # one answer at a time, to see what a difference comes from
    import sys

    for method in sys.argv[1:] or USES:
        for answer in ANSWERS:
            try:
                found = differences(method, [answer])
            except Exception as error:
                found = [(type(error), str(error)[:300])]
            for each in found:
                print(method, each, flush=True)


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "//", "%", "**", "@", "<<", "&", "|", "^"])
def test_two_objects_of_one_class_are_asked_once(backend, symbol):
    """A reflected method is for another class's operand, and a subclass's goes first."""
    _, own, reflected = OPERATORS[symbol]
    answers = {own: lambda self, other: NotImplemented, reflected: lambda self, other: "reflected"}
    first = type("First", (), dict(answers))
    classes = (first, type("Second", (), dict(answers)), type("Under", (first,), dict(answers)))
    fn = eval(f"lambda x, a, b: (x + 1, a {symbol} b)")
    for left, right in itertools.product(classes, repeat=2):
        a, b = left(), right()
        told = []
        for run in (fn, optimize(backend)(fn)):
            try:
                told.append(run(torch.ones(1), a, b)[1])
            except TypeError as error:
                told.append(str(error))
        assert told[0] == told[1], (left, right)
