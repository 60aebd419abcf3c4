"""Subscripts of deques: what is said of a wrong one depends on the operator, on the method that is
called, and on what the class has had; a wrong place of `insert` comes before a full deque."""

import collections
import operator

import pytest
import torch


class Derived(collections.deque):
    pass


class Lost(collections.deque):
    def __getitem__(self, key):
        return key

    def __setitem__(self, key, value):
        pass

    def __delitem__(self, key):
        pass


del Lost.__getitem__, Lost.__setitem__, Lost.__delitem__
KEYS = ("a", None, 1.5, True, 0, 5, -3, 2**70, slice(1))
ASKED = {
    "get": operator.getitem,
    "set": lambda d, key: operator.setitem(d, key, 3),
    "delete": operator.delitem,
    "get by name": lambda d, key: d.__getitem__(key),
    "set by name": lambda d, key: d.__setitem__(key, 3),
    "delete by name": lambda d, key: d.__delitem__(key),
    "set by the class": lambda d, key: type(d).__setitem__(d, key, 3),
    "insert": lambda d, key: d.insert(key, 3),
}


@pytest.mark.parametrize("kind", (collections.deque, Derived, Lost), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("asked", ASKED)
def test_what_is_said_of_a_subscript(kind, asked, check):
    def fn(t, deques):
        rows = []
        for place, key in enumerate(KEYS):
            try:
                rows.append(ASKED[asked](deques[place], key))
            except (TypeError, IndexError, OverflowError) as error:
                rows.append((type(error), str(error)))
        return t + 1, rows, [list(each) for each in deques]

    check(fn, torch.ones(2), [kind([1, 2], maxlen=2) for _ in KEYS])
