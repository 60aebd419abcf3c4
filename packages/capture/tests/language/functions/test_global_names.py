"""Global names that are set, deleted and set again: which there are, and in which order."""

import pytest
import torch

WRITES = {
    "there: deleted and set": "del A\n    A = 5",
    "there: set, deleted": "A = 2\n    del A",
    "there: set, deleted, set, deleted": "A = 2\n    del A\n    A = 3\n    del A",
    "new: set, deleted": "N = 1\n    del N",
    "new: two, the first again": "N = 1\n    M = 2\n    del N\n    N = 3",
    "both": "N = A\n    del A\n    A = N\n    del N",
}


@pytest.mark.parametrize("write", WRITES)
def test_names_have_the_order_that_python_gives_them(write, capture):
    seen = []
    for wrap in (lambda fn: fn, capture):
        space = {"torch": torch, "A": 0, "B": 0}
        exec(f"def f(x):\n    global A, B, N, M\n    {WRITES[write]}\n    return x + 1", space)
        fn, orders = wrap(space["f"]), []
        for before in ({}, {"A": 1}, {"N": 7, "A": 1}):
            space.update(before)
            fn(torch.ones(2))
            orders.append([(k, v) for k, v in space.items() if k in ("A", "B", "N", "M")])
        seen.append(orders)
    assert seen[1] == seen[0]
