"""Objects whose classes run code of their own wherever capture might look at them: containers,
enums, numbers and texts with a special method that raises. Capture looks at what they hold without
it, and runs it where the program does. Generated: every base, every method."""

import collections
import enum
import functools
import itertools
import random

import pytest
import torch
from flambeau_capture import allow_in_graph, optimize

BASES = {
    "tuple": (tuple, ((1, 2),)),
    "list": (list, ([1, 2],)),
    "dict": (dict, ({"a": 1},)),
    "set": (set, ({1, 2},)),
    "frozenset": (frozenset, ({1, 2},)),
    "int": (int, (3,)),
    "float": (float, (2.5,)),
    "str": (str, ("ab",)),
    "bytes": (bytes, (b"ab",)),
    "object": (object, ()),
    "module": (torch.nn.Module, ()),
}
METHODS = (
    "__len__ __iter__ __getitem__ __contains__ __eq__ __ne__ __hash__ __bool__ __repr__ __str__ "
    "__format__ __add__ __lt__ __call__ __int__ __float__ __index__ __getattr__ __enter__ __keys__"
).split()
USES = {
    "passed on": lambda t, o: (t + 1, type(o).__name__),
    "length": lambda t, o: t + len(o),
    "truth": lambda t, o: t + 1 if o else t - 1,
    "items": lambda t, o: [t + 1, *o],
    "text": lambda t, o: (t + 1, str(o), repr(o)),
    "equal": lambda t, o: (t + 1, o == 3, o != 3),
    "in": lambda t, o: (t + 1, 1 in o),
    "key": lambda t, o: (t + 1, {o: 1}[o]),
    "first": lambda t, o: t + o[0],
    "sum": lambda t, o: t + (o + 1),
    "number": lambda t, o: t + int(o) + float(o),
    "called": lambda t, o: t + o(t),
    "kind": lambda t, o: (t + 1, isinstance(o, int | tuple | list | dict), callable(o)),
    "attribute": lambda t, o: (t + 1, hasattr(o, "absent")),
}


def outcome(fn, *args):
    try:
        found = fn(*args)
    except Exception as error:
        return type(error), str(error)
    return repr(found) if not isinstance(found, torch.Tensor) else found.tolist()


@pytest.mark.sweep(5)
@pytest.mark.parametrize("base", BASES)
def test_a_special_method_that_raises(base, capture):
    kind, args = BASES[base]
    every = list(itertools.product(METHODS, USES.items()))
    first = list(BASES).index(base) % 3
    for method, (name, use) in every[first::3]:  # 14 uses: each method meets all over the bases

        def refuse(self, *given, method=method):
            raise NotImplementedError(f"own {method}")

        made = type("Own", (kind,), {method: refuse, "__module__": "program"})(*args)
        want = outcome(use, torch.ones(2), made)
        if "object at 0x" in str(want):
            continue
        assert outcome(capture(use), torch.ones(2), made) == want, (method, name)


def test_a_member_of_an_enum_as_a_key_where_a_graph_ends(capture):
    from flambeau_capture import graph_break

    class Key(enum.Enum):
        ONE = 10

        def __str__(self):
            return self.value

    def fn(x):
        found = {Key.ONE: x}
        graph_break()
        return found[Key.ONE] + 1

    assert torch.equal(capture(fn)(torch.ones(1)), torch.full((1,), 2.0))


def test_super_in_a_function_without_arguments(capture):
    class Owner:
        @staticmethod
        def made():
            return super().__init__()

    with pytest.raises(RuntimeError, match="no arguments"):
        capture(lambda o: o.made())(Owner())


@pytest.mark.parametrize("name", ["random", "getrandbits", "seed", "__hash__"])
def test_a_method_made_in_c_that_the_object_has_replaced(name, capture):
    arguments = (7,) if name in ("getrandbits", "seed") else ()

    def made():
        own = random.Random(1)
        original = getattr(own, name)
        own.__dict__[name] = lambda *args: original(*args)
        return own, original

    def fn(x, own, original):
        return x + 1, getattr(own, name)(*arguments), original(*arguments)

    _, *want = fn(torch.ones(1), *made())
    _, *got = capture(fn)(torch.ones(1), *made())
    assert name == "__hash__" or got == want


