"""An object that a compiled entry keeps may get another class between calls: a member of an
enumeration by its class, a default, an element of a closure, an attribute of a class."""

import enum

import pytest
import torch


class Plain:
    def __len__(self):
        return 5


class Number(enum.Enum):
    ONE = 1
    TWO = 2


class Own:
    name = "own"

    def __len__(self):
        return 3


class Holding:
    held = Own()


def of_class(member):
    return lambda: Number.TWO


def of_default(made):
    return lambda o=made: o


def of_closure(made):
    return lambda: made


def of_attribute(made):
    Holding.held = made
    return lambda: Holding.held


REACHED = {
    "a member": (of_class, lambda: Number.TWO),
    "a default": (of_default, Own),
    "a closure's": (of_closure, Own),
    "an attribute": (of_attribute, Own),
}


def told(o):
    found = []
    for ask in (lambda: o.name, lambda: o.a, lambda: len(o), lambda: type(o).__name__):
        try:
            found.append(ask())
        except (AttributeError, TypeError) as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("name", REACHED)
def test_its_class_is_looked_up_at_each_call(name, capture):
    reached, make = REACHED[name]
    made = make()
    before, read = type(made), reached(made)

    def fn(x):
        return x * 2, told(read())

    x, compiled = torch.ones(2), capture(fn)
    try:
        for kind in (before, Plain, before):
            made.__class__ = kind
            assert compiled(x)[1] == fn(x)[1]
    finally:
        made.__class__ = before
