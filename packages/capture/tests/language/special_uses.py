"""Python's special methods, each with the operators, built-in functions and statements that ask for
it. In: nothing. Out: `USES`, by the method's name; `is_statement`, whether a use has no value;
`plain`, what two runs have in common of a value. Invariant: the object that is asked is called `o`.
"""

import itertools

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

STATEMENTS = ("a, b = ", "del ", "with ", "o[0] = ", "o.absent = ")


def is_statement(use):
    return use.startswith(STATEMENTS) or any(f" {sign}= 1" in use for sign in NUMBERS if sign)


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
