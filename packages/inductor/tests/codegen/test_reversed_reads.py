"""What is read backwards: positions that count down are divided, and a quotient rounds down.

The family: orders of a tensor's axes x how they are joined to one x what is cut off before or after
x reversing, or turning round.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.passes.primitive_passes import rewrite
from torch import Tensor, fx

SHAPE = (2, 3, 4)
ORDERS = list(itertools.permutations(range(3)))
JOINED: dict[str, Callable[[Tensor], Tensor]] = {
    "all": lambda x: x.reshape(-1),
    "last": lambda x: x.reshape(x.shape[0], -1),
    "first": lambda x: x.reshape(-1, x.shape[2]).t(),
}
REVERSED: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda x: x.flip(-1),
    "without the first": lambda x: x[..., 1:].flip(-1),
    "without the last": lambda x: x[..., :-1].flip(-1),
    "then cut": lambda x: x.flip(-1)[..., 1:],
    "every second": lambda x: x.flip(-1)[..., ::2],
    "after a one": lambda x: torch.cat([x[..., :1] * 0 + 1, x[..., 1:].flip(-1)], -1),
    "rolled": lambda x: x.roll(2, -1),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("joined", JOINED)
@pytest.mark.parametrize("kernels", ["cpp", "triton"])
def test_each_element_is_the_one_that_was_meant(kernels: str, joined: str, tmp_path: Path) -> None:
    if kernels == "triton":
        pytest.importorskip("triton", reason="triton is not installed")
    names = [*itertools.product(ORDERS, REVERSED)]

    def whole(x: Tensor) -> Any:
        return tuple(REVERSED[way](JOINED[joined](x.permute(order))) for order, way in names)

    x = torch.arange(24.0).reshape(SHAPE)
    low = rewrite(flambeau_prims.lower(fx.symbolic_trace(whole), [x]))
    options = Options(kernels=kernels, cache_dir=str(tmp_path), verify=True)
    found = flambeau_inductor.compile(low, [x], options=options)([x])
    wrong = [
        name
        for name, got, want in zip(names, found, whole(x), strict=True)
        if not torch.equal(got, want)
    ]
    assert not wrong
