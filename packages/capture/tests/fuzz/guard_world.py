"""A world of Python objects, guards on all of it, and ways to change it; no torch.

In: a seed. Out: a `World` whose guards hold, and `CHANGES`, each of which changes one thing.
Invariant: the native tree, whose watched parts are armed by then, and the plain-Python reference
give the same answer after every change.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from types import CellType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

from flambeau_capture.guards import Guards, GuardSet
from flambeau_capture.source import (
    Attr,
    Builtin,
    ClosureCell,
    ClosureSource,
    ConstantSource,
    Default,
    DictKey,
    Global,
    GlobalOf,
    InstanceAttr,
    Item,
    KwDefault,
    Local,
    Scope,
    Source,
)

Change = Callable[["World", random.Random], Any]
CHANGES: list[Change] = []


def change(fn: Change) -> Change:
    CHANGES.append(fn)
    return fn


def _frame_function() -> FunctionType:
    captured = None

    def frame(self: Any, values: Any) -> Any:
        return captured

    return frame


CODE = _frame_function().__code__


class World:
    """Objects as a program has them; `guards` say what they are now."""

    def __init__(self, seed: int) -> None:
        pick = random.Random(seed)
        meta = type("Meta", (type,), {})
        base = meta("Base", (), {"shared": [1, 2], "level": 1, "method": _method(), "p": _prop()})
        self.cls = meta("Thing", (base,), {"own": 3, "helper": _method()})
        self.base, self.meta = base, meta
        self.slotted = type("Slotted", (), {"__slots__": ("a", "b", "__weakref__")})
        self.root = self.cls()
        self.root.child = self.cls()
        self.root.child.leaf = self.cls()
        self.root.child.leaf.x = 1.5
        self.root.flag = True
        self.root.count = pick.randrange(5)
        self.root.name = f"name{pick.randrange(3)}"
        self.root.items = [self.cls(), "two", 3]
        self.root.table = {"a": self.cls(), "b": (1, [2])}
        self.root.ordered = OrderedDict(one=1, two=self.cls())
        self.root.hooks = OrderedDict()
        self.root.slots = self.slotted()
        self.root.slots.a = self.cls()
        self.root.slots.b = "b"
        self.root.bound = self.root.child.method
        self.root.space = SimpleNamespace(y=2, z=self.cls())
        self.module = ModuleType("some_module")
        self.module.value, self.module.fn = 7, _with_closure(11)
        self.globals: dict[str, Any] = {"CONST": 5, "fn": _with_closure(4), "module": self.module}
        self.globals["thing"] = self.cls()
        self.builtins: dict[str, Any] = {"len": len}
        self.free = SimpleNamespace(deep=self.cls(), k=9)
        self.arguments = {"self": self.root, "values": [1, {"k": self.cls()}]}
        self.guards = self._guard(pick)

    # -- what guards are about ------------------------------------------------------------------

    def scope(self) -> Scope:
        return Scope(self.arguments, {"captured": self.free}, self.globals, self.builtins)

    def reference(self) -> bool:
        return self.guards.check(self.scope())

    def native(self) -> bool:
        arguments = tuple(self.arguments[name] for name in ("self", "values"))
        cells = (CellType(self.free),)
        return self.guards.native.check(arguments, cells, self.globals, self.builtins)

    def _guard(self, pick: random.Random) -> Guards:
        guards = GuardSet(CODE)
        for source, kind, params in self._candidates():
            if kind == "ID_MATCH" or pick.random() < 0.85:
                guards.add(source, kind, *params)
        finished = guards.finish()
        assert finished.check(self.scope()), finished.explain(self.scope())
        return finished

    def _candidates(self) -> list[tuple[Source, str, tuple[Any, ...]]]:
        me, free = Local("self"), ClosureSource("captured")
        child, items = InstanceAttr(me, "child"), InstanceAttr(me, "items")
        table, fn = InstanceAttr(me, "table"), Global("fn")
        held = ConstantSource(self.cls, "Thing")
        slots, space = InstanceAttr(me, "slots"), InstanceAttr(me, "space")
        function = self.globals["fn"]
        named: list[tuple[Source, str, tuple[Any, ...]]] = [
            (me, "ID_MATCH", (self.root,)),
            (me, "TYPE_MATCH", (self.cls,)),
            (child, "TYPE_MATCH", (self.cls,)),
            (InstanceAttr(child, "leaf"), "ID_MATCH", (self.root.child.leaf,)),
            (InstanceAttr(InstanceAttr(child, "leaf"), "x"), "CONSTANT_MATCH", (1.5,)),
            (child, "NOT_IN_INSTANCE_DICT", ("method",)),
            (me, "NOT_IN_INSTANCE_DICT", ("helper",)),
            (InstanceAttr(me, "flag"), "BOOL_MATCH", (True,)),
            (Attr(me, "count"), "CONSTANT_MATCH", (self.root.count,)),
            (Attr(me, "level"), "CONSTANT_MATCH", (1,)),
            (Attr(me, "shared"), "LIST_LENGTH", (2,)),
            (Item(Attr(me, "shared"), 1, "list"), "CONSTANT_MATCH", (2,)),
            (Attr(me, "p"), "CONSTANT_MATCH", (self.root.p,)),
            (me, "HASATTR", ("own",)),
            (me, "NOT_HASATTR", ("missing",)),
            (InstanceAttr(me, "name"), "CONSTANT_MATCH", (self.root.name,)),
            (items, "LIST_LENGTH", (3,)),
            (Item(items, 0, "list"), "TYPE_MATCH", (self.cls,)),
            (Item(items, -1, "list"), "CONSTANT_MATCH", (3,)),
            (table, "DICT_KEYS", (("a", "b"), True)),
            (Item(table, "a", "dict"), "ID_MATCH", (self.root.table["a"],)),
            (Item(Item(table, "b", "dict"), 0, "tuple"), "CONSTANT_MATCH", (1,)),
            (Item(Item(table, "b", "dict"), 1, "tuple"), "LENGTH", (1,)),
            (table, "DICT_NOT_CONTAINS", ("z",)),
            (DictKey(table, 1), "CONSTANT_MATCH", ("b",)),
            (InstanceAttr(me, "ordered"), "DICT_KEYS", (("one", "two"), True)),
            (Item(InstanceAttr(me, "ordered"), "two", "dict"), "TYPE_MATCH", (self.cls,)),
            (InstanceAttr(me, "hooks"), "LENGTH", (0,)),
            (Attr(slots, "a"), "TYPE_MATCH", (self.cls,)),
            (Attr(slots, "b"), "CONSTANT_MATCH", ("b",)),
            (Attr(InstanceAttr(me, "bound"), "__self__"), "ID_MATCH", (self.root.child,)),
            (Attr(InstanceAttr(me, "bound"), "__func__"), "ID_MATCH", (self.base.method,)),
            (Attr(space, "y"), "CONSTANT_MATCH", (2,)),
            (Attr(space, "z"), "NOT_HASATTR", ("absent",)),
            (Attr(held, "method"), "FUNCTION_MATCH", (self.base.method,)),
            (Attr(held, "level"), "CONSTANT_MATCH", (1,)),
            (Attr(held, "own"), "CONSTANT_MATCH", (3,)),
            (held, "NOT_HASATTR", ("absent",)),
            (held, "HASATTR", ("shared",)),
            (Global("CONST"), "CONSTANT_MATCH", (5,)),
            (fn, "FUNCTION_MATCH", (function,)),
            (Attr(fn, "__code__"), "ID_MATCH", (function.__code__,)),
            (ClosureCell(fn, 0), "CONSTANT_MATCH", (4,)),
            (Default(fn, 0), "CONSTANT_MATCH", (10,)),
            (KwDefault(fn, "k"), "CONSTANT_MATCH", (20,)),
            (GlobalOf(fn, "__name__"), "CONSTANT_MATCH", (function.__globals__["__name__"],)),
            (Attr(Global("module"), "value"), "CONSTANT_MATCH", (7,)),
            (Default(Attr(Global("module"), "fn"), 0), "CONSTANT_MATCH", (10,)),
            (Attr(Global("thing"), "level"), "CONSTANT_MATCH", (1,)),
            (Builtin("len"), "ID_MATCH", (len,)),
            (free, "ID_MATCH", (self.free,)),
            (Attr(Attr(free, "deep"), "level"), "CONSTANT_MATCH", (1,)),
            (Attr(free, "k"), "CONSTANT_MATCH", (9,)),
            (Local("values"), "LIST_LENGTH", (2,)),
            (Item(Item(Local("values"), 1, "list"), "k", "dict"), "TYPE_MATCH", (self.cls,)),
        ]
        return named

    # -- what may be changed --------------------------------------------------------------------

    def things(self) -> list[Any]:
        found = [self.root, self.root.__dict__.get("child"), self.globals.get("thing")]
        found += [getattr(self.free, "deep", None), getattr(self.root.slots, "a", None)]
        leaf = getattr(found[1], "__dict__", {}).get("leaf")
        return [one for one in [*found, leaf] if hasattr(one, "__dict__")]

    def functions(self) -> list[FunctionType]:
        return [
            f for f in (self.globals.get("fn"), self.module.__dict__.get("fn")) if f is not None
        ]


def _method() -> FunctionType:
    def method(self: Any) -> int:
        return 1

    return method


def _prop() -> property:
    return property(lambda self: self.__dict__.get("count", -1))


def _with_closure(value: int) -> FunctionType:
    def inner(a: int = 10, *, k: int = 20) -> int:
        return value + a + k

    return inner


NAMES = ("child", "leaf", "x", "flag", "count", "name", "items", "method", "level", "helper", "own",
         "absent", "shared", "unrelated", "hooks", "missing", "p")  # fmt: skip
VALUES: tuple[Any, ...] = (0, 1, 3, 5, 1.5, True, "two", None, (1, [2]))


@change
def set_attribute(world: World, pick: random.Random) -> None:
    setattr_plain(pick.choice(world.things()), pick.choice(NAMES), pick.choice(VALUES))


def setattr_plain(thing: Any, name: str, value: Any) -> None:
    try:
        setattr(thing, name, value)
    except AttributeError:
        thing.__dict__[name] = value


@change
def unrelated_attribute(world: World, pick: random.Random) -> None:
    pick.choice(world.things()).unrelated = pick.random()


@change
def equal_value_again(world: World, pick: random.Random) -> None:
    thing = pick.choice(world.things())
    for name, value in list(thing.__dict__.items()):
        if type(value) in (int, float, str):
            setattr_plain(thing, name, type(value)(value))


@change
def delete_attribute(world: World, pick: random.Random) -> None:
    thing = pick.choice(world.things())
    thing.__dict__.pop(pick.choice(list(thing.__dict__) or ["none"]), None)


@change
def write_to_dict(world: World, pick: random.Random) -> None:
    pick.choice(world.things()).__dict__.update({pick.choice(NAMES): pick.choice(VALUES)})


@change
def replace_instance_dict(world: World, pick: random.Random) -> None:
    thing = pick.choice(world.things())
    thing.__dict__ = dict(thing.__dict__)


@change
def assign_class(world: World, pick: random.Random) -> None:
    thing = pick.choice([t for t in world.things() if isinstance(t, world.base)])
    thing.__class__ = world.meta("Other", (world.cls,), {})


@change
def class_attribute(world: World, pick: random.Random) -> None:
    setattr(pick.choice((world.cls, world.base)), pick.choice(NAMES), pick.choice(VALUES))


@change
def class_counter(world: World, pick: random.Random) -> None:
    world.base.calls = getattr(world.base, "calls", 0) + 1


@change
def class_method(world: World, pick: random.Random) -> None:
    owner = pick.choice((world.cls, world.base))
    setattr(owner, pick.choice(("method", "helper", "level")), _method())


@change
def class_descriptor(world: World, pick: random.Random) -> None:
    setattr(world.cls, pick.choice(NAMES), property(lambda self: 5))


@change
def class_getattr(world: World, pick: random.Random) -> None:
    world.cls.__getattr__ = lambda self, name: 1


@change
def class_getattribute(world: World, pick: random.Random) -> None:
    world.base.__getattribute__ = lambda self, name: object.__getattribute__(self, name)


@change
def delete_from_class(world: World, pick: random.Random) -> None:
    for owner in (world.cls, world.base):
        name = pick.choice(NAMES)
        if name in owner.__dict__:
            delattr(owner, name)


@change
def metaclass_attribute(world: World, pick: random.Random) -> None:
    value = pick.choice((property(lambda cls: 1), 1))
    setattr(world.meta, pick.choice(("level", "own", "absent", "method", "unrelated")), value)


@change
def bases(world: World, pick: random.Random) -> None:
    world.cls.__bases__ = (world.meta("NewBase", (world.base,), {"level": pick.choice((1, 2))}),)


@change
def list_contents(world: World, pick: random.Random) -> None:
    found = [world.root.__dict__.get("items"), world.arguments["values"]]
    target = pick.choice([one for one in found if isinstance(one, list)])
    action = pick.choice(("append", "pop", "set", "insert", "reverse", "rebuild", "same"))
    if action == "append":
        target.append(pick.choice(VALUES))
    elif action == "pop" and target:
        target.pop(pick.randrange(len(target)))
    elif action == "set" and target:
        target[pick.randrange(len(target))] = pick.choice(VALUES)
    elif action == "insert":
        target.insert(0, pick.choice(VALUES))
    elif action == "reverse":
        target.reverse()
    elif action == "rebuild":
        copy = list(target)
        target.clear()
        target.extend(copy)
    elif target:
        target[0] = target[0]


@change
def dict_contents(world: World, pick: random.Random) -> None:
    found = [world.root.__dict__.get(name) for name in ("table", "ordered", "hooks")]
    target = pick.choice([one for one in found if isinstance(one, dict)] or [{}])
    action = pick.choice(("set", "pop", "move", "add", "rebuild", "clear", "setdefault"))
    key = pick.choice(["a", "b", "one", "two", "z"])
    if action == "set":
        target[key] = pick.choice(VALUES)
    elif action == "pop":
        target.pop(key, None)
    elif action == "move" and isinstance(target, OrderedDict) and key in target:
        target.move_to_end(key, last=pick.random() < 0.5)
    elif action == "move" and key in target:
        target[key] = target.pop(key)
    elif action == "add":
        target["new"] = 1
    elif action == "rebuild":
        copy = dict(target)
        target.clear()
        target.update(copy)
    elif action == "clear":
        target.clear()
    else:
        target.setdefault(key, 1)


@change
def inner_list(world: World, pick: random.Random) -> None:
    found = world.root.__dict__.get("table")
    inner = found.get("b") if isinstance(found, dict) else None
    if isinstance(inner, tuple) and isinstance(inner[1], list):
        inner[1].append(1)


@change
def slot(world: World, pick: random.Random) -> None:
    slots = world.root.__dict__.get("slots")
    if isinstance(slots, world.slotted):
        name = pick.choice(("a", "b"))
        if pick.random() < 0.2 and hasattr(slots, name):
            delattr(slots, name)
        else:
            setattr(slots, name, pick.choice((*VALUES, "b", world.cls())))


@change
def namespace(world: World, pick: random.Random) -> None:
    name = pick.choice(("CONST", "fn", "thing", "unrelated", "len"))
    world.globals[name] = pick.choice((*VALUES, 5))


@change
def busy_namespace(world: World, pick: random.Random) -> None:
    world.globals["i"] = world.globals.get("i", 0) + 1


@change
def builtin(world: World, pick: random.Random) -> None:
    world.builtins["len"] = pick.choice((len, lambda x: 0))


@change
def cell(world: World, pick: random.Random) -> None:
    function = pick.choice(world.functions() or [None])
    if isinstance(function, FunctionType):
        function.__closure__[0].cell_contents = pick.choice((4, 5, 4.0))


@change
def defaults(world: World, pick: random.Random) -> None:
    for function in world.functions():
        if isinstance(function, FunctionType):
            function.__defaults__ = pick.choice(((10,), (11,), None))


@change
def keyword_defaults(world: World, pick: random.Random) -> None:
    for function in world.functions():
        if isinstance(function, FunctionType):
            if function.__kwdefaults__ is not None and pick.random() < 0.5:
                function.__kwdefaults__["k"] = pick.choice((20, 21))
            else:
                function.__kwdefaults__ = pick.choice(({"k": 20}, {"k": 22}, None))


@change
def code_of_function(world: World, pick: random.Random) -> None:
    for function in world.functions():
        if isinstance(function, FunctionType):
            function.__code__ = _with_closure(0).__code__.replace(co_name=f"n{pick.random()}")


@change
def module_attribute(world: World, pick: random.Random) -> None:
    setattr(world.module, pick.choice(("value", "fn", "other")), pick.choice((7, 8, world.globals)))


@change
def free_variable(world: World, pick: random.Random) -> None:
    setattr(world.free, pick.choice(("deep", "k", "more")), pick.choice((9, 10, world.cls())))


@change
def other_object(world: World, pick: random.Random) -> None:
    if pick.random() < 0.5:
        world.arguments["self"] = world.cls()
    else:
        world.free = SimpleNamespace(deep=world.cls(), k=9)


@change
def argument(world: World, pick: random.Random) -> None:
    world.arguments["values"] = pick.choice(([1, {"k": world.cls()}], [1], [1, {"k": 2}], ()))


def run(seed: int, steps: int = 12) -> int:
    """Try one world; the number of changes made. Raises AssertionError at a disagreement."""
    world, pick = World(seed), random.Random(seed * 7919 + 1)
    for _ in range(4):  # by now the parts that can be watched are
        assert world.native()
    assert world.guards.native.witnesses()["armed"] > 0
    done = 0
    for _ in range(steps):
        chosen = pick.choice(CHANGES)
        try:
            chosen(world, pick)
        except (AttributeError, TypeError, ValueError, LookupError):
            continue  # the world no longer has what this change is about
        done += 1
        for again in range(pick.choice((1, 2, 4))):
            reference, native = world.reference(), world.native()
            assert reference == native, (seed, chosen.__name__, again, reference, native)
    return done
