"""Operators between a tensor and an object of the program: a tensor's operator leaves to the object
all that is no number, and what neither side knows is refused in Python's words, of `+` and of `+=`.
Generated: every operator, both sides, what the object derives from, what its methods answer.
"""

import itertools

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.builtins.operator_tables import OPERATORS

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


def test_an_index_of_the_program_is_a_tensors_to_take():
    class Place:
        def __index__(self):
            return 1

    def f(t, place):
        return t[place] + t[place:].sum() + t[0, place]

    t = torch.arange(6.0).view(2, 3)
    assert torch.equal(optimize("eager")(f)(t, Place()), f(t, Place()))
