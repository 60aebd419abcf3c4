"""Methods of a base class, called by their name there on an instance of a class that has its own.

Every special method of `object`, `dict`, `int`, `str` and `tuple` that a class derived from it, in
C or in Python, has another of is asked of an instance, made in the frame and outside: the answer
is the base class's, or a named break.
"""

import collections
import enum
import types

import pytest
import torch

Pair = collections.namedtuple("Pair", "a b")


class Member(enum.IntEnum):
    FIVE = 5


class Word(enum.StrEnum):
    LONG = "long"


class Same:
    def __eq__(self, other):
        return True

    def __repr__(self):
        return "same"

    __hash__ = object.__hash__


MAKERS = {
    "OrderedDict": lambda: collections.OrderedDict(a=1, b=2),
    "defaultdict": lambda: collections.defaultdict(int, a=1),
    "Counter": lambda: collections.Counter("aab"),
    "dict": lambda: {"a": 1},
    "bool": lambda: True,
    "int": lambda: 3,
    "str": lambda: "word",
    "Member": lambda: Member.FIVE,
    "Word": lambda: Word.LONG,
    "Pair": lambda: Pair(1, 2),
    "Size": lambda: torch.Size((3, 4)),
    "list": lambda: [1, 2],
    "set": lambda: {1},
    "tensor": lambda: torch.ones(2),
    "class": lambda: int,
    "Same": Same,
}
BASES = (object, dict, int, str, tuple)
ASKED = (
    "__eq__", "__ne__", "__repr__", "__str__", "__len__", "__or__", "__and__", "__xor__", "__add__",
    "__mul__", "__iter__", "__contains__", "__getitem__", "__reversed__", "copy", "keys", "pop",
    "setdefault", "get",
)  # fmt: skip
UNARY = ("__repr__", "__str__", "__len__", "__iter__", "__reversed__", "copy", "keys")


def cases():
    for name, make in MAKERS.items():
        for base in BASES:
            for asked in ASKED:
                if isinstance(make(), base) and type(make()) is not base and asked in vars(base):
                    yield pytest.param(make, base, asked, id=f"{base.__name__}.{asked}-{name}")


def described(value):
    """What can be compared of an answer: classes and items, not where it lies in memory, nor which
    iterator over a copy of the items it is."""
    if isinstance(value, collections.abc.Iterator):
        return list(value)
    text = repr(value)
    return type(value).__name__, text.partition(" at 0x")[0] if "object at" in text else text


@pytest.mark.parametrize(("make", "base", "asked"), cases())
def test_the_method_called_is_the_one_that_answers(capture, make, base, asked):
    method = getattr(base, asked)
    key = 0 if base is tuple else "a"
    others = [()] if asked in UNARY else [(make(),), (key,), (2,)]

    def step(x, value, other):
        made = make() if value is None else value
        try:
            return x + 1, method(made, *other)
        except (TypeError, LookupError, RuntimeError) as error:
            return x, (type(error), len(made) if isinstance(made, dict) else None)

    assert not isinstance(method, types.FunctionType)
    for other in others:
        for existing in (False, True):
            given = [make() if existing else None for _ in range(2)]
            wanted = described(step(torch.ones(2), given[0], other)[1])
            assert described(capture(step)(torch.ones(2), given[1], other)[1]) == wanted
