"""Operators between a tensor and an object of the program: a tensor's operator leaves to the object
all that is no number, and what neither side knows is refused in Python's words, of `+` and of `+=`.
Generated: every operator, both sides, what the object derives from, what its methods answer.
"""

import builtins
import collections
import enum
import itertools
import math
import operator

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.builtins.operations.operator_tables import OPERATORS

BASES = {"object": (), "tuple": ((1, 2),), "str": ("ab",), "int": (3,), "float": (1.5,)}
ANSWERS = ("None", "NotImplemented", "self", "7", "other")
SYMBOLS = [symbol for symbol in OPERATORS if symbol != "getitem"]


def function(base, symbol, answer, log):
    _, name, reflected = OPERATORS[symbol]
    methods = [] if answer is None else [name, *([reflected] if reflected != name else [])]
    defined = "".join(
        f"    def {m}(self, other):\n        log.append('{m}')\n        return {answer}\n"
        for m in methods
    )
    hashed = "    __hash__ = None\n"
    uses = [f"r = t {symbol} o", f"r = o {symbol} t", f"r = o {symbol} o2"]
    if symbol not in ("==", "!=", "<", "<=", ">", ">="):
        uses += [f"r = o\nr {symbol}= t", f"r = t + 0\nr {symbol}= o", f"r = [1]\nr {symbol}= o"]
    lines = [f"class C({base}):\n{defined}{hashed}", f"given = {BASES[base]!r}"]
    lines.append("def f(t):\n    t = t + 1\n    o, o2, R = C(*given), C(*given), []")
    for use in uses:
        inner = use.replace("\n", "\n        ")
        lines.append(
            f"    try:\n        {inner}\n        R.append(r)\n"
            "    except Exception as error:\n"
            "        R.append((type(error).__name__, str(error)))"
        )
    lines.append("    return R")
    space = {"log": log}
    exec("\n".join(lines), space)
    return space["f"]


def shown(found):
    if isinstance(found, torch.Tensor):
        return found.tolist()
    return found if isinstance(found, tuple | list | bool) else repr(found).partition(" at ")[0]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "base, answer",
    [*itertools.product(BASES, (None, "NotImplemented")), *(("object", a) for a in ANSWERS)],
)
def test_each_operator(base, answer):
    t = torch.tensor([1, 2])
    for symbol in SYMBOLS:
        log = []
        f = function(base, symbol, answer, log)
        expected, heard = [shown(r) for r in f(t)], log[:]
        log.clear()
        ours = optimize("eager", raise_internal_errors=True)(f)(t)
        assert [shown(r) for r in ours] == expected, symbol
        assert log == heard, symbol


#: the built-in class that an operand's class derives from, and what makes its instances
HELD = {
    object: (), collections.deque: ([1],), list: ([1],), tuple: ([1],), str: ("ab",),
    bytes: (b"ab",), int: (3,), float: (1.5,), dict: ({1: 2},), set: ([1],), frozenset: ([1],),
}  # fmt: skip
PAIRED = ("+", "*", "-", "&", "|", "//", "<<", "@")


def operand_class(base, methods, log):
    """A class with methods that say that they were called; of `-name` it leaves it to others."""
    body = {}
    for name in methods:
        answer = 2 if name == "__index__" else NotImplemented if name[0] == "-" else name

        def method(self, *given, name=name, answer=answer):
            log.append(name)
            return answer

        body[name.removeprefix("-")] = method
    return type("C", (base,), body)


def outcomes(f, x, o, p):
    rows = f(x, o, p)
    return [(type(r).__name__, shown(sorted(r) if isinstance(r, set | frozenset) else r))
            for r in rows]  # fmt: skip


