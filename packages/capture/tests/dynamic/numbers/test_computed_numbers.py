"""Branches on numbers that Python computes of others: a graph for each way that they go, not for
each number."""

import math

import pytest
import torch
from flambeau_capture.api import compiler_of
from flambeau_capture.guards.sizes import FUNCTIONS

WRITTEN = {
    "pow": "({0} ** 0.7)", "floordiv": "({0} // 0.3)", "mod": "({0} % 0.3)",
}  # fmt: skip
#: what is decided, of a computed number and of the middle of what it is in these calls
DECIDED = {
    "compared": "a > {0}",
    "the other way": "{0} >= a",
    "equal": "a == {0}",
    "the larger": "max(a, {0}) == a",
    "the smaller of a quotient": "min(1 / (a + 100), {0}) > 0",
    "of both": "abs(a) * 2 - a / 3 < {0}",
}


def written(function):
    if function is math.pow:
        return "math.pow({0}, 0.7)"
    name = function.__name__
    return WRITTEN.get(name, f"math.{name}({{0}})")


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda fn: f"{fn.__module__}.{fn.__name__}")
def test_as_many_graphs_as_ways(capture, backend, function):
    values = [0.11 + 0.05 * turn for turn in range(12)]
    made = eval(f"lambda n: {written(function).format('n')}", {"math": math})
    middle = sorted(map(made, values))[6]
    first = FUNCTIONS.index(function)
    for number in range(first, first + 2):
        decided = [*DECIDED.values()][number % len(DECIDED)]
        held = ("n", "float(n) + 0.0", "n * 1.0")[number % 3]
        source = (
            f"def f(x, n):\n    a = {written(function).format(f'({held})')}\n"
            f"    return x * a if {decided.format(repr(middle))} else x - a\n"
        )
        names = {"math": math}
        exec(source, names)
        fn = capture(names["f"])
        for value in [*values, *values[::-1]]:
            x = torch.arange(3.0)
            assert torch.equal(fn(x, value), names["f"](x, value)), (source, value)
        assert len(backend) <= 5, source
        assert compiler_of(fn).cache.counters()["limit_reached"] == 0, source
        backend.clear()
