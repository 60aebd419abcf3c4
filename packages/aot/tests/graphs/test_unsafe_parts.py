"""Parts that share memory with what they are parts of, though autograd is not told so: values,
layout, memory and gradients, by argument and by value."""

from __future__ import annotations

import itertools
from typing import Any

import flambeau_aot as aot
import flambeau_prims
import pytest
import torch

CALLS = {
    "unsafe_split": lambda x: torch.unsafe_split(x, 2, 1),
    "method": lambda x: x.unsafe_split(split_size=3, dim=-1),
    "unsafe_split_with_sizes": lambda x: torch.unsafe_split_with_sizes(x, [1, 3], dim=0),
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 3, -1),
    "whole": lambda x: x.unsafe_chunk(1),
}
FROM = {"argument": lambda x: x, "value": lambda x: x * 2, "turned": lambda x: x.t()[:4]}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("decomposed", [False, True])
def test_as_eager(decomposed: bool, grad: bool) -> None:
    table = flambeau_prims.decompositions() if decomposed else None
    for call, source in itertools.product(CALLS, FROM):

        def fn(x: torch.Tensor, names: Any = (call, source)) -> Any:
            return tuple(CALLS[names[0]](FROM[names[1]](x)))

        seen = []
        for run in (fn, aot.aot_function(fn, aot.run_as_is, decompositions=table)):
            x = torch.arange(16.0).reshape(4, 4)[:, :].requires_grad_(grad)
            parts = run(x)
            if grad:
                sum((part * n).sin().sum() for n, part in enumerate(parts, 1)).backward()
            memory = {part.untyped_storage().data_ptr() for part in parts}
            place = [(p.stride(), p.storage_offset(), p.requires_grad) for p in parts]
            with_input = x.untyped_storage().data_ptr() in memory
            seen.append(((place, len(memory), with_input), [p.detach() for p in parts], x.grad))
        assert seen[0][0] == seen[1][0], (call, source)
        torch.testing.assert_close(seen[1][1:], seen[0][1:])
