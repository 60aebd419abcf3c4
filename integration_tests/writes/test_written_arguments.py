"""Operators that write to arguments which share memory, through the whole stack."""

import pytest
import torch

import flambeau

PAIRS = {
    "in part": lambda x: (x[:2], x[1:3]),
    "crossing": lambda x: (x[:, 1], x[2]),
    "transposed": lambda x: (x[:, :4], x[:, :4].t()),
    "of a value of the program": lambda x: (lambda h: (h[1:3], h))(x * 2),
}
RESULTS = {
    "()": lambda x, y: None,
    "None": lambda x, y: None,
    "Tensor": lambda x, y: x.sum() * 2,
    "Tensor(a!)": lambda x, y: x,
    "(Tensor(b!), Tensor)": lambda x, y: (y, x.cos()),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("pair", PAIRS)
def test_as_eager(pair, result) -> None:
    def kernel(xs, y):
        xs[0].add_(1)
        y.mul_(xs[0].sum())
        return RESULTS[result](xs[0], y)

    def fn(x):
        a, b = PAIRS[pair](x)
        return called(a, b), a + 1, b.clone()

    schema = "(Tensor(a!) x, Tensor(b!) y) -> " + result
    if ("(" in result and result != "()") or result == "Tensor":
        implementation = lambda x, y: kernel([x], y)  # noqa: E731
        called = lambda a, b: torch.ops.flambeau_whole.op(a, b)  # noqa: E731
    else:
        schema = "(Tensor(a!)[] xs, Tensor(b!)? y) -> " + result
        implementation = kernel
        called = lambda a, b: torch.ops.flambeau_whole.op([a], b)  # noqa: E731
    with torch.library._scoped_library("flambeau_whole", "FRAGMENT") as library:
        library.define("op" + schema)
        library.impl("op", implementation, "CompositeExplicitAutograd")
        expected, given = torch.arange(24.0).reshape(4, 6), torch.arange(24.0).reshape(4, 6)
        wanted = fn(expected)
        found = flambeau.compile(fn, fullgraph=True)(given)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(given, expected)
