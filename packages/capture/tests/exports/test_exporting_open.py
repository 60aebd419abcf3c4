"""Exports whose sizes are left open: the conditions on them are checked at each call."""

from __future__ import annotations

import flambeau_capture as fc
import pytest
import torch


def test_a_dimension_is_open_within_its_bounds() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.reshape(x.shape[0] * 2, -1) @ w).sum(0) * x.shape[0]

    x, w = torch.randn(4, 6), torch.randn(3, 5)
    fc.mark_dynamic(x, 0, min=3, max=64)
    exported = fc.export(f, x, w)
    for rows in (3, 10, 64):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(exported(x, w), f(x, w))
    for rows in (2, 65):
        with pytest.raises(ValueError, match="exported for sizes with"):
            exported(torch.randn(rows, 6), w)
    with pytest.raises(ValueError, match="exported for"):
        exported(torch.randn(4, 7), w)


def test_sizes_that_were_found_equal_have_to_be() -> None:
    x, y = torch.randn(5, 2), torch.randn(5, 2)
    fc.mark_dynamic(x, 0)
    fc.mark_dynamic(y, 0)
    exported = fc.export(lambda x, y: x + y, x, y)
    x, y = torch.randn(9, 2), torch.randn(9, 2)
    torch.testing.assert_close(exported(x, y), x + y)
    with pytest.raises(ValueError, match="exported for"):
        exported(x, torch.randn(8, 2))


def test_a_size_of_a_tensor_that_is_not_computed_with_is_named() -> None:
    x = torch.randn(5, 2)
    fc.mark_dynamic(x, 0)
    with pytest.raises(fc.ExportError, match="number"):
        fc.export(lambda x, y: y * x.shape[0], x, torch.randn(3))


NUMBERS = {
    "size": lambda n: n,
    "computed": lambda n: {"a": [n * 2 + 1, n // 2], "b": (n % 3, -n, n**2)},
    "shape": lambda n: torch.empty(n, 3, device="meta").shape,
    "least": lambda n: min(n, 100),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_in_the_result_are_those_of_the_call(name: str) -> None:
    number = NUMBERS[name]
    exported = fc.export(
        lambda x: (x + 1, number(x.shape[0]), 7),
        torch.randn(4, 3),
        dynamic_shapes={"x": {0: fc.Dim("rows", max=99)}},
    )
    for rows in (2, 4, 9, 31):
        _, found, constant = exported(torch.randn(rows, 3))
        assert (found, constant) == (number(rows), 7)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1 if x.shape[0] / 3 > 1.5 else x - 1,
        lambda x: x + 1 if x.shape[0] ** 0.5 > 2.5 else x - 1,
        lambda x: (x + 1, x.shape[0] / 2),
        lambda x: (x + 1, round(x.shape[0] / 3)),
        lambda x: (x + 1, f"{x.shape[0]} rows"),
    ],
)
def test_what_a_graph_cannot_say_of_a_size_is_an_error(function) -> None:
    with pytest.raises(fc.ExportError, match=r"size|work"):
        fc.export(function, torch.randn(4, 3), dynamic_shapes={"x": {0: "rows"}})
