"""What varies from call to call, wherever it is held and however it is used, comes to rest: the
answers are eager's, and after a bounded number of compilations nothing is compiled."""

import functools
import gc
import itertools
import warnings
import weakref

import numpy as np
import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of

CALLS, SETTLED = 16, 12
MOST = 9

VALUES = {
    "int": lambda turn: turn + 3,
    "negative int": lambda turn: 5 - turn,
    "large int": lambda turn: 2**40 + turn,
    "float": lambda turn: 0.5 + turn,
    "bool": lambda turn: turn % 2 == 0,
    "complex": lambda turn: complex(turn, 1),
    "str": lambda turn: f"s{turn}",
    "numpy int": lambda turn: np.int64(turn + 3),
    "numpy float": lambda turn: np.float32(turn + 0.5),
    "tensor": lambda turn: torch.ones(turn % 11 + 2),
    "tuple": lambda turn: tuple(range(turn + 1)),
    "list": lambda turn: list(range(turn + 1)),
    "dict": lambda turn: {f"k{each}": each for each in range(turn + 1)},
    "set": lambda turn: set(range(turn + 1)),
    "range": lambda turn: range(turn + 1),
    "slice": lambda turn: slice(0, turn % 3),
    "size": lambda turn: torch.Size([turn + 2, 3]),
    "None or not": lambda turn: None if turn % 2 else 4,
    "several kinds": lambda turn: [5, "a", None, 2.5][turn % 4],
    "function": lambda turn: lambda x: x + turn,
    "partial": lambda turn: functools.partial(torch.add, torch.ones(2) * turn),
    "module": lambda turn: torch.nn.Linear(2, 2).requires_grad_(False).eval(),
    "class": lambda turn: type("Made", (), {"k": turn}),
    "object": lambda turn: type("Made", (), {"k": turn})(),
    "dtype": lambda turn: [torch.float32, torch.float64, torch.float16][turn % 3],
}
NUMBERS = {"int", "negative int", "large int", "float", "bool", "numpy int", "numpy float"}
SIZED = {"str", "tuple", "list", "dict", "set", "range", "size"}
#: how the value v is used, and by which of them it can be
USES = {
    "return x + 1, v": set(VALUES),
    "box.kept = v\n    return x + 1": set(VALUES),
    "return x + 1 if v is None else x * 2": set(VALUES),
    "return x + isinstance(v, int)": set(VALUES),
    "return x + 1 if v else x - 1": set(VALUES) - {"tensor", "partial", "module"},
    "return x * v": NUMBERS | {"complex"},
    "return x + 1, v * 2 + 1, v // 2, v % 3": NUMBERS - {"bool"},
    "return (x.sum() > v) * x": NUMBERS - {"bool"},
    "return x + (v in {3, 9, 's'}), {2: 1, 7.0: 4}.get(v, 0), v in {6: 1}.keys()": NUMBERS,
    "return x * 0.9 ** v, 1.5 ** -v": NUMBERS - {"bool", "large int", "negative int"},
    "return x[v % 2] + 1": NUMBERS - {"float", "numpy float"},
    "return x * len(v)": SIZED,
    "for each in v: x = x + each\n    return x": {"tuple", "list", "set", "range", "size"},
    "return x + 1, v + v": {"str", "tuple", "list"} | NUMBERS,
    "return x + 1, str(v)": NUMBERS | {"str"},
    "return x[v]": {"slice"},
    "return x.to(v)": {"dtype"},
    "return v(x)": {"function", "partial", "module"},
    "return x * v.k": {"class", "object"},
    "return x.sum() + v.sum(), v.shape[0] * 2": {"tensor"},
    "box.count += 1\n    return x + box.count": {"int"},
    "print(end='')\n    return x + 1, v": {"int", "str", "tuple", "tensor", "object"},
}
#: where the program holds it: what the function reads first, and how it gets there
PLACES = {
    "argument": ("x, v", "pass"),
    "keyword": ("x, **given", "v = given['v']"),
    "attribute": ("x", "v = box.v"),
    "attribute of a module": ("x", "v = module.v"),
    "attribute of a class": ("x", "v = Box.v"),
    "global": ("x", "v = G"),
    "closure": ("x", "v = cell()"),
    "dict": ("x", "v = table['v']"),
    "list": ("x", "v = items[0]"),
    "self": ("self, x", "v = self.v"),
    "weak reference": ("x", "v = reference().v"),
    "method of a closure": ("x", "v = bound().__self__.v"),
}
OF_THE_BOX = ("attribute", "self", "weak reference", "method of a closure")


