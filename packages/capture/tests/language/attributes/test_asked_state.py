"""What captured code asks of the program's state, changed between the calls: every way of asking
with every kind of change, against eager. A change that is not noticed is a wrong answer."""

import abc
import builtins
import collections.abc
import os
import random
import sys
import types
import warnings

import pytest
import torch


class Asked:
    """A fresh world for each program: what is asked, and what can be changed."""

    def __init__(self):
        class Meta(type):
            answer = True

            def __instancecheck__(cls, instance):
                return cls.answer

            def __subclasscheck__(cls, kind):
                return cls.answer

        class Base:
            c = 1.0

        class Other:
            pass

        class Kind(Base):
            own = 2.0

        class Judged(metaclass=Meta):
            pass

        class Abstract(abc.ABC):
            @abc.abstractmethod
            def method(self): ...

        class Tensor(torch.Tensor):
            pass

        self.Meta, self.Base, self.Other, self.Kind = Meta, Base, Other, Kind
        self.Judged, self.Abstract, self.Tensor = Judged, Abstract, Tensor
        self.table = {"a": 1.0, "b": 2.0}
        self.proxy = types.MappingProxyType(self.table)
        self.names = vars(Kind)
        self.thing = Kind()
        self.special = torch.arange(3.0).as_subclass(Tensor)
        self.module = types.ModuleType("asked_state")
        self.module.value = 1.0
        sys.modules["asked_state"] = self.module


def imported(w):
    import asked_state

    return asked_state.value


def imported_from(w):
    from asked_state import value

    return value


NUMBER, DIGITS = 10**700, "1" * 700
TEXTS = {
    "str": lambda w: str(NUMBER)[:3],
    "repr": lambda w: repr(NUMBER)[:3],
    "ascii": lambda w: ascii(NUMBER)[:3],
    "format": lambda w: format(NUMBER, ",")[:3],
    "f-string": lambda w: f"{NUMBER}"[:3],
    "f-string of repr": lambda w: f"{NUMBER!r:.3}",
    "str.format": lambda w: "{:d}".format(NUMBER)[:3],  # noqa: UP032
    "str.format by name": lambda w: "{n!s:.3}".format(n=NUMBER),  # noqa: UP032
    "%": lambda w: ("%d" % NUMBER)[:3],  # noqa: UP031
    "% of a tuple": lambda w: "%.3s" % (NUMBER,),  # noqa: UP031
    "method": lambda w: NUMBER.__str__()[:3],
    "of a list": lambda w: str([NUMBER])[:3],
    "of a dict": lambda w: f"{ {'a': NUMBER} }"[:3],
    "int": lambda w: int(DIGITS) % 7,
    "int of bytes": lambda w: int(DIGITS.encode()) % 7,
    "int by base": lambda w: int(DIGITS, 10) % 7,
    "hexadecimal": lambda w: (hex(NUMBER)[:3], f"{NUMBER:x}"[:3]),
}  # fmt: skip

