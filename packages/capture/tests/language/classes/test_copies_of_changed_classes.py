"""Copies of instances whose class changes between the calls: of its hooks, and of its slots."""

import copy

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
