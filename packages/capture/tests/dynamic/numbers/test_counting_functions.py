"""Numbers that functions keep as attributes of their own: counters of a decorator, of a function.
Generated: how the function is reached times what it does with the number."""

import functools
import itertools

import pytest
import torch


def added(kept, x):
    kept.n += 1
    return x * kept.n


def scaled(kept, x):
    kept.n = kept.n * 2 + 1
    return x + kept.n


def shared(kept, x):
    kept.n += x.shape[0]
    kept.__dict__["m"] = kept.n
    return x - kept.m


def lasting(kept, x):
    kept.n += 0.5
    return x * kept.n


def of_global(change):
    names = {"change": change}
    exec("def counting(x):\n    return change(counting, x)", names)
    return names["counting"], names["counting"]


def of_decorator(change):
    def decorator(fn):
        @functools.wraps(fn)
        def around(*args):
            return change(around, fn(*args))

        return around

    around = decorator(lambda x: x + 1)
    return around, around


def of_argument(change):
    def kept():
        pass

    return functools.partial(change, kept), kept


def of_method(change):
    class Holder:
        def run(self, x):
            return change(Holder.run, x)

    return Holder().run, Holder.run


def of_item(change):
    table = {"kept": lambda: None}
    return lambda x: change(table["kept"], x), table["kept"]


WAYS = [of_global, of_decorator, of_argument, of_method, of_item]
CHANGES = [added, scaled, shared, lasting]


def steps(run, kept, kind, count=6):
    kept.n, kept.m = kind(1), 0
    results = [run(torch.arange(3.0)).tolist() for _ in range(count)]
    kept.n = kind(40)
    return results, run(torch.arange(3.0)).tolist(), kept.n, kept.m


@pytest.mark.parametrize(
    ("way", "change"), itertools.product(WAYS, CHANGES), ids=lambda each: each.__name__
)
def test_a_number_of_a_function_is_open_once_it_varies(capture, backend, way, change):
    kind = float if change is lasting else int
    expected = steps(*way(change), kind)
    run, kept = way(change)
    assert steps(capture(run), kept, kind) == expected
    assert len(backend) <= 2
