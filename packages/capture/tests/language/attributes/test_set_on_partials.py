"""Attributes that are set on a `functools.partial`: read by every way, changed between calls."""

import functools

import pytest
import torch

READS = {
    "attribute": "p.k",
    "getattr": "getattr(p, 'k', 'none')",
    "hasattr": "hasattr(p, 'k')",
    "name": "getattr(p, '__name__', 'none')",
    "wrapped": "hasattr(p, '__wrapped__')",
    "text": "p.__doc__ is None",
    "call": "(hasattr(p, '__call__'), p.__call__(x), p.__doc__)",
    "arguments": "(p.func is add, p.args, p.keywords)",
}
CHANGES = {
    "none": lambda p: None,
    "set": lambda p: setattr(p, "k", 3),
    "set again": lambda p: setattr(p, "k", "text"),
    "wrapper": lambda p: functools.update_wrapper(p, add),
    "deleted": lambda p: delattr(p, "k"),
    "emptied": lambda p: p.__dict__.clear(),
}
PLACES = {
    "global": "def f(x, given):\n    return p(x), {0}\n",
    "argument": "def f(x, p):\n    return p(x), {0}\n",
}


def add(a, b):
    return a + b


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("read", READS)
def test_what_is_set_on_a_partial_is_read(read, place, capture, same):
    given = functools.partial(add, 1)
    space = {"add": add, "p": given}
    exec(PLACES[place].format(READS[read]), space)
    compiled = capture(space["f"])
    for change in CHANGES.values():
        change(given)
        outcomes = []
        for fn in (space["f"], compiled):
            try:
                outcomes.append(fn(torch.ones(2), given))
            except AttributeError as error:
                outcomes.append(str(error))
        same(outcomes[1], outcomes[0])
