"""`__getattribute__`, then `__getattr__` where it raises AttributeError; `object`'s asks no other.

Each class reads each name in each way, of an object that is given and of one that is made there.
"""

import threading

import pytest
import torch


class Asked:
    kept = 1

    def __init__(self):
        self.own = 2

    @property
    def raising(self):
        raise AttributeError("of the property")

    def __getattr__(self, name):
        if name == "refused":
            raise AttributeError("of the fallback")
        return f"{name} asked"


class First(Asked):
    def __getattribute__(self, name):
        if name == "refused_first":
            raise AttributeError("of the first")
        return super().__getattribute__(name)


class Catching(Asked):
    def __getattribute__(self, name):
        try:
            return object.__getattribute__(self, name)
        except AttributeError:
            return f"{name} caught"


class Plain:
    kept, own, raising = 1, 2, property(lambda self: self.none)


class Raised(Asked, Exception):
    pass


class Module(Asked, torch.nn.Module):
    def __init__(self):
        torch.nn.Module.__init__(self)
        self._parameters["weight"] = torch.nn.Parameter(torch.ones(2))
        self.__dict__["own"] = 2


class Local(threading.local):
    kept = 1

    def __init__(self):
        self.own = 2


class LocalByObject(Local):
    def __getattribute__(self, name):
        return object.__getattribute__(self, name)


KINDS = (Asked, First, Catching, Plain, Raised, Module, torch.nn.Module, Local, LocalByObject)
NAMES = ("kept", "own", "raising", "none", "refused", "refused_first", "weight", "training")
WAYS = {
    "dot": lambda o, name: getattr(o, name),
    "default": lambda o, name: getattr(o, name, 7),
    "has": lambda o, name: hasattr(o, name),
    "object's": lambda o, name: object.__getattribute__(o, name),
    "class's": lambda o, name: type(o).__getattribute__(o, name),
    "its": lambda o, name: o.__getattribute__(name),
    "after": lambda o, name: super(type(o), o).__getattribute__(name),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_who_answers_for_an_attribute(kind, way, capture, same):
    read = WAYS[way]

    def found(o):
        rows = []
        for name in NAMES:
            try:
                rows.append((name, read(o, name)))
            except AttributeError as error:
                rows.append((name, str(error), type(error.__context__)))
        return rows

    def of_given(t, o):
        return t + 1, found(o)

    def of_made(t):
        return t + 1, found(kind())

    given = kind()
    for fn, args in ((of_given, (given,)), (of_made, ())):
        if fn is of_given or kind not in (Module, torch.nn.Module):
            same(capture(fn)(torch.ones(2), *args), fn(torch.ones(2), *args))


def test_a_threads_object_is_not_copied_nor_set_past_its_thread(capture, same):
    import copy

    given = Local()
    done = (
        lambda: copy.copy(given),
        lambda: copy.deepcopy(given),
        lambda: object.__setattr__(given, "own", 3),
        lambda: object.__delattr__(given, "own"),
    )

    def fn(t):
        rows = []
        for do in done:
            try:
                rows.append(do())
            except (TypeError, AttributeError) as error:
                rows.append((type(error), str(error)))
        return t + 1, rows, given.own

    same(capture(fn)(torch.ones(2)), fn(torch.ones(2)))


@pytest.mark.parametrize("name", ["kept", "own", "raising", "none", "__name__"])
def test_object_looks_a_class_up_as_an_instance(name, capture, same):
    class Derived(Asked):
        own = 3

    def fn(t):
        try:
            return t + 1, object.__getattribute__(Derived, name)
        except AttributeError as error:
            return t + 1, str(error)

    same(capture(fn)(torch.ones(2)), fn(torch.ones(2)))
