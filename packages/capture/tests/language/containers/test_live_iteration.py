"""An iterator reads its items when it is their turn, while the program changes what it reads; a
list that is extended has each item before the next is made. Generated: iterators of lists and of
objects, under consumers that read and change.
"""

import itertools

import pytest
import torch

ITERATORS = (
    "zip(xs, 'abcd')", "(v for v, _ in zip(xs, 'abcd'))", "map(len_of, xs, range(4))",
    "itertools.islice(xs, 4)", "reversed(xs)", "iter(xs)", "enumerate(reversed(xs))",
    "itertools.chain([1], itertools.islice(xs, 3))", "xs", "tuple(xs)", "reversed(o)", "iter(o)",
    "reversed(L(xs))", "zip(o, reversed(o))", "o", "reversed(n)", "reversed({1})", "L(xs)",
    "failing(xs)", "reversed(sized)", "reversed(dict.fromkeys(xs))",
)  # fmt: skip
CONSUMERS = {
    "extend": "xs.extend(taken(it))",
    "+=": "xs += taken(it)",
    "init": "xs.__init__(taken(it))",
    "slice": "xs[1:2] = taken(it)",
    "deque": "import collections; xs = collections.deque(xs, 3); xs.extend(taken(it))",
    "left": "import collections; xs = collections.deque(xs, 5); xs.extendleft(taken(it))",
    "remove": "for v in it:\n            R.append(v)\n            if len(R) < 3: xs.pop(0)",
    "set": "for v in it:\n            R.append(v)\n            xs[0] = len(R)",
    "append": "for v in taken(it):\n            R += [v]\n            if len(R) < 5: xs.append(v)",
    "shown": "R += [type(it).__name__, next(iter(it)), [*taken(it)], o.log]",
    "kept": "KEPT.append(iter(it)); xs[0] = 7",
    "after a break": "breaks(); xs[1] = 8; R += taken(it)",
}


class Own:
    """Of the old protocols, which says when it is asked."""

    def __init__(self):
        self.log = []

    def __len__(self):
        self.log.append("len")
        return 3

    def __getitem__(self, i):
        self.log.append(i)
        if i > 2:
            raise IndexError(i)
        return i * 10


class Sized:
    def __len__(self):
        return 5

    def __getitem__(self, i):
        if i == 2:
            raise StopIteration
        return i


class L(list):
    pass


def failing(xs):
    for number, v in enumerate(xs):
        if number == 2:
            raise KeyError(v)
        yield v


def drained(iterator):
    """What is left of an iterator, and how it ends."""
    items = []
    try:
        items.extend(itertools.islice(iterator, 6))
    except KeyError as error:
        items.append(error.args)
    return items


def played(iterator, consumer, wrap):
    space = {
        "itertools": itertools, "L": L, "failing": failing, "KEPT": [], "n": 5, "sized": Sized(),
        "breaks": lambda: print("", end=""), "len_of": lambda v, n: n,
        "taken": lambda it: itertools.islice(it, 6) if hasattr(it, "__next__") else it,
    }  # fmt: skip
    text = f"""
def f(x, xs, o):
    R = []
    try:
        it = {iterator}
        {CONSUMERS[consumer]}
    except Exception as error:
        R.append((type(error).__name__, str(error)))
    return x + 1, R, xs
"""
    exec(text, space)
    target, seen = wrap(space["f"]), []
    for size in (2, 2):
        xs, o = [1, 2, 3], Own()
        found = target(torch.ones(size), xs, o)
        seen.append(repr((found[0].tolist(), found[1], list(found[2]), xs, o.log)))
        for kept in space["KEPT"]:
            seen.append(repr((type(kept).__name__, drained(kept), o.log)))
        space["KEPT"].clear()
    return seen


@pytest.mark.sweep(2)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_items_are_read_in_their_turn(capture, consumer):
    for iterator in ITERATORS:
        got = played(iterator, consumer, capture)
        assert got == played(iterator, consumer, lambda fn: fn), iterator
