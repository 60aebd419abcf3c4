"""Copies of instances whose class changes between the calls: of its hooks, and of its slots."""

import collections
import copy
import types

import pytest
import torch
from flambeau_capture import optimize


class Other:
    a = 44


def made(kind):
    """A class of its own."""

    class Slotted:
        __slots__ = ("__c", "a", "b")

        def __init__(self):
            self.a, self.b, self.__c = 2, 1.5, [3]

    class Plain:
        def __init__(self):
            self.a, self.b = 2, 1.5

    class Derived(Slotted):
        pass

    class Items(list):
        def __init__(self):
            super().__init__()
            self.a, self.b = 2, 1.5

    class Stateful(Plain):
        def __getstate__(self):
            return {"a": 7}

    return {each.__name__: each for each in (Slotted, Plain, Derived, Items, Stateful)}[kind]


CHANGES = {
    "property": ("b", property(lambda self: 12)),
    "value": ("b", None),
    "__copy__": ("__copy__", lambda self: self),
    "__deepcopy__": ("__deepcopy__", lambda self, memo: self),
    "__reduce_ex__": ("__reduce_ex__", lambda self, protocol: (int, (7,))),
    "__reduce__": ("__reduce__", lambda self: (int, (7,))),
    "__getstate__": ("__getstate__", lambda self: {"a": 9}),
    "__setstate__": ("__setstate__", lambda self, state: None),
    "__setattr__": ("__setattr__", lambda self, name, value: None),
    "__new__": ("__new__", staticmethod(lambda cls, *args: object.__new__(Other))),
    "__getnewargs__": ("__getnewargs__", lambda self: ()),
}


def answers(kind, change, run, wrap):
    cls = made(kind)
    thing = cls()

    def fn(t, thing):
        try:
            copied = run(thing)
            seen = type(copied).__name__, getattr(copied, "a", None), getattr(copied, "b", None)
        except Exception as error:
            return t + 1, repr(error)
        return t * 2, seen

    called = wrap(fn)
    found = [called(torch.ones(2), thing)[1]]
    setattr(cls, *CHANGES[change])
    return [*found, *(called(torch.ones(2), thing)[1] for _ in range(2))]


@pytest.mark.parametrize("run", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
@pytest.mark.parametrize("kind", ["Slotted", "Plain", "Derived", "Items", "Stateful"])
def test_the_next_copy_is_made_as_the_class_has_it_by_then(kind, run):
    for change in CHANGES:
        expected = answers(kind, change, run, lambda fn: fn)
        assert answers(kind, change, run, optimize()) == expected, change


def test_copies_of_objects_with_slots_are_in_the_graph():
    thing = made("Slotted")()

    def fn(t, thing):
        return t * copy.deepcopy(thing).a + copy.copy(thing).b

    compiled = optimize(nopython=True)(fn)
    assert torch.equal(compiled(torch.ones(2), thing), torch.full((2,), 3.5))


#: look-ups of a class's own, which a copy asks for its hooks; each notes the names of hooks
LOOK_UPS = {
    "passes on": "def __getattribute__(self, name):\n        note(name)\n"
    "        return object.__getattribute__(self, name)",
    "renames": "names = {'c': 'a'}\n    def __getattribute__(self, name):\n        note(name)\n"
    "        if name != 'names' and name in super().__getattribute__('names'):\n"
    "            name = super().__getattribute__('names')[name]\n"
    "        return super().__getattribute__(name)",
    "hides": "def __getattribute__(self, name):\n        note(name)\n"
    "        if name in ('__getstate__', '__setstate__'): raise AttributeError(name)\n"
    "        return object.__getattribute__(self, name)",
    "answers hooks": "def __getattribute__(self, name):\n        note(name)\n"
    "        if name == '__deepcopy__': return lambda memo: 'made'\n"
    "        return object.__getattribute__(self, name)",
    "lacks": "def __getattr__(self, name):\n        note(name)\n        raise AttributeError(name)",
    "answers all": "def __getattr__(self, name):\n        note(name)\n        return 7",
    "delegates": "def __getattr__(self, name):\n        note(name)\n"
    "        if name[:2] == '__': raise AttributeError(name)\n        return getattr(self.t, name)",
    "raises": "def __getattr__(self, name):\n        note(name)\n        raise KeyError(name)",
}
COPIED = """
import collections
import copy
import types
LOG = []
def note(name):
    if name[:2] == "__":
        LOG.append(name)
class C:
    {look_up}
    def fill(self, t):
        vars(self).update(a=1, t=t, items=[t, 2])
        return self
given = C()
def f(t, given):
    found = []
    for made in (C().fill(t), C(), given):
        for copies in (copy.copy, copy.deepcopy):
            LOG.append(copies.__name__)
            try:
                other = copies(made)
                mine = vars(other) if type(other) is C else other
                found.append((type(other).__name__, mine, vars(made)))
                found.append(isinstance(mine, dict) and mine.get("items") is made.items)
            except Exception as error:
                found.append((type(error), str(error)))
    return found, list(LOG)
"""


@pytest.mark.parametrize("look_up", LOOK_UPS)
def test_hooks_of_a_copy_are_asked_of_the_objects_own_look_up(look_up, capture, backend, same):
    told = []
    for compiled in (False, True):
        names = {"__name__": "program"}
        exec(COPIED.format(look_up=LOOK_UPS[look_up]), names)
        run = capture(names["f"]) if compiled else names["f"]
        for _ in range(2):
            names["given"].fill(torch.ones(2))
            told.append(run(torch.ones(2), names["given"]))
            names["LOG"].clear()
    same(told[2:], told[:2])
    assert look_up not in ("passes on", "renames", "lacks") or len(backend) == 1


KINDS = {
    "plain": "class C: pass",
    "slots": "class C: __slots__ = ('a',)",
    "list": "class C(list): pass",
    "tuple": "class C(tuple): pass",
    "int": "class C(int): pass",
    "set": "class C(set): pass",
    "ordered dict": "class C(collections.OrderedDict): pass",
    "deque": "class C(collections.deque): pass",
    "defaultdict": "class C(collections.defaultdict): pass",
    "namespace": "class C(types.SimpleNamespace): pass",
    "state": "class C:\n    def __getstate__(self): return {'a': 3}",
    "reduces": "class C:\n    def __reduce__(self): return (C, ())",
    "copies": "class C:\n    def __copy__(self): return self",
    "looks up": "class C:\n    def __getattr__(self, name): raise AttributeError(name)",
}


def _names_around(x, given, copies):
    before = dir(given)
    return x + 1, before, dir(copies(given)), dir(given)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_class_remembers_its_slots_from_its_first_copy_on(kind, copies, capture, same):
    told = []
    for compiled in (False, True):
        names = {"collections": collections, "types": types}
        exec(KINDS[kind], names)
        given = names["C"]()
        run = capture(_names_around) if compiled else _names_around
        told.append([run(torch.ones(2), given, copies) for _ in range(3)])
    same(*told)


MADE_INSIDE = """
def f(x, copies):
    {}
    before = dir(C)
    copies(C())
    return x + 1, before, dir(C), "__slotnames__" in C.__dict__, C
"""


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_class_made_inside_remembers_its_slots_too(copies, capture, same):
    for kind in KINDS.values():
        told = []
        for compiled in (False, True):
            names = {"collections": collections, "types": types}
            exec(MADE_INSIDE.format(kind.replace("\n", "\n    ")), names)
            run = capture(names["f"]) if compiled else names["f"]
            *answers, made = run(torch.ones(2), copies)
            told.append([*answers, "__slotnames__" in vars(made)])
        same(*told)
