"""What built-in objects have, and what only their classes have."""

import collections
import warnings

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


MADE = (
    "[1]", "(1,)", "{'a': 1}", "{1}", "frozenset({1})", "'a'", "1", "range(3)", "slice(1)",
    "{}.keys()", "{}.items()", "{}.values()", "collections.deque()", "collections.OrderedDict()",
    "collections.defaultdict(int)", "(lambda: 1)",
)  # fmt: skip
#: what is no attribute of an object for being one of its class, and what is
OF_CLASSES = sorted({*dir(type), *dir(object)} - {"__weakref__", "__class__", "__getattribute__"})


@pytest.mark.parametrize("made", MADE)
def test_what_a_class_has_of_its_metaclass_its_instances_have_not(made, capture):
    asked = ", ".join(f"hasattr(o, {name!r})" for name in OF_CLASSES)
    text = f"def f(t):\n    o = {made}\n    return t + 1, [{asked}, o.__hash__ is None, o.__doc__]"
    space = {"collections": collections}
    exec(text, space)
    t = torch.ones(2)
    assert capture(space["f"])(t)[1] == space["f"](t)[1]


EMPTY = ("()", "tuple([])", "given", "given[1:]", "(*[],)")


@pytest.mark.parametrize("given", [(), (1,)], ids=("empty", "one"))
def test_there_is_one_empty_tuple(given, capture):
    pairs = ", ".join(f"{a} is {b}" for a in EMPTY for b in EMPTY if a != b)
    text = f"def f(t, given, other):\n    return t + 1, [{pairs}, given is other]"
    space = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(text, space)
    t, compiled = torch.ones(2), capture(space["f"])
    for other in (given, tuple(iter(given)), ()):
        assert compiled(t, given, other)[1] == space["f"](t, given, other)[1]
