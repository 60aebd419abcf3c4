"""Callables without a name (partials, instances, caches of them, getters) in every place that
takes one: Python's answers, and never a fault for want of a name."""

import functools
import itertools
import operator

import flambeau_capture as fc
import pytest
import torch


def add(a, b=1):
    return a + b


class Tripled:
    def __call__(self, k, b=1):
        return k * 3


def refused(g):
    try:
        return g(1, 2, 3, 4)
    except TypeError as error:
        return str(error)


MAKERS = {
    "partial": lambda: functools.partial(add, b=2),
    "instance": lambda: Tripled(),
    "cached_partial": lambda: functools.lru_cache(functools.partial(add, b=2)),
    "cached_twice": lambda: functools.lru_cache(functools.lru_cache(Tripled())),
    "static": lambda: staticmethod(functools.partial(add, b=2)),
    "methodcaller": lambda: operator.methodcaller("__add__", 2),
}
USES = [
    lambda x, g: g(x),
    lambda x, g: [x * v for v in map(g, (1, 2))],
    lambda x, g: (x, sorted([3, 1], key=g), max([1, 2], key=g)),
    lambda x, g: x * functools.partial(g)(2),
    lambda x, g: x * functools.lru_cache(g)(2),
    lambda x, g: torch.vmap(g)(x),
    lambda x, g: (x, list(itertools.starmap(g, [(1,), (2,)]))),
    lambda x, g: (x, callable(g), getattr(g, "__name__", "none"), type(g).__name__),
    lambda x, g: (x, {g: 2}[g], g == g, refused(g)),
]


def program(use, make, made):
    held = make()
    return (lambda x: use(x, make())) if made else (lambda x: use(x, held))


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("maker", MAKERS)
def test_callables_without_names_are_called_and_asked_as_in_python(maker, made):
    for use in USES:
        fn = program(use, MAKERS[maker], made)
        compiled = fc.compile(fn, "eager", raise_internal_errors=True)
        for x in (torch.ones(2), torch.ones(2) + 1):
            assert str(compiled(x)) == str(fn(x))


@pytest.mark.parametrize("kind", [operator.itemgetter, operator.attrgetter, operator.methodcaller])
def test_getters_made_in_a_frame_are_of_their_class_inside_and_outside(kind):
    def f(x):
        g = kind("T")
        return x + 1, g, type(g) is kind, isinstance(g, kind), hasattr(g, "__name__")

    _, got, *asked = fc.compile(f, "eager", raise_internal_errors=True)(torch.ones(2))
    assert type(got) is kind
    assert asked == [True, True, False]