def test_a_method_made_in_c_that_a_class_has_replaced(capture):
    class Own(random.Random):
        def random(self):
            return super().random() + 1

    def made():
        own = Own(1)
        return own, super(Own, own).random

    def fn(x, own, original):
        return x + 1, own.random(), original()

    _, *want = fn(torch.ones(1), *made())
    _, *got = capture(fn)(torch.ones(1), *made())
    assert got == want


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 3


@pytest.mark.parametrize("allowed", [Twice, torch.sub, torch.Tensor.sin, len, torch.ops.aten.sin])
def test_what_may_be_allowed_in_a_graph(allowed):
    from flambeau_capture.values.functions.call_rules import RULES

    before = dict(RULES)
    try:
        assert allow_in_graph(allowed) is allowed
        compiled = optimize("eager", nopython=True)(lambda x: Twice.apply(x) + torch.sub(x, 1))
        x = torch.ones(2, requires_grad=True)
        out = compiled(x)
        out.sum().backward()
        assert torch.equal(out.detach(), torch.full((2,), 2.0))
        assert torch.equal(x.grad, torch.full((2,), 4.0))
    finally:
        RULES.clear()
        RULES.update(before)
    with pytest.raises(TypeError, match="takes a function"):
        allow_in_graph(3)


class _HasKeys:
    def __init__(self, how=None):
        if how == "own":
            self.keys = lambda: ["a"]

    def __getitem__(self, key):
        if isinstance(key, int) and key > 2:  # where it is read as a sequence of pairs
            raise IndexError
        return (key, type(self).__name__)


class _Answers(_HasKeys):
    def __getattr__(self, name):
        if name == "keys":
            return lambda: ["x", "y"]
        raise AttributeError(name)


class _OfClass(type):
    def __getitem__(cls, key):
        return (key, cls.__name__)  # a class is no sequence


class _Mapping(metaclass=_OfClass):
    keys = staticmethod(lambda: ["k"])


class _Raises(_HasKeys):
    @property
    def keys(self):
        raise KeyError("asked")


GIVEN = {
    "a class with keys": dict, "a class without": int, "a class that is a mapping": _Mapping,
    "of its own": _HasKeys("own"), "without": _HasKeys(), "answers": _Answers(),
    "raises": _Raises(),
}  # fmt: skip
FILLED = {
    "dict": lambda given: dict(given),
    "update": lambda given: {"b": 1}.update(given),
    "star": lambda given: {**given},
    "call": lambda given: dict(**given),
    "or": lambda given: {"b": 1}.__ior__(given),
    "OrderedDict": lambda given: collections.OrderedDict(given),
    "ordered update": lambda given: collections.OrderedDict(b=1).update(given),
    "defaultdict": lambda given: collections.defaultdict(int, given),
}


@pytest.mark.parametrize("filled", FILLED)
@pytest.mark.parametrize("given", GIVEN)
def test_a_mapping_is_what_has_keys(given, filled, capture):
    def f(t, given, fill):
        try:
            return t + 1, fill(given)
        except Exception as error:
            return t + 1, type(error), str(error)

    case = GIVEN[given], FILLED[filled]
    assert capture(f)(torch.ones(1), *case)[1:] == f(torch.ones(1), *case)[1:]


WRAPPED = {
    "an object": _HasKeys("own"), "a mapping": collections.ChainMap({}), "in C": len,
    "a class": _HasKeys, "a partial": functools.partial(len), "a function": random.seed,
}  # fmt: skip


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapper_has_what_it_wraps_has(name, capture):
    def f(t, wrapped):
        return t + 1, functools.update_wrapper(lambda: 3, wrapped)

    ours, theirs = (run(torch.ones(1), WRAPPED[name])[1] for run in (capture(f), f))
    for part in (*functools.WRAPPER_ASSIGNMENTS, "__dict__"):
        assert getattr(ours, part) == getattr(theirs, part), part
