"""How often tensors were written to, read by the program."""

from __future__ import annotations

import pytest
import torch

WRITES = {
    "never": lambda y: None,
    "once": lambda y: y.add_(1),
    "by an item": lambda y: y.__setitem__(0, 3.0),
    "through a view": lambda y: y[0].mul_(2),
    "several": lambda y: [y.add_(1), y.copy_(y * 2), y.zero_()],
}
MADE = {
    "argument": lambda x: x,
    "copy": lambda x: x.clone(),
    "result": lambda x: x * 2,
    "view": lambda x: x[1:],
    "new": lambda x: torch.zeros(3, 3),
}


@pytest.mark.parametrize("how", MADE)
@pytest.mark.parametrize("write", WRITES)
def test_versions_are_eagers(capture, write, how):
    def fn(x):
        y = MADE[how](x)
        WRITES[write](y)
        return y._version, x._version, y + 1

    compiled = capture(fn)
    for _ in range(2):
        got, wanted = compiled(torch.ones(3, 3)), fn(torch.ones(3, 3))
        assert got[:2] == wanted[:2] and torch.equal(got[2], wanted[2])
