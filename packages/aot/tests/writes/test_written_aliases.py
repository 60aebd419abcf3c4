"""An argument that is an alias without history of another one: their writes count together."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.errors import Unsupported

Pair = tuple[torch.Tensor, torch.Tensor]
KEEPING = {
    "exp_": lambda x: x.exp_(),
    "sigmoid_": lambda x: x.sigmoid_(),
    "copysign_": lambda x: x.copysign_(3),
    "relu_": lambda x: x.relu_(),
    "mul_": lambda x: x.mul_(2),
    "clamp_": lambda x: x.clamp_(-1, 1),
}
WRITES: dict[str, Callable[..., Any]] = {
    "detached into the other": lambda x, w: w.copy_(x.detach()),
    "the other": lambda x, w: w.add_(1),
    "detached": lambda x, w: x.detach().mul_(2),
    "data": lambda x, w: x.data.mul_(2),
    "nothing": lambda x, w: x.detach() + w,
}
PAIRS: dict[str, Callable[[torch.Tensor], Pair]] = {
    "detach": lambda base: (base, base.detach()),
    "data": lambda base: (base, base.data),
    "view": lambda base: (base[...], base.detach()),
    "apart": lambda base: (base * 1, base.detach()),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("write", WRITES)
def test_where_eager_raises_nothing_answers(pair: str, write: str) -> None:
    """Else the gradients are eager's, or the program is refused by name."""

    def outcome(call: Callable[..., Any]) -> Any:
        base = torch.tensor([0.5, -0.25, 2.0], requires_grad=True)
        x, w = PAIRS[pair](base * 1)
        try:
            results = call(x, w)
            (results[0].sum() + results[0].square().sum()).backward()
        except (RuntimeError, Unsupported) as error:
            return error
        return [*(result.detach() for result in results), base.grad]

    refused = 0
    for keeping in KEEPING.values():

        def program(x: torch.Tensor, w: torch.Tensor, keeping: Any = keeping) -> Pair:
            keeping(x)
            WRITES[write](x, w)
            return x, w

        expected, found = outcome(program), outcome(aot.aot_function(program, aot.run_as_is))
        refused += isinstance(found, Unsupported)
        if isinstance(expected, Exception):
            assert isinstance(found, Exception)
        elif not isinstance(found, Unsupported):
            torch.testing.assert_close(found, expected)
    assert refused < len(KEEPING) or pair in ("view", "data", "detach")


def test_there_are_such_that_eager_refuses() -> None:
    several = 0
    for make, write in itertools.product(PAIRS.values(), WRITES.values()):
        x, w = make(torch.ones(2, requires_grad=True) * 1)
        x.exp_()
        write(x, w)
        try:
            x.sum().backward()
        except RuntimeError:
            several += 1
    assert several > 4
