"""What built-in objects have, and what only their classes have."""

import collections

import pytest
import torch

THINGS = {
    "tuple": lambda t: (1, 2),
    "size": lambda t: t.shape,
    "result of max": lambda t: t.max(0),
    "list": lambda t: [],
    "dict": lambda t: {},
    "set": lambda t: set(),
    "frozenset": lambda t: frozenset(),
    "deque": lambda t: collections.deque(),
    "slice": lambda t: slice(1),
    "range": lambda t: range(3),
    "tensor": lambda t: t,
    "function": lambda t: lambda: 0,
    "class": lambda t: int,
    "text": lambda t: "a",
    "nothing": lambda t: None,
    "dtype": lambda t: torch.float32,
}
NAMES = (
    "_fields", "keys", "values", "append", "add", "real", "start", "shape", "numel", "index",
    "count", "__len__", "__iter__", "__getitem__", "__call__", "__name__", "__next__", "__dict__",
    "__module__", "__array__", "__float__", "__enter__", "__contains__", "__bool__", "__mro__",
)  # fmt: skip


@pytest.mark.parametrize("thing", THINGS)
def test_what_is_there(check, thing):
    make = THINGS[thing]

    def fn(t):
        one = make(t)
        return t + 1, [(name, hasattr(one, name)) for name in NAMES], callable(one)

    check(fn, torch.ones(2), calls=1)


def test_what_is_said_of_what_is_not_there(check):
    def fn(t):
        said = []
        for one in (t.shape, [], (), {}, collections.deque(), slice(1), t):
            try:
                said.append(one.__name__)
            except AttributeError as error:
                said.append(str(error))
        return t + 1, said

    check(fn, torch.ones(2), calls=1)


def test_a_number_or_a_function(check):
    """The habit that asks whether something can be called."""

    def fn(t, scale):
        return t * (scale(t) if callable(scale) else scale)

    for scale in (2, 2.5, torch.ones(2), torch.sin, len):
        check(fn, torch.ones(2), scale)