WAYS = {
    "digits": TEXTS,
    "class": {
        "__dict__[]": lambda w: w.Kind.__dict__["own"],
        "vars[]": lambda w: vars(w.Kind)["own"],
        "vars.get": lambda w: vars(w.Kind).get("own", 0.5),
        "vars.get of a new name": lambda w: vars(w.Kind).get("fresh", 0.5),
        "in vars": lambda w: ("own" in vars(w.Kind), "fresh" in w.Kind.__dict__),
        "of the base": lambda w: ("c" in vars(w.Kind), "c" in vars(w.Base)),
        "len of vars": lambda w: len(vars(w.Kind)),
        "names": lambda w: [name for name in vars(w.Kind) if not name.startswith("_")],
        "keys": lambda w: sorted(w.Kind.__dict__.keys()),
        "values": lambda w: [v for v in vars(w.Kind).values() if isinstance(v, float)],
        "items": lambda w: [(n, v) for n, v in vars(w.Kind).items() if isinstance(v, float)],
        "proxy[]": lambda w: w.names["own"],
        "in proxy": lambda w: ("own" in w.names, "fresh" in w.names),
        "attribute": lambda w: w.Kind.own,
        "inherited": lambda w: w.Kind.c,
        "of an instance": lambda w: (w.thing.c, getattr(w.thing, "fresh", None)),
        "mro": lambda w: len(w.Kind.__mro__),
        "mro()": lambda w: len(w.Kind.mro()),
        "bases": lambda w: [kind.__name__ for kind in w.Kind.__bases__],
        "base": lambda w: w.Kind.__base__ is w.Base,
        "subclasses": lambda w: len(w.Base.__subclasses__()),
        "name": lambda w: (w.Kind.__name__, w.Kind.__qualname__, w.Kind.__module__, w.Kind.__doc__),
        "repr": lambda w: (repr(w.Kind), str(w.Kind), f"{w.Kind}"),
        "isinstance": lambda w: (isinstance(w.thing, w.Other), isinstance(w.thing, w.Base)),
        "issubclass": lambda w: (issubclass(w.Kind, w.Other), issubclass(w.Kind, w.Base)),
    },
    "checks": {
        "isinstance": lambda w: isinstance(w.thing, w.Judged),
        "isinstance of a number": lambda w: isinstance(3, w.Judged),
        "isinstance of a tensor": lambda w: isinstance(w.special, w.Judged),
        "isinstance of several": lambda w: isinstance(w.thing, (int, w.Judged)),
        "issubclass": lambda w: issubclass(w.Kind, w.Judged),
        "abstract": lambda w: isinstance(w.thing, w.Abstract),
        "abstract of a tensor": lambda w: isinstance(w.special, w.Abstract),
        "abstract class": lambda w: issubclass(w.Kind, w.Abstract),
        "collection": lambda w: isinstance(w.thing, collections.abc.Sequence),
        "collection by a method": lambda w: isinstance(w.thing, collections.abc.Hashable),
    },
    "mapping": {
        "[]": lambda w: w.proxy["a"],
        "get": lambda w: (w.proxy.get("a", 0.5), w.proxy.get("d", 0.5)),
        "in": lambda w: ("a" in w.proxy, "d" in w.proxy),
        "len": lambda w: len(w.proxy),
        "names": lambda w: list(w.proxy),
        "values": lambda w: sum(w.proxy.values()),
        "items": lambda w: sorted(w.proxy.items()),
        "copy": lambda w: w.proxy.copy(),
        "==": lambda w: w.proxy == {"a": 1.0, "b": 2.0},
        "|": lambda w: w.proxy | {"e": 3.0},
    },
    "tensor": {
        "method": lambda w: w.special.sigmoid(),
        "attribute": lambda w: w.special.ndim,
        "operator": lambda w: w.special + 1,
        "length": lambda w: len(w.special),
    },
    "process": {
        "built-in": lambda w: oct(9),
        "added to the built-ins": lambda w: asked_state_number,  # noqa: F821
        "import": imported,
        "from import": imported_from,
        "sys.modules[]": lambda w: sys.modules["asked_state"].value,
        "recursion limit": lambda w: sys.getrecursionlimit(),
        "switch interval": lambda w: sys.getswitchinterval(),
        "flags": lambda w: sys.flags.optimize,
        "environ[]": lambda w: os.environ["FLAMBEAU_ASKED"],
        "environ.get": lambda w: os.environ.get("FLAMBEAU_ASKED"),
        "getenv": lambda w: os.getenv("FLAMBEAU_ASKED", "none"),
        "in environ": lambda w: "FLAMBEAU_ASKED" in os.environ,
        "filters": lambda w: len(warnings.filters),
        "path": lambda w: sys.path[-1],
        "arguments": lambda w: len(sys.argv),
        "default dtype": lambda w: str(torch.get_default_dtype()),
        "threads": lambda w: torch.get_num_threads(),
        "precision": lambda w: torch.get_float32_matmul_precision(),
        "grad mode": lambda w: torch.is_grad_enabled(),
    },
}  # fmt: skip