class World:
    """One program with its state."""

    def __init__(self, place, use):
        kind = type("Box", (), {"count": 0, "v": None, "kept": None})
        held = None

        def cell():
            return held

        def put(value):
            nonlocal held
            held = value

        self.put = put
        self.names = {
            "box": kind(), "Box": kind, "module": torch.nn.Module(), "table": {}, "items": [None],
            "cell": cell, "torch": torch,
        }  # fmt: skip
        self.place = place
        parameters, read = PLACES[place]
        exec(f"def f({parameters}):\n    {read}\n    {use}\n", self.names)
        self.f = self.names["f"]
        box = self.names["box"]
        self.names["reference"] = weakref.ref(box)
        self.names["bound"] = lambda: method
        method = self.f.__get__(box)
        if place == "self":
            self.f = method

    def call(self, v):
        names = self.names
        if self.place in ("argument", "keyword"):
            return self.f(torch.ones(2), v=v)
        holders = {"attribute of a module": "module"} | dict.fromkeys(OF_THE_BOX, "box")
        if self.place in holders:
            names[holders[self.place]].v = v
        names["Box"].v = v if self.place == "attribute of a class" else None
        names["G"], names["table"]["v"], names["items"][0] = v, v, v
        self.put(v)
        return self.f(torch.ones(2))


def shown(value):
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(shown, value))
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    return type(value).__name__, str(value).partition(" at 0x")[0]


def outcome(world, v):
    try:
        return shown(world.call(v)), shown(world.names["box"].kept)
    except Exception as error:
        return type(error)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("use", USES)
def test_it_comes_to_rest(backend, use):
    """Each kind of value in two of the places, another two for each use."""
    places = itertools.cycle(PLACES)
    for _ in range(list(USES).index(use)):
        next(places)
    for kind, place in zip(sorted(USES[use]) * 2, places):
        ours, theirs = World(place, use), World(place, use)
        ours.f = optimize(backend, raise_internal_errors=True, never_slower=False)(ours.f)
        compiler = compiler_of(ours.f)
        for turn in range(CALLS):
            v = VALUES[kind](turn)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                assert outcome(ours, v) == outcome(theirs, v), f"{kind}, {place}, call {turn}"
            if told:
                (text,) = [str(one.message) for one in told]
                assert "Try: " in text and "expected" in text, (kind, place)
            if turn == SETTLED:
                before = len(compiler.records.frames)  # not those that are told to run as they are
        assert len(compiler.records.frames) == before, (kind, place)
        assert len(backend) <= MOST, (kind, place)
        assert len(compiler.records.settled) <= 2, (kind, place)
        backend.clear()


#: what one graph more serves, whatever the value: it is left open, or not looked at
OPEN = {
    ("int", "return x * v"), ("float", "return x * v"), ("int", "return x[v % 2] + 1"),
    ("int", "return x + 1, v"), ("float", "return x + 1, v"), ("str", "return x + 1, v"),
    ("int", "box.count += 1\n    return x + box.count"), ("module", "return v(x)"),
    ("function", "return v(x)"), ("int", "return x + 1, v * 2 + 1, v // 2, v % 3"),
    ("float", "return x + 1, v * 2 + 1, v // 2, v % 3"),
    ("int", "print(end='')\n    return x + 1, v"),
    ("tensor", "return x.sum() + v.sum(), v.shape[0] * 2"),
    ("int", "return (x.sum() > v) * x"), ("float", "return (x.sum() > v) * x"),
    ("numpy int", "return x * v"), ("numpy float", "return x * v"),
    ("numpy int", "return x + 1, v"), ("numpy float", "return (x.sum() > v) * x"),
}  # fmt: skip


ENDING = {"module", "function", "class", "object", "partial"}


@pytest.mark.parametrize("kind", sorted(ENDING))
def test_what_ends_with_its_call_teaches(backend, kind):
    """No entry is left to compare with when the next call comes: what is at the place varies all
    the same, and a warning says how often it was compiled, of what, and what helps."""
    for use in (use for use in USES if kind in USES[use]):
        ours = World("argument", use)
        ours.f = optimize(backend, never_slower=False)(ours.f)
        compiler = compiler_of(ours.f)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for turn in range(CALLS):
                v = VALUES[kind](turn)
                outcome(ours, v)
                ours.names["box"].kept = None
                del v
                gc.collect(1)  # a class is in cycles of its own
        recompiled = compiler.cache.counters()["conversions"] - 1
        if "print" not in use:  # which is in two frames, each compiled for the first time
            assert len(compiler.records.recompiles) == recompiled, use
        for each in told:
            assert f"was compiled {compiler.cache.limit} times" in str(each.message), use
            assert "Try: " in str(each.message), use
        if (kind, use) in OPEN:
            assert recompiled <= 2 and not told, use


@pytest.mark.sweep(3)
@pytest.mark.parametrize("place", PLACES)
def test_what_can_be_open_is(backend, place):
    for kind, use in sorted(OPEN):
        if (kind, place) == ("function", "attribute of a class"):
            continue  # it is a method there, and guarded as one
        ours = World(place, use)
        ours.f = optimize(backend, never_slower=False)(ours.f)
        for turn in range(CALLS):
            ours.call(VALUES[kind](turn))
        assert compiler_of(ours.f).cache.counters()["limit_reached"] == 0, (kind, use)
        assert len(backend) <= 3, (kind, use)
        backend.clear()
