"""Weak references, weak containers and finalizers where what they are of ends inside a call."""

import gc
import weakref

import pytest
import torch


class Thing:
    def __init__(self, number=0):
        self.number = number

    def three(self):
        return 3


class World:
    """What a program keeps between its calls."""

    def __init__(self):
        self.held = {"there": Thing(7)}
        self.log = []
        self.values = weakref.WeakValueDictionary()
        self.keys = weakref.WeakKeyDictionary()
        self.set = weakref.WeakSet()

    def seen(self):
        return sorted(map(str, self.values)), len(self.keys), len(self.set), [*self.log]


def _proxied(proxy):
    try:
        return proxy.number
    except ReferenceError as error:
        return str(error)


#: how a thing comes to be noticed, and what is asked of that
NOTICES = {
    "value": (
        lambda world, thing: world.values.__setitem__("a", thing),
        lambda world: (len(world.values), "a" in world.values, [*world.values]),
    ),
    "key": (
        lambda world, thing: world.keys.__setitem__(thing, 5),
        lambda world: (len(world.keys), [*world.keys.values()]),
    ),
    "member": (
        lambda world, thing: world.set.add(thing),
        lambda world: (len(world.set), len([*world.set])),
    ),
    "callback": (
        lambda world, thing: world.held.__setitem__(
            "ref", weakref.ref(thing, lambda _: world.log.append(1))
        ),
        lambda world: len(world.log),
    ),
    "finalizer": (
        lambda world, thing: weakref.finalize(thing, world.log.append, 3),
        lambda world: len(world.log),
    ),
    "method": (
        lambda world, thing: world.held.__setitem__("ref", weakref.WeakMethod(thing.three)),
        lambda world: world.held["ref"]() is None,
    ),
    "proxy": (
        lambda world, thing: world.held.__setitem__("ref", weakref.proxy(thing)),
        lambda world: _proxied(world.held["ref"]),
    ),
}


def _rebound(t, world, notice, ask):
    thing = Thing(2)
    notice(world, thing)
    before, thing = ask(world), None
    return t * 2, before, ask(world)


def _deleted(t, world, notice, ask):
    thing = Thing(2)
    notice(world, thing)
    t, before = t + 1, ask(world)
    del thing
    return t, before, ask(world)


def _ended_with_a_call(t, world, notice, ask):
    def inside():
        thing = Thing(2)
        notice(world, thing)
        return ask(world)

    return t * 2, inside(), ask(world)


def _left(t, world, notice, ask):
    notice(world, Thing(2))
    return t * 2, ask(world)


def _returned(t, world, notice, ask):
    thing = Thing(2)
    notice(world, thing)
    return t * 2, ask(world), thing


def _dropped_from_a_list(t, world, notice, ask):
    things = [Thing(1), Thing(2)]
    notice(world, things[1])
    before = ask(world)
    things.pop()
    return t * 2, before, ask(world)


def _dropped_from_the_program(t, world, notice, ask):
    if "there" not in world.held:
        return t * 3, ask(world)
    notice(world, world.held["there"])
    before = ask(world)
    del world.held["there"]
    return t * 2, before, ask(world)


def _kept(t, world, notice, ask):
    notice(world, world.held["there"])
    return t * 2, ask(world)


ENDS = [
    _rebound,
    _deleted,
    _ended_with_a_call,
    _left,
    _returned,
    _dropped_from_a_list,
    _dropped_from_the_program,
    _kept,
]


def _life(wrap, notice, end):
    world, seen = World(), []
    run = wrap(lambda t: end(t, world, *NOTICES[notice]))
    for number in range(3):
        out, *rest = run(torch.ones(2) + number)
        rest = [each.number if isinstance(each, Thing) else each for each in rest]
        gc.collect()
        seen.append((out.tolist(), rest, world.seen()))
    return seen


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__.strip("_"))
@pytest.mark.parametrize("notice", NOTICES)
def test_entries_go_as_in_eager(capture, notice, end):
    assert _life(capture, notice, end) == _life(lambda fn: fn, notice, end)


def _tensor_as_value(t, world):
    made = t * 2
    world.values["t"] = made
    before, made = len(world.values), None
    return t * 2, before, len(world.values)


def _own_containers(t, world):
    found = weakref.WeakValueDictionary(), weakref.WeakKeyDictionary(), weakref.WeakSet()
    thing = Thing(2)
    found[0][1], found[1][thing] = thing, t
    found[2].add(thing)
    before, thing = [*map(len, found)], None
    return t * 2, before, [*map(len, found)], found[0].get(1)


def _counted(t, world):
    thing = Thing(1)
    reference = weakref.ref(thing)
    return t * weakref.getweakrefcount(thing), len(weakref.getweakrefs(thing)), reference is None


@pytest.mark.parametrize("program", [_tensor_as_value, _own_containers, _counted])
def test_programs_of_weak_references(capture, program):
    worlds = []
    for wrap in (lambda fn: fn, capture):
        world = World()
        run = wrap(lambda t, world=world: program(t, world))
        runs = [run(torch.ones(2) + number) for number in range(3)]
        worlds.append(([(out.tolist(), *rest) for out, *rest in runs], world.seen()))
    assert worlds[0] == worlds[1]


def test_a_call_that_makes_no_entry_is_captured(capture, backend):
    """The first call makes the entry, and is Python's; the others find it."""
    world = World()

    def program(t):
        if len(world.values) == 0:
            world.values["first"] = world.held["first"] = Thing(4)
        return t * len(world.values)

    run = capture(program)
    for _ in range(3):
        assert run(torch.ones(2)).tolist() == [1.0, 1.0]
    assert len(backend) == 1
