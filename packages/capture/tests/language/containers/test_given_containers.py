"""The program's own containers, as arguments: what is read between two changes, and what they hold
after the call, whichever change comes first."""

import copy
import pickle
from collections import OrderedDict, defaultdict, deque

import pytest
import torch

SETS = {
    "add": lambda a: a.add(9),
    "remove": lambda a: a.remove(1),
    "discard": lambda a: a.discard(2),
    "discard what is not there": lambda a: a.discard(8),
    "pop": lambda a: len([a.pop()]),
    "clear": lambda a: a.clear(),
    "update": lambda a: a.update([7, 8]),
    "intersection_update": lambda a: a.intersection_update([1, 2]),
    "intersection_update of nothing": lambda a: a.intersection_update(),
    "difference_update": lambda a: a.difference_update([1]),
    "symmetric_difference_update": lambda a: a.symmetric_difference_update([1, 5]),
    "init": lambda a: a.__init__([4]),
}
DICTS = {
    "set": lambda a: a.__setitem__(9, 0),
    "set again": lambda a: a.__setitem__(1, 0),
    "del": lambda a: a.__delitem__(1),
    "pop": lambda a: a.pop(2),
    "pop what is not there": lambda a: a.pop(8, None),
    "popitem": lambda a: a.popitem(),
    "setdefault": lambda a: a.setdefault(7, 3),
    "update": lambda a: a.update({1: 5, 6: 6}),
    "clear": lambda a: a.clear(),
}
LISTS = {
    "append": lambda a: a.append(9),
    "remove": lambda a: a.remove(1),
    "pop": lambda a: a.pop(),
    "del": lambda a: a.__delitem__(0),
    "set": lambda a: a.__setitem__(-1, 4),
    "insert": lambda a: a.insert(1, 7),
    "extend": lambda a: a.extend([7, 8]),
    "reverse": lambda a: a.reverse(),
    "clear": lambda a: a.clear(),
}
KINDS = {
    "set": ({1, 2, 5}, SETS),
    "dict": ({1: 1, 2: 2, 5: 5}, DICTS),
    "OrderedDict": (OrderedDict({1: 1, 2: 2, 5: 5}), DICTS),
    "defaultdict": (defaultdict(int, {1: 1, 2: 2, 5: 5}), DICTS),
    "list": ([1, 2, 5], {**LISTS, "sort": lambda a: a.sort(reverse=True)}),
    "deque": (deque([1, 2, 5]), {**LISTS, "popleft": lambda a: a.popleft()}),
}
READS = {
    "length": len,
    "membership": lambda a: (1 in a, 2 in a, 9 in a),
    "all": lambda a: (sorted(a), repr(a) if not isinstance(a, set) else len(repr(a))),
}
CASES = [(kind, change) for kind, (_, changes) in KINDS.items() for change in changes]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(("kind", "change"), CASES)
def test_what_is_read_between_changes_is_what_they_left(capture, kind, change, read):
    model, changes = KINDS[kind]

    def program(x, a, first, second, read):
        done = []
        for each in (first, second):
            try:
                done.append(each(a))
            except Exception as error:
                done.append((type(error).__name__, str(error)))
            done.append(read(a))
        return x * 2, done

    x = torch.ones(2)
    for second in changes.values():
        theirs, ours = copy.copy(model), copy.copy(model)
        given = (changes[change], second, READS[read])
        wanted, got = program(x, theirs, *given), capture(program)(x, ours, *given)
        assert got[1] == wanted[1]
        assert ours == theirs and [*ours] == [*theirs]


VIEWED = {
    "nothing": lambda d: None,
    "set": lambda d: d.__setitem__("z", 3),
    "del": lambda d: d.__delitem__("a"),
}


@pytest.mark.parametrize("changed", VIEWED)
@pytest.mark.parametrize("view", ["keys", "values", "items"])
@pytest.mark.parametrize("kind", [dict, OrderedDict, lambda d: defaultdict(int, d)])
def test_a_view_that_the_program_keeps_is_of_its_dict(kind, view, changed, capture, same):
    def f(t, d, kept):
        first = len(kept), [*kept]
        VIEWED[changed](d)
        return t * len(kept), first, [*kept], kept, 2 in kept

    run = capture(f, nopython=True)
    for given in ({"a": 1, "b": 2}, {"a": 1}, {"a": 2}):
        d, other = kind(given), kind(given)
        expected = f(torch.ones(2), other, getattr(other, view)())
        found = run(torch.ones(2), d, kept := getattr(d, view)())
        assert found[3] is kept
        same([*found[:3], [*found[3]], found[4]], [*expected[:3], [*expected[3]], expected[4]])


PICKLED = {
    "nothing": ({}, 1),
    "names": ({"a": 1, "b": None, "c": 2.5}, 1),
    "nested": ({"a": [1, (True, b"x")], "b": {"c": []}}, 1),
    "protocol": (("u", 3), 1),
    "one text twice": ({"a": "b", "b": 1}, 2),
    "an object": ([slice(1, 2)], 2),
}


@pytest.mark.parametrize("name", PICKLED)
def test_plain_data_is_pickled_in_the_graph(name, check):
    data, graphs = PICKLED[name]
    check(lambda t, data: (t.exp(), pickle.dumps(data))[::-1] + (t + 1,), (torch.ones(2)), data,
          graphs=graphs)  # fmt: skip
    check(lambda t: (t.exp(), pickle.dumps({"k": [t.dim()]}, 4), t + 1), torch.ones(2))
