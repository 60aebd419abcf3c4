"""Iterators that existed before the call, of every built-in kind whose next items can be known: as
many are taken as the program takes, at every position, and what they run over may change between.
"""

import collections
import itertools
import sys

import pytest
import torch

#: over a container that is given
OVER = {
    "list": (list, iter),
    "reversed list": (list, reversed),
    "tuple": (tuple, iter),
    "set": (set, iter),
    "frozen set": (frozenset, iter),
    "deque": (collections.deque, iter),
    **{
        f"{name} of {way.__name__} {kind.__name__}": (
            kind.fromkeys,
            lambda d, name=name, way=way: way(getattr(d, name)()),
        )
        for kind in (dict, collections.OrderedDict)
        for name in ("keys", "values", "items")
        for way in (iter, reversed)
    },
    "enumerate": (list, lambda items: enumerate(iter(items))),
    "zip": (list, lambda items: zip(iter(items), iter(items))),
}
if sys.version_info < (3, 12):  # later ones warn where they are asked for what they hold
    OVER |= {
        "count": (list, lambda items: itertools.count(len(items))),
        "repeat": (list, lambda items: itertools.repeat(items)),
        "repeat twice": (list, lambda items: itertools.repeat(len(items), 2)),
        "chain": (list, lambda items: itertools.chain(items, (8,), {}, range(2))),
        "chain of views": (dict.fromkeys, lambda d: itertools.chain(d.values(), d, d.items())),
        "chain of a list": (list, lambda items: itertools.chain.from_iterable([items, items])),
        "chain of iterators": (
            list,
            lambda items: itertools.chain(iter(items), zip(iter(items)), (8,)),
        ),
    }
#: what happens to the container on the way
CHANGES = {
    "nothing": "pass",
    "before": "held.pop() if isinstance(held, list) and held else None",
    "within": "change(held)",
    "between": "pass",
}
TAKES = "taken = [next(it, 'end'), next(it, 'end')]"


def change(held):
    if isinstance(held, list | collections.deque):
        held.append(9)
    elif isinstance(held, set):
        held.add(9)
    elif isinstance(held, dict):
        held[9] = 9


@pytest.mark.parametrize("change_name", CHANGES)
@pytest.mark.parametrize("over", OVER)
def test_an_iterator_is_taken_from(over, change_name, capture, same):
    make, iterate = OVER[over]
    text = f"def f(t, it, held):\n    t = t + 1\n    try:\n        {CHANGES[change_name]}\n"
    text += f"        {TAKES}\n    except RuntimeError as error:\n        taken = [str(error)]\n"
    told = []
    for compiled in (False, True):
        names = {"change": change}
        exec(text + "    return t, taken\n", names)
        run = capture(names["f"]) if compiled else names["f"]
        rows = []
        for before in (0, 1, 3):
            held = make([5, 6, 7])
            it = iterate(held)
            for _ in itertools.islice(it, before):
                pass
            for at in range(3):
                if at == 1 and change_name == "between":
                    change(held)
                rows.append(run(torch.ones(1), it, held))
            try:
                rows.append([*itertools.islice(it, 2)])
            except RuntimeError as error:
                rows.append(str(error))
        told.append(rows)
    same(told[1], told[0])


@pytest.mark.parametrize(
    "around",
    [
        enumerate,
        lambda inner: zip(inner, iter("abcd")),
        lambda inner: itertools.chain(inner, "ab"),
        lambda inner: itertools.chain([], inner, "ab"),
        lambda inner: itertools.chain.from_iterable([inner]),
    ],
)
def test_one_around_another_that_the_program_takes_from(around, capture, same):
    told = []
    for wrap in (lambda fn: fn, capture):
        inner = iter([1, 2, 3, 4])
        run = wrap(lambda t, it, inner=inner: (t + 1, next(it), next(inner)))
        it = around(inner)
        told.append([run(torch.ones(1), it) for _ in range(2)])
    same(told[1], told[0])


def test_the_parts_of_a_chain_change(capture, same):
    told = []
    for wrap in (lambda fn: fn, capture):
        parts = [[1], [2]]

        def run(t, it, parts=parts):
            parts.append([next(it)])
            return t + 1, next(it), next(it)

        told.append([wrap(run)(torch.ones(1), itertools.chain.from_iterable(parts)), parts])
    same(told[1], told[0])


@pytest.mark.parametrize("change_text", ["held[0] = 9", "held.reverse()", "held.append(9)"])
def test_a_deque_is_changed_while_the_caller_iterates_over_it(change_text, capture, same):
    names = {}
    exec(f"def f(t, held):\n    {change_text}\n    return t + 1", names)
    told = []
    for wrap in (lambda fn: fn, capture):
        held, run, rows = collections.deque([1, 2, 3]), wrap(names["f"]), []
        try:
            for item in held:
                rows.append((item, run(torch.ones(1), held)))
        except RuntimeError as error:
            rows.append(str(error))
        told.append((rows, held))
    same(told[1], told[0])


@pytest.mark.parametrize("over", [name for name in OVER if name != "deque"])
def test_what_is_taken_is_in_one_graph(over, capture, backend):
    make, iterate = OVER[over]
    run = capture(lambda t, it: (t + 1, next(it)), nopython=True)
    it, other = iterate(make([5, 6, 7])), iterate(make([5, 6, 7]))
    assert [run(torch.ones(1), it)[1] for _ in range(2)] == [next(other), next(other)]
    assert len(backend) <= 2
