"""Tensors with another part: values, layout, place in memory and gradients, by how what they are
made of is laid out."""

from __future__ import annotations

import itertools
from typing import Any

import flambeau_aot as aot
import flambeau_prims
import pytest
import torch

CALLS = {
    "slice_scatter": lambda x, y: torch.slice_scatter(x, y[1:], 0, 1),
    "select_scatter": lambda x, y: x.select_scatter(y[:, 0], 1, -1),
    "diagonal_scatter": lambda x, y: x.diagonal_scatter(y.diagonal()),
}
PLACED = {
    "from its place": lambda x, y: torch.as_strided_scatter(x, y[0, :2], (2,), (2,)),
    "from the start": lambda x, y: torch.as_strided_scatter(x, y[0, :2], (2,), (2,), 0),
    "from further on": lambda x, y: x.as_strided_scatter(y[0, :2], (2,), (2,), 7),
    "all of it": lambda x, y: torch.as_strided_scatter(x, y.reshape(-1), (24,), (1,)),
}
LAYOUTS = {
    "dense": lambda x: x,
    "turned": lambda x: x.t(),
    "gaps": lambda x: x[:, 1::2],
    "turned gaps": lambda x: x.t()[1::2],
    "a place": lambda x: x.reshape(-1)[3:27].view(4, 6),
    "expanded": lambda x: x[:, :1].expand(3, 5),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_laid_out_as_eager(layout: str, inside: bool, grad: bool) -> None:
    for call in CALLS:

        def fn(x: torch.Tensor, names: Any = (layout, call)) -> torch.Tensor:
            x = LAYOUTS[names[0]](x * 1) if inside else x
            return CALLS[names[1]](x, x * 2 + 1)

        seen = []
        for decomposed in (None, False, True):
            table = flambeau_prims.decompositions() if decomposed else None
            run = fn
            if decomposed is not None:
                run = aot.aot_function(fn, aot.run_as_is, decompositions=table)
            base = torch.arange(30.0).reshape(3, 10).requires_grad_(grad)
            y = run(base if inside else LAYOUTS[layout](base))
            if grad:
                y.sin().sum().backward()
            told = (y.stride(), y.storage_offset(), grad and y._is_view())
            seen.append((told, y.detach(), base.grad))
        for found in seen[1:]:
            assert found[0] == seen[0][0], (call, found[0], seen[0][0])
            torch.testing.assert_close(found[1:], seen[0][1:])


WRITES = {
    "whole": lambda y: y.mul_(2),
    "part": lambda y: y[1:].mul_(2),
    "view": lambda y: y.t().add_(1),
}


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_what_is_laid_out_is_written_to(call: str, decomposed: bool) -> None:
    """It keeps its layout, and so do views of it, before the write and after."""
    table = flambeau_prims.decompositions() if decomposed else None
    for layout, write, grad in itertools.product(("gaps", "a place"), WRITES, (False, True)):

        def fn(x: torch.Tensor, write=write) -> tuple[torch.Tensor, ...]:
            y = CALLS[call](x, x * 2 + 1)
            before = y[1:]
            WRITES[write](y)
            return y, before, y[:, 1:] * 1

        seen = []
        for run in (fn, aot.aot_function(fn, aot.run_as_is, decompositions=table)):
            base = torch.arange(30.0).reshape(3, 10).requires_grad_(grad)
            found = run(LAYOUTS[layout](base))
            if grad:
                sum(y.sin().sum() for y in found).backward()
            told = [(y.stride(), y.storage_offset(), y.detach()) for y in found]
            seen.append((told, base.grad))
        torch.testing.assert_close(seen[1], seen[0], msg=f"{layout}, {write}, {grad}")


@pytest.mark.parametrize("call", PLACED)
@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("decomposed", [False, True])
def test_by_strides_at_the_place_of_what_is_dense(call: str, start: int, decomposed: bool) -> None:
    x = torch.arange(30.0)[start : start + 24].view(4, 6)
    table = flambeau_prims.decompositions() if decomposed else None
    expected = PLACED[call](x, -x - 1)
    run = aot.aot_function(PLACED[call], aot.run_as_is, decompositions=table)
    found = run(x, -x - 1)
    torch.testing.assert_close(found, expected)
    assert found.storage_offset() == expected.storage_offset()
    assert found.stride() == expected.stride()
