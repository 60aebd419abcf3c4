"""Strides of pointwise operators' results along dimensions of one element and none."""

from __future__ import annotations

import random

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.joint.metadata.fake_metadata import FakeValues
from flambeau_aot.joint.metadata.pointwise_layouts import _OTHERWISE

aten = torch.ops.aten

UNARY = [aten.sin.default, aten.neg.default, aten.logical_not.default, aten.relu.default]
BINARY = [
    *(aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.maximum.default),
    *(aten.eq.Tensor, aten.atan2.default, aten.sigmoid_backward.default, aten.div.Tensor),
    *(aten.leaky_relu_backward.default, aten.threshold_backward.default, aten.copysign.Tensor),
]
WITH_NUMBER = [aten.mul.Scalar, aten.lt.Scalar, aten.pow.Tensor_Scalar, aten.mul.Tensor]
TERNARY = [aten.where.self, aten.addcmul.default, aten.lerp.Tensor]


def drawn(draw: random.Random, shape: list[int]) -> torch.Tensor:
    """A tensor whose dimensions lie in any order, those of one at any distance."""
    order = draw.sample(range(len(shape)), len(shape))
    strides, step = [0] * len(shape), 1
    for dim in order:
        apart = shape[dim] == 1 and draw.random() < 0.2
        strides[dim] = draw.choice([1, 2, 3, 7]) if apart else step
        step *= max(shape[dim], 1) * draw.choice([1] * 9 + [2])
    return torch.empty_strided(shape, strides).fill_(0.5)


def operands(draw: random.Random, count: int) -> list[torch.Tensor]:
    shape = [draw.choice([1, 1, 2, 3] + [0] * (draw.random() < 0.1)) for _ in range(4)]
    shape = shape[draw.randrange(3) :]
    own = [[n if draw.random() < 0.85 else 1 for n in shape] for _ in range(count)]
    return [
        drawn(draw, sizes[draw.random() < 0.2 :] if at else sizes) for at, sizes in enumerate(own)
    ]


@pytest.mark.parametrize(
    ("ops", "count"),
    [(UNARY, 1), (WITH_NUMBER, 1), (BINARY, 2), (TERNARY, 3)],
    ids=["unary", "number", "binary", "ternary"],
)
def test_they_are_those_of_the_kernels(ops: list, count: int) -> None:
    draw, fakes = random.Random(0), FakeValues()
    for op in ops * 40:
        given = [*operands(draw, count), *[2.0] * (ops is WITH_NUMBER)]
        if op is aten.leaky_relu_backward.default:
            given += [0.1, False]
        if op is aten.threshold_backward.default:
            given += [0.0]
        if op is aten.where.self:
            given[0] = given[0] > 0
        described = fakes.run(
            op, tuple(fakes.like(x) if isinstance(x, torch.Tensor) else x for x in given), {}
        )
        where = op, [(x.shape, x.stride()) for x in given if isinstance(x, torch.Tensor)]
        assert described.stride() == op(*given).stride(), where


def test_operators_left_out_are_there() -> None:
    for name in _OTHERWISE:
        assert hasattr(aten, name.removeprefix("aten::")), name


@pytest.mark.parametrize("cotangent", ["expanded", "reversed"])
def test_a_leaf_takes_the_strides_of_dimensions_of_one(cotangent: str) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.permute(1, 0, 2) * w, x.sin()

    seen = []
    for call in (program, aot.aot_function(program, aot.run_as_is)):
        x = torch.ones(2, 1, 3, requires_grad=True)
        for result in call(x, torch.ones(2, 3)):
            shape = result.shape
            g = torch.ones(()).expand(shape)
            if cotangent == "reversed":
                g = torch.ones(shape[::-1]).permute(2, 1, 0)
            result.backward(g, retain_graph=True)
            seen.append(x.grad.stride())
            x.grad = None
    assert seen[:2] == seen[2:]