@pytest.mark.sweep(8)
@pytest.mark.parametrize("symbol", PAIRED)
@pytest.mark.parametrize("base", HELD, ids=lambda base: base.__name__)
def test_operands_of_classes_that_derive_from_built_in_ones(base, symbol):
    _, name, back = OPERATORS[symbol]
    space = {}
    tries = [f"    try: R.append({use})\n    except Exception as e: R.append(repr(e))\n"
             for use in (f"o {symbol} p", f"p {symbol} o")]  # fmt: skip
    exec(f"def f(x, o, p):\n    R = [x + 1]\n{''.join(tries)}    return R", space)
    log = []
    has = [[], [back], [name], ["-" + name], [name, back]]
    for methods in (*has, *([*each, "__index__"] for each in has[:4])):
        kind = operand_class(base, methods, log)
        over, plain = operand_class(kind, [back], log), operand_class(kind, [], log)
        others = [
            2, 1.5, True, [1], (1,), "s", collections.deque([3]), {3: 4}, {5}, kind(*HELD[base]),
            operand_class(int, [], log)(2), operand_class(list, [], log)([7]),
            operand_class(object, ["__index__"], log)(), over(*HELD[base]), plain(*HELD[base]),
        ]  # fmt: skip
        for other in others:
            given = torch.ones(1), kind(*HELD[base]), other
            log.clear()
            expected, heard = outcomes(space["f"], *given), log[:]
            log.clear()
            compiled = optimize("eager", raise_internal_errors=True)(space["f"])
            assert outcomes(compiled, *given) == expected, (methods, type(other).__mro__)
            assert log == heard, (methods, type(other).__mro__)


def test_an_index_of_the_program_is_a_tensors_to_take():
    class Place:
        def __index__(self):
            return 1

    def f(t, place):
        return t[place] + t[place:].sum() + t[0, place]

    t = torch.arange(6.0).view(2, 3)
    assert torch.equal(optimize("eager")(f)(t, Place()), f(t, Place()))


#: a call reads its arguments' ids, makes what has no order, or speaks to the world
ELSEWHERE = {"breakpoint", "compile", "eval", "exec", "exit", "frozenset", "globals", "hash",
             "help", "id", "input", "locals", "open", "print", "quit", "set", "super", "vars",
             "copyright", "credits", "license", "dir", "countOf", "indexOf"}  # fmt: skip
BUILT_IN = [
    *(name for name in dir(builtins) if name[0].islower() and name not in ELSEWHERE),
    *(
        f"operator.{name}"
        for name in dir(operator)
        if name[0] != "_" and name not in ("countOf", "indexOf")
    ),
    *(f"math.{name}" for name in ("trunc", "floor", "ceil", "sqrt", "log", "prod", "fsum", "gcd")),
]
GIVEN = ("x", "x, 2", "2, x", "x, 2, 3")
WRITTEN = (
    "x.__hash__() == hash(x)", "object.__hash__(x) == hash(x)", "reversed(x) * 2", "'%s' % x",
    "f'{x}'", "f'{x!r:>30}'", "x.__repr__()", "x.__str__()", "x.__sizeof__() > 0", "'ab' * x",
    "'__abs__' in x.__dir__()", "x.__format__('')", "list(zip(x, x))", "1 in x", "x == 'a'",
    "x.__eq__('a')", "(lambda y: y.__hash__() == hash(y))(x + 1)", "x < None", "(1,) + x",
    "x and 1", "not x",
)  # fmt: skip


def held(found):
    if isinstance(found, torch.Tensor):
        return str(found.dtype), tuple(found.shape), str(found.tolist())
    if isinstance(found, tuple | list):
        return type(found), [held(one) for one in found]
    if hasattr(found, "__next__"):
        return type(found), [held(one) for one in itertools.islice(found, 8)]
    return type(found), repr(found).partition(" at 0x")[0]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("data", [[1.0, 2.5, -3.0], 7], ids=str)
def test_each_built_in_function_of_a_tensor(data):
    calls = [f"{name}({given})" for name in BUILT_IN for given in GIVEN]
    wrong = {}
    for call in [*calls, *WRITTEN]:
        space = {"operator": operator, "math": math}
        exec(f"def f(x):\n    x = x + 1\n    return {call}", space)
        expected = answer(space["f"], data)
        found = answer(optimize("eager")(space["f"]), data)
        if found != expected:
            wrong[call] = expected, found
    assert wrong == {}


def answer(call, data):
    try:
        return held(call(torch.tensor(data)))
    except Exception as error:
        return type(error), str(error)


class Member(enum.Enum):
    A = 1


@pytest.mark.parametrize("symbol", SYMBOLS)
@pytest.mark.parametrize("turned", [False, True])
def test_a_member_of_an_enumeration_is_refused_in_pythons_words(symbol, turned):
    space = {"Member": Member}
    exec(
        f"def use(t, o):\n    return {'o' if turned else 't'} {symbol} {'t' if turned else 'o'}",
        space,
    )
    use = space["use"]

    def fn(t, o):
        try:
            return str(use(t, o))
        except TypeError as error:
            return str(error)

    compiled = optimize("eager")(fn)
    assert compiled(torch.ones(2), Member.A) == fn(torch.ones(2), Member.A)
