"""Axes of loops: split at divisions, ordered by strides, merged where walked as one."""

from __future__ import annotations

import torch

from tests.evaluated import against_eager


def sizes(function: object, *inputs: torch.Tensor) -> tuple[list[object], list[object]]:
    (loop,) = against_eager(function, *inputs).loops  # type: ignore[arg-type]
    assert all("//" not in repr(i) and "%" not in repr(i) for i in loop.body)
    return [a.size for a in loop.x], [a.size for a in loop.r]


def test_contiguous_dimensions_are_one() -> None:
    assert sizes(lambda x: x + 1, torch.randn(3, 4, 5)) == ([60], [])
    assert sizes(lambda x: x.sum((1, 2)), torch.randn(3, 4, 5)) == ([3], [20])
    assert sizes(lambda x: x.sum((0, 1)), torch.randn(3, 4, 5)) == ([5], [12])


def test_what_a_broadcast_needs_apart_stays_apart() -> None:
    assert sizes(lambda x, y: x + y, torch.randn(3, 4, 5), torch.randn(5)) == ([12, 5], [])


def test_the_innermost_axis_is_the_contiguous_one() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert sizes(lambda x: x * 2, x) == ([120], [])
    bias = torch.randn(3, 1, 1)
    assert sizes(lambda x, b: x * b, x, bias) == ([40, 3], [])


def test_several_broadcast_vectors_do_not_outvote_the_tensor() -> None:
    x = torch.randn(4, 32, 8, 8)
    a, b, c, d = (torch.randn(32, 1, 1) for _ in range(4))
    assert sizes(lambda x, a, b, c, d: (x - a) * b * c + d, x, a, b, c, d) == ([4, 32, 64], [])


def test_divisions_are_split_away() -> None:
    assert sizes(
        lambda x: x.permute(0, 2, 1, 3).reshape(2, 6, 32) * 2, torch.randn(2, 4, 6, 8)
    ) == ([2, 6, 4, 8], [])
