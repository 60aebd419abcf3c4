"""Habits that read functions, classes and special methods; see `habit`."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
import operator
import os
import random
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from habit import Case, habit, x


def _adder(amount: float) -> FunctionType:
    def add(t: Any, more: float = 1.0, *, scale: float = 2.0) -> Any:
        return t * scale + amount + more

    return add


def _multiplier(amount: float) -> FunctionType:
    def multiply(t: Any, more: float = 3.0, *, scale: float = 1.0) -> Any:
        return t * amount * more - scale

    return multiply


@habit
def parts_of_a_function(pick: random.Random) -> Case:
    helper = _adder(0.5)

    def fn(t: Any) -> Any:
        return helper(t) + helper(t, 0.25)

    case = Case(fn, [x()])
    case.changes["code"] = lambda: setattr(
        helper, "__code__", pick.choice((_adder, _multiplier))(1.0).__code__
    )
    case.changes["defaults"] = lambda: setattr(helper, "__defaults__", (pick.random(),))
    case.changes["no defaults"] = lambda: setattr(helper, "__defaults__", None)
    case.changes["keywords"] = lambda: setattr(helper, "__kwdefaults__", {"scale": pick.random()})
    case.changes["keyword in place"] = lambda: (helper.__kwdefaults__ or {}).update(
        scale=pick.random()
    )
    case.changes["no keywords"] = lambda: setattr(helper, "__kwdefaults__", None)

    def cell(value: Any) -> Any:
        return lambda: setattr(helper.__closure__[0], "cell_contents", value)

    for value in (0.5, 1, True, -0.0, 3.0):
        case.changes[f"cell {value!r}"] = cell(value)
    case.changes["cell tensor"] = cell(torch.ones(4))
    return case


@habit
def callables_in_a_table(pick: random.Random) -> Case:
    table: dict[str, Any] = {"f": _adder(1.0), "g": functools.partial(_adder(2.0), more=4.0)}

    def fn(t: Any) -> Any:
        for call in table.values():
            t = call(t)
        return t

    case = Case(fn, [x()])
    case.changes["other function"] = lambda: table.update(f=_multiplier(pick.random()))
    case.changes["partial"] = lambda: table.update(g=functools.partial(_multiplier(2.0), more=5.0))
    case.changes["keyword of the partial"] = lambda: (
        table["g"].keywords.update(more=pick.random()) if hasattr(table["g"], "keywords") else None
    )
    case.changes["method"] = lambda: table.update(f=MethodType(lambda self, t: t + self, 3.0))
    case.changes["torch"] = lambda: table.update(f=pick.choice((torch.sin, torch.relu, torch.abs)))
    case.changes["class"] = lambda: table.update(f=type("C", (), {"__new__": lambda c, t: t - 9}))
    case.changes["order"] = lambda: table.update(f=table.pop("f"))
    return case


@habit
def bases_of_a_class(pick: random.Random) -> Case:
    class One:
        def apply(self, t: Any) -> Any:
            return t + 1

    class Two:
        def apply(self, t: Any) -> Any:
            return t * 2

    class Base(One):
        pass

    class Thing(Base):
        pass

    thing = Thing()

    def fn(t: Any) -> Any:
        t = thing.apply(t)
        return t + 5 if isinstance(thing, One) else t - 5

    case = Case(fn, [x()])
    case.changes["bases two"] = lambda: setattr(Base, "__bases__", (Two,))
    case.changes["bases one"] = lambda: setattr(Base, "__bases__", (One,))
    case.changes["bases both"] = lambda: setattr(Base, "__bases__", (Two, One))
    case.changes["own method"] = lambda: setattr(Thing, "apply", lambda self, t: t - 7)
    case.changes["own method gone"] = lambda: (
        delattr(Thing, "apply") if "apply" in vars(Thing) else None
    )
    case.changes["instance"] = lambda: setattr(thing, "apply", lambda t: t * 11)
    case.changes["instance cleared"] = vars(thing).clear
    return case


@habit
def special_methods(pick: random.Random) -> Case:
    class Box:
        def __init__(self, n: float) -> None:
            self.n = n

        def __len__(self) -> int:
            return 3

        def __contains__(self, one: Any) -> bool:
            return one == self.n

        def __iter__(self) -> Any:
            return iter((self.n, 2.0))

        def __getitem__(self, i: int) -> float:
            return self.n + i

        def __add__(self, other: Any) -> Any:
            return other + self.n

        def __eq__(self, other: Any) -> bool:
            return bool(self.n == getattr(other, "n", None))

        def __call__(self, t: Any) -> Any:
            return t + self.n

    one, other = Box(1.0), Box(1.0)

    def fn(t: Any) -> Any:
        t = one + t
        t = one(t) if 1.0 in one else t
        for item in one:
            t = t * item
        t = t + one[2] if one else t - one[1]
        return t + len(one) if one == other else t

    case = Case(fn, [x()])
    case.changes["n"] = lambda: setattr(one, "n", pick.choice((1.0, 2.0, 3.0)))
    case.changes["other n"] = lambda: setattr(other, "n", pick.choice((1.0, 2.0)))
    case.changes["len 0"] = lambda: setattr(Box, "__len__", lambda self: 0)
    case.changes["len 2"] = lambda: setattr(Box, "__len__", lambda self: 2)
    case.changes["bool"] = lambda: setattr(Box, "__bool__", lambda self: False)
    case.changes["contains"] = lambda: setattr(Box, "__contains__", lambda self, one: False)
    case.changes["iter"] = lambda: setattr(Box, "__iter__", lambda self: iter((5.0,)))
    case.changes["eq"] = lambda: setattr(Box, "__eq__", lambda self, other: False)
    case.changes["add"] = lambda: setattr(Box, "__add__", lambda self, other: other * 3)
    case.changes["item"] = lambda: setattr(Box, "__getitem__", lambda self, i: 8.0)
    case.changes["call"] = lambda: setattr(Box, "__call__", lambda self, t: t - 1)
    case.changes["radd"] = lambda: setattr(Box, "__radd__", lambda self, t: t - 1)
    return case


@habit
def descriptors(pick: random.Random) -> Case:
    class Doubled:
        factor = 2.0

        def __get__(self, owner: Any, kind: Any = None) -> Any:
            return self.factor * (owner.n if owner is not None else 1)

    class Owner:
        n = 1.0
        twice = Doubled()

        @property
        def thrice(self) -> float:
            return self.n * 3

        @staticmethod
        def plain(t: Any) -> Any:
            return t + 1

        @classmethod
        def of(cls, t: Any) -> Any:
            return t * cls.n

        @functools.cached_property
        def kept(self) -> float:
            return self.n + 10

    owner = Owner()

    def fn(t: Any) -> Any:
        return owner.of(owner.plain(t * owner.twice + owner.thrice)) + Owner.n

    case = Case(fn, [x()])
    case.changes["class n"] = lambda: setattr(Owner, "n", pick.choice((1.0, 2.0)))
    case.changes["instance n"] = lambda: setattr(owner, "n", 4.0)
    case.changes["factor"] = lambda: setattr(Doubled, "factor", pick.random())
    case.changes["get"] = lambda: setattr(Doubled, "__get__", lambda self, o, k=None: 9.0)
    case.changes["data descriptor"] = lambda: setattr(Doubled, "__set__", lambda self, o, v: None)
    case.changes["hidden"] = lambda: vars(owner).update(twice=7.0)
    case.changes["property"] = lambda: setattr(Owner, "thrice", property(lambda self: 0.5))
    case.changes["number"] = lambda: setattr(Owner, "thrice", 0.25)
    case.changes["static"] = lambda: setattr(Owner, "plain", staticmethod(lambda t: t - 1))
    case.changes["no longer static"] = lambda: setattr(Owner, "plain", lambda self, t: t - self.n)
    case.changes["class method"] = lambda: setattr(Owner, "of", classmethod(lambda cls, t: t + 8))
    case.changes["getattribute"] = lambda: setattr(
        Owner, "__getattribute__", lambda self, name: object.__getattribute__(self, name)
    )
    return case


@habit
def missing_attributes(pick: random.Random) -> Case:
    class Owner:
        pass

    owner = Owner()

    def fn(t: Any) -> Any:
        t = t + getattr(owner, "gain", 2.0)
        if hasattr(owner, "mode"):
            t = t * 3
        try:
            return t + owner.bias
        except AttributeError:
            return t - 1

    case = Case(fn, [x()])
    for name in ("gain", "mode", "bias"):
        case.changes[f"{name}"] = lambda n=name: setattr(owner, n, pick.random())
        case.changes[f"{name} gone"] = lambda n=name: vars(owner).pop(n, None)
        case.changes[f"class {name}"] = lambda n=name: setattr(Owner, n, 7.0)
        case.changes[f"property {name}"] = lambda n=name: setattr(
            Owner, n, property(lambda self: 0.125)
        )
    case.changes["getattr"] = lambda: setattr(Owner, "__getattr__", lambda self, name: 6.0)
    case.changes["getattr gone"] = lambda: (
        delattr(Owner, "__getattr__") if "__getattr__" in vars(Owner) else None
    )
    return case


@habit
def abstract_classes(pick: random.Random) -> Case:
    class Kind(abc.ABC):
        @abc.abstractmethod
        def own(self) -> None: ...

    class Meta(type):
        pass

    class Strange(metaclass=Meta):
        pass

    class Thing:
        pass

    class Second:
        pass

    box = SimpleNamespace(thing=Thing())

    def fn(t: Any) -> Any:
        t = t + 1 if isinstance(box.thing, Kind) else t - 1
        t = t * 2 if isinstance(box.thing, Strange) else t * 3
        return t + 7 if issubclass(type(box.thing), Kind) else t

    case = Case(fn, [x()])
    case.changes["register"] = lambda: Kind.register(Thing)
    case.changes["register second"] = lambda: Kind.register(Second)
    case.changes["second"] = lambda: setattr(box, "thing", Second())
    case.changes["another"] = lambda: setattr(box, "thing", Thing())
    case.changes["class"] = lambda: setattr(box.thing, "__class__", Second)
    case.changes["instancecheck"] = lambda: setattr(
        Meta, "__instancecheck__", lambda cls, one: True
    )
    case.changes["subclasshook"] = lambda: setattr(
        Kind, "__subclasshook__", classmethod(lambda cls, other: other is Second)
    )
    return case


@habit
def data_classes(pick: random.Random) -> Case:
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        a: float = 1.0
        b: tuple[int, ...] = (1, 2)

    @dataclasses.dataclass
    class Config:
        gain: float = 2.0
        inner: Frozen = dataclasses.field(default_factory=Frozen)

    box = SimpleNamespace(config=Config())

    def fn(t: Any) -> Any:
        config = box.config
        t = t * config.gain + config.inner.a
        return t + sum(config.inner.b) if config == Config() else t

    case = Case(fn, [x()])
    case.changes["gain"] = lambda: setattr(box.config, "gain", pick.choice((1.0, 2.0, 2)))
    case.changes["inner"] = lambda: setattr(box.config, "inner", Frozen(a=pick.random()))
    case.changes["equal"] = lambda: setattr(box, "config", Config())
    case.changes["by force"] = lambda: object.__setattr__(box.config.inner, "a", pick.random())
    case.changes["default"] = lambda: setattr(Frozen, "a", 5.0)
    case.changes["defaults of init"] = lambda: setattr(
        Config.__init__, "__defaults__", (3.0, *Config.__init__.__defaults__[1:])
    )
    return case


@habit
def modules_of_python(pick: random.Random) -> Case:
    own = ModuleType("own_module")
    own.value, own.fn = 2.0, _adder(1.0)

    def fn(t: Any) -> Any:
        return own.fn(t) * own.value + math.pi + operator.countOf([1, 2], 2) + math.floor(2.5)

    case = Case(fn, [x()])
    case.changes["value"] = lambda: setattr(own, "value", pick.random())
    case.changes["function"] = lambda: setattr(own, "fn", _multiplier(2.0))
    case.changes["pi"] = lambda: case.patch(math, "pi", 3.0)
    case.changes["floor"] = lambda: case.patch(math, "floor", lambda value: 100)
    # none that torch's own arithmetic of sizes looks up
    case.changes["count"] = lambda: case.patch(operator, "countOf", lambda a, b: 50)
    case.changes["getattr"] = lambda: setattr(own, "__getattr__", lambda name: 4.0)
    case.changes["value gone"] = lambda: vars(own).pop("value", None)
    return case


@habit
def names_of_the_namespace(pick: random.Random) -> Case:
    space: dict[str, Any] = {"SCALE": 2.0, "torch": torch, "__name__": "habits"}
    exec(
        "def fn(t):\n"
        "    total = sum([1, 2]) + len('ab') + max(1, 2)\n"
        "    return torch.relu(t) * SCALE + total if isinstance(SCALE, float) else t\n",
        space,
    )
    case = Case(space["fn"], [x()])
    for value in (2.0, 2, True, 3.5, -0.0):
        case.changes[f"scale {value!r}"] = lambda v=value: space.update(SCALE=v)
    for name, hidden in (("len", lambda s: 40), ("sum", lambda s: 50), ("max", min),
                         ("isinstance", lambda a, b: False)):  # fmt: skip
        case.changes[f"hide {name}"] = lambda n=name, h=hidden: space.update({n: h})
        case.changes[f"show {name}"] = lambda n=name: space.pop(n, None)
    case.changes["scale gone"] = lambda: space.pop("SCALE", None)
    case.changes["torch"] = lambda: space.update(torch=SimpleNamespace(relu=torch.sin))
    return case


@habit
def environment(pick: random.Random) -> Case:
    name = "FLAMBEAU_HABIT"

    def fn(t: Any) -> Any:
        return t + (1 if os.environ.get(name) == "on" else 2)

    case = Case(fn, [x()], own_undo=[lambda: os.environ.pop(name, None)])
    case.changes["on"] = lambda: os.environ.update({name: "on"})
    case.changes["off"] = lambda: os.environ.update({name: "off"})
    case.changes["gone"] = lambda: os.environ.pop(name, None)
    return case


@habit
def cached_function(pick: random.Random) -> Case:
    box = SimpleNamespace(n=1.0)

    @functools.cache
    def scale(key: int) -> float:
        return key * box.n

    def fn(t: Any, key: int) -> Any:
        return t * scale(key)

    case = Case(fn, [x(), 3])
    case.before = scale.cache_clear
    case.changes["key"] = lambda: case.own.__setitem__(1, pick.randrange(2, 6))
    case.changes["n"] = lambda: setattr(box, "n", pick.random())
    return case


@habit
def a_tensors_class(pick: random.Random) -> Case:
    class Named(torch.Tensor):
        gain = 2.0

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = super().__torch_function__(func, types, args, kwargs or {})
            return out * cls.gain if func is torch.Tensor.add else out

    def fn(t: Any) -> Any:
        return t.add(1).mul(2)

    case = Case(fn, [x()])
    case.changes["subclass"] = lambda: case.own.__setitem__(0, x().as_subclass(Named))
    case.changes["plain"] = lambda: case.own.__setitem__(0, x())
    case.changes["gain"] = lambda: setattr(Named, "gain", pick.choice((1.0, 3.0)))
    case.changes["function"] = lambda: setattr(
        Named, "__torch_function__", torch._C._disabled_torch_function_impl
    )
    return case