CHANGES = {
    "digits": {
        "limit": lambda w: sys.set_int_max_str_digits(640),
        "no limit": lambda w: sys.set_int_max_str_digits(0),
        "another limit": lambda w: sys.set_int_max_str_digits(699),
    },
    "class": {
        "value": lambda w: setattr(w.Kind, "own", 7.0),
        "new name": lambda w: setattr(w.Kind, "fresh", 3.0),
        "name gone": lambda w: delattr(w.Kind, "own"),
        "base's value": lambda w: setattr(w.Base, "c", 8.0),
        "base's new name": lambda w: setattr(w.Base, "fresh", 9.0),
        "bases": lambda w: setattr(w.Kind, "__bases__", (w.Base, w.Other)),
        "bases in another order": lambda w: setattr(w.Kind, "__bases__", (w.Other, w.Base)),
        "subclass": lambda w: setattr(w, "kept", type("Later", (w.Base,), {})),
        "what it is called": lambda w: setattr(w.Kind, "__qualname__", "Renamed"),
        "module": lambda w: setattr(w.Kind, "__module__", "elsewhere"),
        "documentation": lambda w: setattr(w.Kind, "__doc__", "a text"),
    },
    "checks": {
        "what the metaclass reads": lambda w: setattr(w.Meta, "answer", False),
        "instance check": lambda w: setattr(w.Meta, "__instancecheck__", lambda k, o: False),
        "subclass check": lambda w: setattr(w.Meta, "__subclasscheck__", lambda k, o: False),
        "registered": lambda w: w.Abstract.register(w.Base),
        "registered tensor": lambda w: w.Abstract.register(w.Tensor),
        "registered collection": lambda w: collections.abc.Sequence.register(w.Kind),
        "method gone": lambda w: setattr(w.Kind, "__hash__", None),
    },
    "mapping": {
        "value": lambda w: w.table.update(a=5.0),
        "new key": lambda w: w.table.update(d=5.0),
        "key gone": lambda w: w.table.pop("b"),
        "another mapping": lambda w: setattr(w, "proxy", types.MappingProxyType({"a": 0.25})),
    },
    "tensor": {
        "method": lambda w: setattr(w.Tensor, "sigmoid", lambda self: 7),
        "attribute": lambda w: setattr(w.Tensor, "ndim", 17),
        "operator": lambda w: setattr(w.Tensor, "__add__", lambda self, other: 8),
        "length": lambda w: setattr(w.Tensor, "__len__", lambda self: 9),
    },
    "process": {
        "built-in": lambda w: setattr(builtins, "oct", lambda of: 17),
        "added to the built-ins": lambda w: setattr(builtins, "asked_state_number", 2.0),
        "gone from the built-ins": lambda w: delattr(builtins, "asked_state_number"),
        "module": lambda w: sys.modules.update(asked_state=types.SimpleNamespace(value=5.0)),
        "value of the module": lambda w: setattr(w.module, "value", 6.0),
        "recursion limit": lambda w: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
        "switch interval": lambda w: sys.setswitchinterval(0.25),
        "variable": lambda w: os.environ.update(FLAMBEAU_ASKED="changed"),
        "no variable": lambda w: os.environ.pop("FLAMBEAU_ASKED"),
        "filter": lambda w: warnings.simplefilter("ignore", BytesWarning),
        "filters": lambda w: setattr(warnings, "filters", []),
        "path": lambda w: setattr(sys, "path", [*sys.path, "elsewhere"]),
        "arguments": lambda w: setattr(sys, "argv", ["one", "two", "three"]),
        "default dtype": lambda w: torch.set_default_dtype(torch.float64),
        "threads": lambda w: torch.set_num_threads(torch.get_num_threads() + 1),
        "precision": lambda w: torch.set_float32_matmul_precision("medium"),
        "grad mode": lambda w: torch.set_grad_enabled(False),
    },
}  # fmt: skip


@pytest.fixture
def process(monkeypatch):
    """Sets back what a program changes of the process, whatever it was."""
    limit, interval = sys.getrecursionlimit(), sys.getswitchinterval()
    digits = sys.get_int_max_str_digits()
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    places = [(builtins, "oct"), (sys, "path"), (sys, "argv"), (warnings, "filters")]
    before = [(place, name, getattr(place, name)) for place, name in places]

    def set_back():
        for place, name, value in before:
            setattr(place, name, value)
        builtins.asked_state_number = 1.0
        os.environ["FLAMBEAU_ASKED"] = "first"
        sys.setrecursionlimit(limit)
        sys.setswitchinterval(interval)
        sys.set_int_max_str_digits(digits)
        torch.set_num_threads(threads)
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision(precision)
        torch.set_grad_enabled(True)

    set_back()
    yield set_back
    set_back()
    del builtins.asked_state_number, os.environ["FLAMBEAU_ASKED"]
    sys.modules.pop("asked_state", None)


def outcome(fn, *args):
    try:
        return repr(fn(*args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("subject", "way"), [(subject, way) for subject in WAYS for way in WAYS[subject]]
)
def test_a_change_is_noticed(capture, process, subject, way):
    """One program, asked before and after each change, the changes in an order of its own."""
    ask, world = WAYS[subject][way], Asked()

    def fn(x, world):
        return x + 1, ask(world)

    x = torch.arange(3.0)
    compiled = capture(fn, cache_size_limit=40)
    changes = list(CHANGES[subject].items())
    random.Random(way).shuffle(changes)
    for change, make in [("nothing", lambda world: None), *changes]:
        make(world)
        expected = outcome(fn, x, world)
        assert [outcome(compiled, x, world) for _ in range(2)] == [expected] * 2, change
